"""Views of a data set with other labels, marks on its inputs, or fewer samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from torch.utils.data import DataLoader, Dataset

from whence.core.arrays import Ints, Mask
from whence.core.checks import check_flag, check_places, to_array
from whence.core.display import displayed
from whence.data import TrainingSet
from whence.data.training_set import Mark
from whence.errors import InvalidInputError, SampleError
from whence.tasks import Classes


@displayed("__len__", "n_classes", "history")
@dataclass(frozen=True, eq=False)
class View(Dataset[Any]):
    """A data set with other labels, shortcuts or fewer samples; the data stay unchanged.

    Samples are read on demand. Views of views combine.

    Attributes
    ----------
    samples : the data set, with its labels, and marks for shortcuts
    labels : (n,) int64, the labels that the model sees
    true_labels : (n,) int64, the labels before any perturbation
    flipped_mask : (n,) True where the label was made wrong
    history : the perturbations in words, in order
    """

    samples: TrainingSet
    labels: Ints
    true_labels: Ints
    flipped_mask: Mask
    history: tuple[str, ...] = ()

    @property
    def indices(self) -> Ints:
        """Index (n,) of each sample in the data."""
        return np.arange(len(self)) if self.samples.places is None else self.samples.places

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes of ``labels``, or None."""
        return self.samples.class_names

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, under the name that torchvision's data sets use."""
        return self.class_names

    @property
    def poisoned_mask(self) -> Mask:
        """Mask (n,), True where a shortcut was put on the input."""
        marks = [mark.where for mark in self.samples.marks]
        return np.any(marks, axis=0) if marks else np.zeros(len(self), dtype=bool)

    @property
    def flipped(self) -> Ints:
        """Indices in this view of the samples whose label was made wrong."""
        return np.flatnonzero(self.flipped_mask)

    @property
    def poisoned(self) -> Ints:
        """Indices in this view of the samples with a shortcut."""
        return np.flatnonzero(self.poisoned_mask)

    @property
    def n_classes(self) -> int:
        """The number of classes: the number of names, or one more than the largest label."""
        return int(self.labels.max()) + 1 if self.class_names is None else len(self.class_names)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        """Read a sample, with its shortcuts and its label in this view."""
        return self.samples[index]

    def relabelled(
        self,
        labels: Ints,
        note: str,
        flipped: Mask | bool = False,
        class_names: tuple[str, ...] | None = None,
    ) -> Self:
        """Return the view with other labels (n,), some of them wrong; ``note`` enters the history."""
        return replace(
            self,
            samples=self.samples.relabelled(labels, class_names or self.class_names),
            labels=labels,
            flipped_mask=self.flipped_mask | flipped,
            history=(*self.history, note),
        )

    def marked(self, mark: Mark, *notes: str) -> Self:
        """Return the view with a shortcut on some samples; ``notes`` enter the history."""
        return replace(self, samples=self.samples.marked(mark), history=(*self.history, *notes))


def view(data: Any, show_progress: bool = True, class_names: tuple[str, ...] | None = None) -> View:
    """Return a view of data without changes.

    Parameters
    ----------
    data
        A map-style ``Dataset``, a list of samples, a ``datasets.Dataset``, a tuple ``(X, y)``, the path of a
        folder with a subfolder of images per class, or a view. If the data set does not have its labels as an
        array, every sample is read once.
    show_progress
        Show a progress bar while labels are read.
    class_names
        Names of the classes; None takes those of the data.
    """
    show_progress = check_flag("show_progress", show_progress)
    if isinstance(data, View):
        return data
    samples = None if isinstance(data, DataLoader) else TrainingSet.of(data, task=Classes())
    if samples is None or samples.is_stream:
        raise InvalidInputError(
            "'data' must be read by index: a map-style Dataset, a list, or a tuple (X, y). "
            f"Got {type(data).__name__}. Pass the dataset of a DataLoader; collect a stream in a list."
        )
    labels = samples.every_label(show_progress)
    if labels.min() < 0:
        i = int(labels.argmin())
        raise SampleError(
            i, f"its label must not be negative; it is {labels[i]}", "Map the labels to 0 … K−1."
        )
    never = np.zeros(len(labels), dtype=bool)
    samples = samples.relabelled(labels, class_names or samples.class_names)
    return View(samples, labels, labels, never)


def subset(data: Any, indices: Any) -> View:
    """Return a view of some of the samples, in the order of ``indices``.

    Parameters
    ----------
    data
        As for ``view``.
    indices
        Indices of samples, or a mask (n,).
    """
    base = view(data)
    given = to_array("indices", indices)
    if given.dtype == np.bool_ and given.shape == (len(base),):
        given = np.flatnonzero(given)
    if given.ndim != 1 or given.dtype.kind not in "iu" or len(given) == 0:
        raise InvalidInputError(
            f"'indices' must be indices of samples or a mask ({len(base)},), and not empty. "
            f"Got {given.dtype} of shape {given.shape}."
        )
    rows = check_places("indices", given, len(base))
    return View(
        base.samples.subset(rows),
        base.labels[rows],
        base.true_labels[rows],
        base.flipped_mask[rows],
        (*base.history, f"subset of {len(rows)}"),
    )
