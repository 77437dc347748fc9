"""What an attribution method learns from: a model's last layer, and the training set as it sees that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from whence.core.arrays import Ints
from whence.core.checks import check_dense, real_array, shown
from whence.data import TrainingSet
from whence.errors import InvalidInputError
from whence.features import FeatureBank, as_float32, taken
from whence.model.bound import BoundModel
from whence.model.heads import Head
from whence.model.inputs import to_model
from whence.svm.inputs import check_features, check_head
from whence.tasks import Task


class Classifier:
    """A trained classifier as it was when fitted: features, and a last linear layer W f(x) + b.

    ``bound`` is the model itself; None where only its features are known.

    Attributes
    ----------
    weight : (K, d) float32 on the model's device, W
    bias : (K,) float32 or None, b
    """

    def __init__(self, head: Head, bound: BoundModel | None, batch_size: int) -> None:
        self._bound, self.head, self.batch_size = bound, head, batch_size
        device = None if bound is None else bound.device
        self.weight = torch.as_tensor(head.weight, dtype=torch.float32, device=device)
        self.bias = (
            None if head.bias is None else torch.as_tensor(head.bias, dtype=torch.float32, device=device)
        )

    @property
    def bound(self) -> BoundModel:
        """The model, guarded against changes."""
        if self._bound is None:
            raise InvalidInputError(
                "'features' must come with the model that made them here, since it is run again. Pass a bank "
                "of whence.features.extract, or use fit(model, data)."
            )
        return self._bound

    @property
    def model(self) -> nn.Module:
        """The model itself, inside ``DataParallel`` and ``torch.compile``."""
        return self.bound.extractor.model

    @property
    def layer(self) -> str:
        """The name of the last layer."""
        return "head" if self._bound is None else self._bound.extractor.layer

    @property
    def n_parameters(self) -> int:
        """The number of the last layer's parameters: K·d, and K more where it has a bias."""
        return self.weight.numel() + (0 if self.bias is None else self.bias.numel())

    def with_bias(self, features: Tensor) -> Tensor:
        """Append a constant 1 to features (B, d) where the last layer has a bias."""
        return features if self.bias is None else functional.pad(features, (0, 1), value=1.0)

    def logits(self, features: Tensor) -> Tensor:
        """Logits (B, K) of features (B, d)."""
        product = features @ self.weight.T
        return product if self.bias is None else product + self.bias


@dataclass(frozen=True)
class Batches:
    """The samples that took part in the fit, read again as the model takes them.

    Attributes
    ----------
    data : these samples
    model : that takes them
    labels : (M, …) on the model's device
    """

    data: TrainingSet
    model: nn.Module
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        """Return inputs and labels (B, …), from the first sample to the last."""
        start = 0
        for batch in self.data.batches():
            stop = start + len(batch.labels)
            yield to_model(self.model, batch.inputs), self.labels[start:stop]
            start = stop

    def subset(self, rows: Ints) -> Batches:
        """Return some of the M samples, to be read again."""
        return replace(self, data=self.data.subset(rows), labels=self.labels[torch.from_numpy(rows)])

    def take(self, rows: Ints) -> Any:
        """Return the inputs of some of the M samples, as one batch."""
        return to_model(self.model, self.data.take(rows.tolist()))


