"""The features of a training set, with what made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from whence.core.arrays import Array, Ints, Mask
from whence.core.cache import Parts
from whence.core.checks import check_names, to_array
from whence.core.display import displayed
from whence.data import TrainingSet
from whence.data.tables import column_names, is_numeric, is_table, table_inputs
from whence.errors import InvalidInputError, StoreError
from whence.features.rows import Rows, hashed
from whence.model.bound import BoundModel
from whence.model.extractor import Extractor
from whence.model.heads import Head
from whence.model.layers import Layers
from whence.tasks import Task, as_task, find_task


@displayed("features", "labels", "skipped", "note")
@dataclass(frozen=True)
class FeatureBank:
    """The features of a training set: row i is the user's sample i, always.

    ``extract`` makes it of a model and its training set, ``FeatureBank.of`` of arrays. Either is what
    ``fit(features=…)`` of an attribution method takes, so that several methods share one extraction.

    Attributes
    ----------
    features : (N, d) float32 or float16, inputs of the model's last linear layer, or of several (``layers``);
        in memory, or a read-only memory map where they would fill more than half of it. A sample that was
        skipped has a row of zeros, which has no part in anything
    labels : (N, …), of classes int64; what ``task`` has for blank where a sample was skipped
    head : the model's last linear layer, where it is known
    task : what the labels are
    model, data : the model that made the features, as it was then, and the training set; None for arrays
    parts : the fingerprint of everything the features depend on, empty without a cache
    checksum : of the features and labels themselves, empty without a cache
    note : where the features come from, in words: computed, and why; resumed; reused; given
    feature_names : of features that are given, for display; None where they have none
    """

    features: Rows
    labels: Array
    head: Head | None
    task: Task
    model: BoundModel | None
    data: TrainingSet | None
    parts: Parts
    checksum: str
    note: str
    feature_names: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        features: Any,
        labels: Any,
        *,
        head: tuple[Any, Any] | None = None,
        task: str | type[Task] | Task | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> Self:
        """Make a bank of features (N, d) and labels (N, …), arrays or tensors; ``fit`` checks them.

        Parameters
        ----------
        features, labels
            One row and one label per training sample, an integer where it is a class.
        head
            The model's last layer, weight (K, d) and bias (K,) or None. With it ``target=None`` is the
            model's class; without it DualDA takes its surrogate's, and other methods cannot be fitted.
        task
            What the labels are, see ``whence.tasks``; None finds it by the labels. ``Classes(n)`` says how
            many classes there are where some have no sample.
        feature_names
            One name per feature, for display; None takes the columns of a table of pandas.

        Examples
        --------
        >>> import numpy as np, whence
        >>> bank = whence.features.FeatureBank.of(np.eye(3), np.arange(3))
        >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(features=bank)
        >>> explainer.attribute(features=np.eye(3)).shape
        torch.Size([3, 3])
        """
        last: Any = head if head is None or not isinstance(head, tuple | list) else tuple(head)
        names = column_names(features) if is_numeric(features) else None
        X = to_array("features", table_inputs(features) if is_table(features) else features)
        if feature_names is not None:
            names = check_names("feature_names", feature_names, X.shape[1] if X.ndim == 2 else None)
        y = to_array("labels", labels)
        return cls(X, y, last, as_task(task) or find_task(y), None, None, {}, "", "given", names)

    @property
    def extractor(self) -> Extractor:
        """What made the features; it also gives those of new inputs."""
        if self.model is None:
            raise InvalidInputError(
                "The bank was made of arrays and has no model. Use whence.features.extract instead."
            )
        return self.model.extractor

    @property
    def layers(self) -> Layers | None:
        """The layers that the features come from; None where that is the head alone, or not known."""
        return None if self.model is None else self.model.extractor.layers

    def verify(self) -> None:
        """Raise StoreError where mapped features are not those that were written; others cannot change."""
        if not self.checksum or not isinstance(self.features, np.memmap):
            return
        file: Any = self.features.base
        cut = file.size() < self.features.offset + self.features.nbytes  # to read behind its end is fatal
        if cut or self.checksum != checksum(hashed(self.features), hashed(self.labels)):
            raise StoreError(
                "The features in the cache were altered on disk while they were in use. Nothing that was "
                "made of them is kept; run again, and they are computed again."
            )

    @property
    def valid(self) -> Mask:
        """Whether each sample (N,) could be read."""
        return self.task.known(self.labels)

    @property
    def skipped(self) -> Ints:
        """The samples that could not be read."""
        return np.flatnonzero(~self.valid)


def checksum(features: str, labels: str) -> str:
    """Join the digests of features and labels to one word."""
    return features + labels
