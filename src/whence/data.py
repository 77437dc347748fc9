"""A training set, in whatever form it comes, as batches in the user's own sample order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

from whence.errors import InvalidInputError


@dataclass(frozen=True)
class Batch:
    """Some samples: the model's inputs, their labels (B,), and their places (B,) in the training set."""

    inputs: Any
    labels: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]


class TrainingSet(Protocol):
    """What the rest of whence reads: a length, and batches in sample order. New sources implement this."""

    def __len__(self) -> int:
        """Give the number of samples."""

    def __iter__(self) -> Iterator[Batch]:
        """Give batches from the first sample to the last."""


def as_training_set(data: Any, batch_size: int = 256) -> TrainingSet:
    """Read ``data`` as a training set whose sample i is always the user's sample i.

    Parameters
    ----------
    data
        A map-style ``Dataset`` (or list) of ``(input, label)`` samples, a ``DataLoader`` over one, or a
        tuple ``(X, y)`` of arrays or tensors. A ``DataLoader`` is read through its dataset in order, with
        its own batch size and ``collate_fn``; shuffling and ``drop_last`` are left out, so that index i
        means ``loader.dataset[i]`` and every sample counts.
    batch_size
        Samples a batch; a ``DataLoader`` keeps its own.
    """
    if isinstance(data, DataLoader):
        return _Loaded(_in_order(data))
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], torch.Tensor | np.ndarray):
        return _Arrays(*data, batch_size)
    if isinstance(data, IterableDataset) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise InvalidInputError(
            "'data' must be a map-style Dataset, a DataLoader over one, or a tuple (X, y) of arrays. "
            f"Got {type(data).__name__}. Collect the samples in a list of (input, label) pairs first."
        )
    _check_not_empty(data)
    return _Loaded(DataLoader(data, batch_size=batch_size))


class _Arrays:
    """Arrays (X, y), read by slices; memory maps stay on disk."""

    def __init__(self, inputs: Any, labels: Any, batch_size: int) -> None:
        _check_not_empty(inputs)
        self.inputs = inputs
        self.labels = _check_labels(labels, len(self.inputs))
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self), self.batch_size):
            rows = slice(start, start + self.batch_size)
            labels = self.labels[rows]
            yield Batch(self.inputs[rows], labels, np.arange(start, start + len(labels)))


class _Loaded:
    """A DataLoader that is known to read its map-style dataset in order."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader.dataset)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        start = 0
        for batch in self.loader:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise InvalidInputError(
                    "'data' must give (input, label) pairs. "
                    f"Got a batch of type {type(batch).__name__}"
                    + (f" with {len(batch)} parts." if isinstance(batch, tuple | list) else ".")
                    + " Wrap the dataset so that each sample is a pair."
                )
            inputs, labels = batch
            checked = _check_labels(labels, len(labels))
            yield Batch(inputs, checked, np.arange(start, start + len(checked)))
            start += len(checked)


def _in_order(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Read the same samples as ``loader`` in the dataset's order, or an error where that has no meaning."""
    dataset: Dataset[Any] = loader.dataset
    if isinstance(dataset, IterableDataset):
        raise InvalidInputError(
            "'data' is a DataLoader over an IterableDataset, whose samples have no fixed place. "
            "Collect the samples in a list of (input, label) pairs first."
        )
    _check_not_empty(dataset)
    sampler = loader.sampler
    whole = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == len(dataset)  # type: ignore[arg-type]
    )
    # Other samplers leave samples out or repeat them, and those left out must not be attributed.
    if loader.batch_size is None or not whole:
        cause = type(loader.batch_sampler if loader.batch_size is None else sampler).__name__
        raise InvalidInputError(
            f"'data' is a DataLoader with its own sampler ({cause}), so the order of its samples is unknown. "
            "Pass the dataset itself, or torch.utils.data.Subset(dataset, indices)."
        )
    return DataLoader(
        dataset,
        batch_size=loader.batch_size,
        shuffle=False,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
    )


def _check_labels(labels: Any, n: int) -> npt.NDArray[np.int64]:
    """Return a batch's labels as int64, or raise; the solver checks their range."""
    array = labels.numpy(force=True) if isinstance(labels, torch.Tensor) else np.asarray(labels)
    if array.shape != (n,):
        raise InvalidInputError(
            f"'data' must give one label a sample, shape ({n},). Got labels of shape {array.shape}."
        )
    if array.dtype.kind not in "iu":
        raise InvalidInputError(
            f"'data' must give integer labels in [0, n_classes). Got dtype {array.dtype}. "
            "Map class names to 0 … K−1 first."
        )
    return array.astype(np.int64)


def _check_not_empty(samples: Any) -> None:
    if len(samples) == 0:
        raise InvalidInputError("'data' must have at least one sample. Got an empty set.")