class Training:
    """The training set next to a classifier, in the user's sample order.

    Attributes
    ----------
    bank : features (N, d) and labels (N, …) of all samples, and which were skipped
    task : what the labels and the model's outputs stand for
    batch_size, show_progress : inputs per forward pass, and whether progress bars are shown
    cache_dir : where a method may keep what it learned
    """

    def __init__(
        self,
        bank: FeatureBank,
        task: Task,
        batch_size: int,
        cache_dir: str | PathLike[str] | None = None,
        show_progress: bool = True,
    ) -> None:
        self.bank, self.task, self.cache_dir = bank, task, cache_dir
        self.batch_size, self.show_progress = batch_size, show_progress

    @cached_property
    def classifier(self) -> Classifier:
        """The model's last layer, or an error where it is not known."""
        if self.bank.head is None:
            raise InvalidInputError(
                "'features' must have the model's last layer. Got a bank without one: pass "
                "head=(weight, bias) to FeatureBank.of."
            )
        return Classifier(self.bank.head, self.bank.model, self.batch_size)

    @cached_property
    def features(self) -> Tensor:
        """Features (M, d) of the samples that were not skipped, float32 on the model's device."""
        rows = as_float32(taken(self.bank.features, self.bank.valid))
        # A large bank is a read-only map of a file, which torch would warn of; arrays are the user's own.
        if not rows.flags.writeable or self.bank.model is None:
            rows = np.array(rows, np.float32)
        return torch.as_tensor(rows, device=self.classifier.weight.device)

    @cached_property
    def labels(self) -> Tensor:
        """Labels (M, …) of the same samples, on the model's device."""
        labels = self.bank.labels[self.bank.valid]
        return torch.as_tensor(labels, device=self.classifier.weight.device)

    @cached_property
    def batches(self) -> Batches:
        """The same samples, to be read again; they do not hold on to the features."""
        model, data = self.classifier.model, self.bank.data
        assert data is not None  # a bank that has a model has its data
        if not self.bank.valid.all():
            data = data.subset(np.flatnonzero(self.bank.valid))
        return Batches(data, model, self.labels)


def checked(bank: Any) -> FeatureBank:
    """Return a bank that a method can learn from, or raise where there is something wrong with it."""
    if not isinstance(bank, FeatureBank):
        raise InvalidInputError(
            "'features' must be a FeatureBank, of whence.features.extract or FeatureBank.of(features, "
            f"labels). Got {shown(bank)}."
        )
    if bank.model is not None:
        bank.model.check_unchanged()
        return bank
    X = check_features(bank.features)
    task = bank.task
    K = task.n_outputs or None
    head = None
    if bank.head is not None:
        head = Head(*check_head(bank.head, X.shape[1], 1 if task.paired else K))
        task = task.for_head("head", X.shape[1], len(head.weight))
        K = task.n_outputs
    y, K = task.check_labels(bank.labels, len(X), K)
    head = head.paired() if head is not None and task.paired else head
    return replace(bank, features=X, labels=y, head=head, task=replace(task, n_outputs=K))


def check_tests(features: Any, like: Tensor, of: str = "") -> Tensor:
    """Return features (B, d) of tests as a finite tensor of the kind of ``like`` (…, d), or raise.

    ``of`` names the argument that they are the features of, where they are no argument themselves.
    """
    if isinstance(features, Tensor):
        check_dense("features", features)
    if not isinstance(features, Tensor) or features.is_complex():
        array = real_array("features", features)
        precise = np.float32 if array.dtype == np.float32 else np.float64
        features = torch.from_numpy(np.array(array, precise, order="C"))  # read-only arrays are welcome
    tests: Tensor = features.detach().to(like)
    d = like.shape[1]
    if tests.ndim != 2 or tests.shape[1] != d or len(tests) == 0:
        raise InvalidInputError(
            f"'features' must have shape (tests, {d}), as in fitting. Got {tuple(tests.shape)}."
        )
    finite = tests.isfinite()
    if not finite.all():
        row, column = (~finite).nonzero()[0].tolist()
        what = f"The features of '{of}'" if of else "'features'"
        raise InvalidInputError(
            f"{what} must be finite. Got {tests[row, column].item()} at row {row}, column {column}."
        )
    lengths = torch.linalg.vector_norm(tests, dim=1).square()
    if not lengths.isfinite().all():
        row = int((~lengths.isfinite()).int().argmax())
        raise InvalidInputError(
            f"The features must be small enough for products in {tests.dtype}. Those of test {row} are "
            f"up to {float(tests[row].abs().max()):.3g}. Scale the inputs."
        )
    return tests
