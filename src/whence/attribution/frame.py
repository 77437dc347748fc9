"""The frame of a fit: features are read once, a method learns from them, and what it learned is kept."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict

import numpy as np
import torch
from torch import Tensor

from whence.attribution.classifier import Classifier, Training, check_tests, checked
from whence.attribution.parameters import Parametrised, check_fields, parameter
from whence.core.arrays import Array, Ints, Mask
from whence.core.checks import check_count, check_flag, check_names
from whence.core.display import brief, line, table
from whence.core.machine import BATCH_SIZE
from whence.data import OnError, TrainingSet
from whence.errors import InvalidInputError, NotFittedError
from whence.features import FeatureBank
from whence.model.bound import BoundModel
from whence.model.heads import Head
from whence.model.inputs import check_batch, check_device
from whence.model.layers import Asked
from whence.tasks import Task


class Learned:
    """What a fit leaves behind; ``Attributor`` says what each is."""

    device: str | torch.device | None = None
    layers: Asked | list[str] = "last"
    n_train_: int
    task_: Task
    labels_: Array
    used_: Mask
    skipped_: Ints
    head_: Head | None
    model_: BoundModel | None
    data_: TrainingSet | None
    cache_bytes_: int
    seconds_: dict[str, float]
    origins_: dict[str, str]
    fit_seconds_: float
    reading_: Reading


class Reading(TypedDict, total=False):
    """How features of the training set were made, so that they are found again: options of ``extract``."""

    cache_dir: str | PathLike[str] | None
    dtype: str
    autocast: str | None
    num_workers: int
    on_error: OnError


@dataclass(eq=False, kw_only=True, repr=False)
class Frame(Learned, Parametrised, ABC):
    """What every attribution method has: parameters, what a fit learned, and the fit itself.

    A method is a dataclass, whose fields are its hyper-parameters.
    """

    classes_only: ClassVar[bool] = True
    """Whether the method can do no other task than classes."""

    batch_size: int = parameter(BATCH_SIZE, check_count)
    show_progress: bool = parameter(True, check_flag)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = Frame.__repr__  # type: ignore[method-assign]  # a dataclass would write its own

    def __repr__(self) -> str:
        """Return the parameters that are not as usual and, once it is fitted, what the fit found."""
        own = line(type(self).__name__, self._changed_parameters())
        if not self.is_fitted:
            return own
        return f"{own} fitted: {', '.join(f'{name}={brief(value)}' for name, value in self._facts().items())}"

    def _repr_html_(self) -> str:
        if not self.is_fitted:
            return table(f"{type(self).__name__}, not fitted", self.get_params(deep=False))
        return table(type(self).__name__, {**self._facts(), "parameters": self._changed_parameters()})

    def _facts(self) -> dict[str, Any]:
        """Return what a fit found in a few words: the data, and how far to trust what was learned."""
        return {
            "samples": self.n_train_,
            **({} if self.head_ is None else {"features": self.head_.weight.shape[1]}),
            self.task_.outputs: self.n_classes_,
        }

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say of what only a fit gives that there was none yet."""
            if name.endswith("_") and not name.startswith("_"):
                self.check_fitted()
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")

    @abstractmethod
    def _learn(self, training: Training, **given: Any) -> Any:
        """Give what is kept for attributing, tensors by name; own attributes are set last, if all went well.

        ``given`` is what ``_check_given`` gave.
        """

    @abstractmethod
    def _scores(self, features: Tensor, classes: Tensor, x: Any) -> Tensor:
        """Scores (B, M) of tests with features (B, d) for classes (B,), for the M samples that took part.

        ``x`` are their inputs, or None where only the features were given.
        """

    @abstractmethod
    def _self_influence(self) -> Tensor:
        """Score of each of the M samples that took part, for its own label at itself."""

    @property
    def _of_features(self) -> bool:
        """Whether scores need no more than features, so that ``attribute_features`` has all it needs."""
        return False

    def _check_parameters(self) -> None:
        """Raise where a hyper-parameter is wrong, before any work is done."""
        check_fields(self)
        if self.device is not None:
            check_device(self.device)

    def _check_given(self, model: Any) -> dict[str, Any]:
        """Check what ``fit`` takes beside what it takes for all methods, keywords, before any work is done.

        Gives what ``_learn`` takes beside the training set. ``model`` is inside its wrappers, or None.
        """
        return {}

    def _check_bank(self, given: Any, told: Sequence[str]) -> FeatureBank:
        """Return the bank that was given in place of a model and data; ``told`` names what else was."""
        if told:
            raise InvalidInputError(
                f"'features' must be given instead of '{told[0]}', which made them. Got both; leave "
                f"one out, or give '{told[0]}' to whence.features.extract."
            )
        bank = checked(given)
        self._check_task(bank.task)
        if not self._of_features and bank.model is None:
            raise InvalidInputError(
                f"'features' must come with the model that made them: {type(self).__name__} with these "
                "parameters runs it on inputs. Pass a bank of whence.features.extract, or use "
                "fit(model, data)."
            )
        found = "last" if bank.layers is None else bank.layers.asked
        if bank.model is not None and found != self.layers:
            raise InvalidInputError(
                f"'features' must come from the layers of {type(self).__name__}, layers={self.layers!r}. Got "
                f"those of layers={found!r}. Extract them with layers={self.layers!r}, or fit a method that "
                f"has layers={found!r}."
            )
        return bank

    def _fit(self, training: Training, seconds: float, reading: Reading, given: dict[str, Any]) -> Self:
        """Learn from a training set, which took some ``seconds`` to read, and take over the result."""
        started, bank = time.perf_counter(), training.bank
        learned = self._learn(training, **given)
        bank.verify()  # what was read, now that all is read
        took = {"features": seconds, "solution": time.perf_counter() - started}
        self._adopt(training.task, bank.labels, bank.head, bank.model, bank.data, took)
        self.reading_ = reading
        self.origins_ = {"features": bank.note, "solution": "computed"}
        self._keep(learned)
        self._finish(training)
        return self

    def _task(self, bank: FeatureBank, names: Sequence[str] | None) -> Task:
        """Return what the outputs stand for."""
        K = bank.task.n_outputs
        known = bank.task.names if names is None else check_names("class_names", names, K)
        return bank.task.with_outputs(K, known).with_labels(bank.labels[bank.valid])

    def _check_task(self, task: Task) -> None:
        """Raise where the method cannot do the task of some labels."""
        if self.classes_only:
            task.require_classes(f"The model of {type(self).__name__}")

    def _adopt(
        self,
        task: Task,
        labels: Array,
        head: Head | None,
        model: BoundModel | None,
        data: TrainingSet | None,
        seconds: dict[str, float],
    ) -> None:
        """Take over what all methods know after a fit."""
        self.seconds_, self.origins_, self.fit_seconds_ = seconds, {}, sum(seconds.values())
        self.__dict__.setdefault("reading_", Reading())
        self.task_, self.labels_, self.head_, self.model_, self.data_ = task, labels, head, model, data
        self.used_ = task.known(labels)
        self.n_train_, self.skipped_ = len(labels), np.flatnonzero(~self.used_)
        self._classifier = None if head is None else Classifier(head, model, self.batch_size)
        device = None if model is None else model.device
        self._labels = torch.as_tensor(labels[self.used_], device=device)  # (M, …) of those that took part

    def _place(self, model: BoundModel | None) -> str | torch.device | None:
        """Return where scores are computed: on the device that was asked for, or on the model's."""
        return model.device if self.device is None and model is not None else self.device

    def _keep(self, learned: Any) -> None:
        """Take over what ``_learn`` gave."""
        self._cache: dict[str, Tensor] = learned
        self.cache_bytes_ = sum(tensor.nbytes for tensor in learned.values())

    def _finish(self, training: Training) -> None:
        """Measure what the fit shows, and warn of it."""

    def _read(self, x: Any, target: Any) -> tuple[Tensor, Tensor]:
        """Features (B, d) of inputs, and one class per test (B,) on the CPU, by default the model's own."""
        wanted = None if target is None else self.task_.check_target(target, check_batch(x))
        features, logits = self.require_model().read(x, self.batch_size)
        return self.check_features(features, "x"), self.task_.choose_target(logits, wanted)

    def _given(self, features: Any, target: Any) -> tuple[Tensor, Tensor]:
        """Features (B, d) as a tensor, and one class per test (B,), by default that of the last layer."""
        self.check_fitted()
        if not self._of_features:
            raise InvalidInputError(
                f"{type(self).__name__} with these parameters looks at inputs, not at features alone. Use "
                "attribute or top_k."
            )
        tests = self.check_features(features)
        return tests, self.task_.choose_target(self._logits(tests), target)

    def check_features(self, features: Any, of: str = "") -> Tensor:
        """Return features (B, d) of tests as scores take them, or raise; ``of`` names their argument."""
        self.check_fitted()
        return check_tests(features, self._like(), of)

    def _like(self) -> Tensor:
        """Return a tensor (…, d) of the kind that features are to be."""
        return self._head().weight

    def _logits(self, features: Tensor) -> Tensor:
        """Logits (B, K) of the model's last layer, where only features are known."""
        return self._head().logits(features)

    def _head(self) -> Classifier:
        """Return the model's last layer as it was when fitted."""
        assert self._classifier is not None  # or the fit had raised
        return self._classifier

    def _for_all(self, scores: Tensor) -> Tensor:
        """Return scores (B, N) of all samples by those (B, M) that took part; the others have 0."""
        if not len(self.skipped_):
            return scores
        everyone = scores.new_zeros(len(scores), self.n_train_)
        everyone[:, torch.as_tensor(np.flatnonzero(self.used_), device=scores.device)] = scores
        return everyone

    @property
    def n_classes_(self) -> int:
        """The number K of the model's classes, or of its outputs."""
        return self.task_.n_outputs

    @property
    def class_names_(self) -> tuple[str, ...] | None:
        """One name per class, from the model's id2label, the data, or a folder's subfolders, or None."""
        return self.task_.names

    @property
    def is_fitted(self) -> bool:
        """Whether ``fit`` was called, or the method loaded."""
        return "fit_seconds_" in self.__dict__

    def check_fitted(self) -> None:
        """Raise NotFittedError before ``fit``."""
        if not self.is_fitted:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet. Call fit first.")

    def require_model(self) -> BoundModel:
        """Return the model as it was when fitted, or raise NotFittedError where there is none."""
        if self.model_ is None:
            raise NotFittedError(
                f"This {type(self).__name__} has no model, so it cannot take inputs. Use the methods that "
                "take features, fit it with fit(model, data), or pass the model to whence.load."
            )
        return self.model_

    def require_data(self) -> TrainingSet:
        """Return the training set, or raise NotFittedError where there is none."""
        if self.data_ is None:
            raise NotFittedError(
                f"This {type(self).__name__} has no training set, so it has no samples to show. "
                "Pass it to whence.load as 'data', or use fit(model, data)."
            )
        return self.data_
