"""What a fit learned, as one plain record, and the tests that are scored with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Array, Ints, Mask
from whence.data import Prepare, TrainingSet
from whence.data.inputs import as_batch
from whence.errors import NotFittedError, UnsupportedError
from whence.features import FeatureBank
from whence.features.training import Batches, Classifier, check_tests
from whence.model.bound import BoundModel
from whence.model.heads import Head
from whence.model.inputs import check_batch, take
from whence.model.layers import Layers
from whence.tasks import Task

if TYPE_CHECKING:
    from whence.attribution.base import Attributor
    from whence.explanation import EffectOf
    from whence.features import Novelty
    from whence.surrogate.surrogate import Surrogate


@dataclass(frozen=True, eq=False)
class Tests:
    """Tests to score.

    Attributes
    ----------
    features : (B, d), checked to be finite
    targets : (B,) int64 on the CPU, the output that is explained for each
    logits : (B, K), the model's own outputs
    x : the inputs, None where only features were given
    members : of an ensemble, the same tests as each member's model reads them
    """

    __test__ = False  # pytest would collect it

    features: Tensor
    targets: Tensor
    logits: Tensor
    x: Any = None
    members: tuple[Tests, ...] = ()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: slice) -> Tests:
        """Return some of the tests."""
        return Tests(
            self.features[rows],
            self.targets[rows],
            self.logits[rows],
            None if self.x is None else take(self.x, rows),
            tuple(member[rows] for member in self.members),
        )


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit learned; ``explainer.name_`` is short for ``explainer.fitted_.name``.

    Attributes
    ----------
    method : name of the method's class, for messages
    task : what the model's outputs stand for
    labels : (train, …), for classes int64, −1 for skipped samples
    head : the model's last layer, where it is known
    model : the model as it was when fitted, None where only features are known
    data : the training set, None for arrays and after ``load`` without it
    batch_size, show_progress : inputs per forward pass, and whether progress bars are shown
    arrays : tensors that the method learned, by name; ``save`` writes them
    surrogate : the surrogate of the last layer, for methods that have one
    members : of an ensemble, the fitted attributors
    given : what ``fit`` was given besides the arguments of all methods
    scorer : what scores are computed with, built from the above after a fit and after ``load``
    seconds, origins : how long "features" and "solution" took, and where they come from: computed, and why;
        resumed; reused; given
    reading : how the training features were read, so that they are found again
    needs_inputs : whether scores need inputs, not features alone
    bank : of a method with a surrogate, the features of all training samples as ``fit`` read them, for audits
        and what-if questions; None after ``load``. They are not copied and not saved
    """

    method: str
    task: Task
    labels: Array
    head: Head | None
    model: BoundModel | None
    data: TrainingSet | None
    batch_size: int
    show_progress: bool = True
    arrays: dict[str, Tensor] = field(default_factory=dict)
    surrogate: Surrogate | None = None
    members: tuple[Attributor, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    scorer: Any = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    reading: Mapping[str, Any] = field(default_factory=dict)
    needs_inputs: bool = False
    bank: FeatureBank | None = None

    @cached_property
    def used(self) -> Mask:
        """Whether each training sample took part in the fit, (train,)."""
        return self.task.known(self.labels)

    @cached_property
    def skipped(self) -> Ints:
        """The other samples, which could not be read or were removed; they score 0."""
        return np.flatnonzero(~self.used)

    @property
    def n_train(self) -> int:
        """The number of training samples."""
        return len(self.labels)

    @property
    def n_classes(self) -> int:
        """The number K of the model's classes, or of its outputs."""
        return self.task.n_outputs

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """One name per class, from the model's id2label, the data, or a folder's subfolders, or None."""
        return self.task.names

    @property
    def classes(self) -> Ints:
        """The classes (K,) as ``predict`` names them, 0 … K−1; their names are in ``class_names``."""
        self.task.require_classes("An explainer whose classes are asked for")
        return np.arange(self.n_classes)

    @property
    def layers(self) -> Layers | None:
        """The layers that features come from; None for the unchanged input of the last linear one."""
        return None if self.model is None else self.model.extractor.layers

    @cached_property
    def scoring(self) -> Ints:
        """Places of the training samples that can have a score, ascending."""
        if self.surrogate is not None:
            return self.surrogate.support
        if any(member.fitted_.surrogate is not None for member in self.members):
            places: Ints = np.unique(np.concatenate([member.fitted_.scoring for member in self.members]))
            return places
        return np.flatnonzero(self.used)

    @property
    def effect(self) -> EffectOf | None:
        """What effects are on; None where scores are parts of an output."""
        first = self.members[0].fitted_ if self.members else self
        return getattr(first.scorer, "effect", None)

    @property
    def fit_seconds(self) -> float:
        """How long ``fit`` took; 0 after ``load``."""
        return sum(self.seconds.values())

    @property
    def cache_bytes(self) -> int:
        """Size of what is kept for attributing, without the model and the training set."""
        if self.members:
            return sum(member.fitted_.cache_bytes for member in self.members)
        own = sum(tensor.nbytes for tensor in self.arrays.values())
        return own if self.surrogate is None else self.surrogate.nbytes

    @cached_property
    def classifier(self) -> Classifier:
        """The model's last layer as it was when fitted."""
        assert self.head is not None  # methods that need it check so at fit
        return Classifier(self.head, self.model, self.batch_size)

    @cached_property
    def used_labels(self) -> Tensor:
        """Labels (M, …) of the samples that took part, on the model's device."""
        return torch.as_tensor(
            self.labels[self.used], device=None if self.model is None else self.model.device
        )

    @cached_property
    def batches(self) -> Batches:
        """The samples that took part in the fit, to be read again."""
        data = self.require_data()
        rows = data if not len(self.skipped) else data.subset(np.flatnonzero(self.used))
        return Batches(rows, self.classifier.model, self.used_labels)

    @cached_property
    def novelty(self) -> Novelty | None:
        """What ``explain`` compares tests with unless asked otherwise; None where that would be costly."""
        from whence.attribution.typicality import default_novelty

        return default_novelty(self)

    @property
    def like(self) -> Tensor:
        """A tensor (…, d) of the kind that features of tests are to be."""
        return self.classifier.weight if self.surrogate is None else self.surrogate.stored.like

    def require_model(self) -> BoundModel:
        """Return the model, or raise NotFittedError where there is none."""
        if self.model is None:
            raise NotFittedError(
                f"This {self.method} has no model, so it cannot take inputs. Pass features=…, fit it with "
                "fit(model, data), or pass the model to whence.load."
            )
        return self.model

    def require_data(self) -> TrainingSet:
        """Return the training set, or raise NotFittedError where there is none."""
        if self.data is None:
            raise NotFittedError(
                f"This {self.method} has no training set, so it has no samples to show. "
                "Pass it to whence.load as 'data', or use fit(model, data)."
            )
        return self.data

    def require_surrogate(self) -> Surrogate:
        """Return the surrogate, or raise UnsupportedError where the method has none."""
        if self.surrogate is None:
            raise UnsupportedError(
                f"{self.method} has no surrogate of the model's last layer. Use DualDA or Effects."
            )
        return self.surrogate

    def check_features(self, features: Any, of: str = "") -> Tensor:
        """Return features (B, d) of tests as scores take them, or raise; ``of`` names their argument.

        Those of one test may be (d,), and those of a table go by the names of its columns.
        """
        names = None if self.bank is None else self.bank.feature_names
        rows = as_batch(features, Prepare(columns=names), torch.empty(1, self.like.shape[1]))
        return check_tests(rows, self.like, of)

    def as_batch(self, x: Any) -> Any:
        """Return inputs as a batch, one sample as a batch of one."""
        return (self.members[0].fitted_ if self.members else self).require_model().as_batch(x)

    def read(self, x: Any, target: Any) -> Tests:
        """Read inputs by one forward pass each; the target is the predicted output where it is None."""
        x = self.as_batch(x)
        wanted = None if target is None else self.task.check_target(target, check_batch(x))
        if self.members:
            return self._read_by_members(x, wanted)
        read = self.require_model().read(x, self.batch_size)
        features = self.check_features(read.features, "x")
        return Tests(features, self.task.choose_target(read.logits, wanted), read.logits, x)

    def _read_by_members(self, x: Any, wanted: Tensor | None) -> Tests:
        """Read inputs by each member's model; the target is the output that most members predict."""
        reads = tuple(member.fitted_.read(x, wanted) for member in self.members)
        targets = torch.stack([tests.targets for tests in reads]).mode(0).values
        members = tuple(replace(tests, targets=targets) for tests in reads)
        return Tests(targets.new_empty(len(targets), 0), targets, reads[0].logits, x, members)

    def take(self, features: Any, target: Any) -> Tests:
        """Take features (B, d) as tests, where the method needs no inputs."""
        if self.members:
            raise UnsupportedError(
                f"The members of {self.method} have features of their own. Pass inputs, or ask one of "
                "members_."
            )
        if self.needs_inputs:
            raise UnsupportedError(
                f"{self.method} with these parameters looks at inputs, not at features alone. Pass inputs."
            )
        tests = self.check_features(features)
        logits = self.classifier.logits if self.surrogate is None else self.surrogate.model_logits
        outputs = logits(tests)
        return Tests(tests, self.task.choose_target(outputs, target), outputs)

    def for_all(self, scores: Tensor) -> Tensor:
        """Return scores (B, N) of all samples by those (B, M) that took part; the others have 0."""
        if not len(self.skipped):
            return scores
        everyone = scores.new_zeros(len(scores), self.n_train)
        everyone[:, torch.as_tensor(np.flatnonzero(self.used), device=scores.device)] = scores
        return everyone

    def with_data(self, data: TrainingSet, relabelled: bool = False) -> Fitted:
        """Return the same with a training set, which a loaded explainer is without."""
        bound = self.require_model()
        bound.data = data
        return replace(self, data=data.changed(self.labels) if relabelled else data)
