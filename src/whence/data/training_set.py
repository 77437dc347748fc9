"""Every form of training set as one: batches of inputs and classes, in the user's own sample order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from whence.core.checks import check_callable, check_count, check_names, check_places
from whence.data.folder import ImageFolder
from whence.data.items import Prepare, is_array, same
from whence.data.labels import Ints, Labels, data_names
from whence.data.samples import Rows, Samples, Stream
from whence.errors import DataWarning, InvalidInputError

MOST = 2**31 - 1  # samples a batch
_CHECKED = 8  # samples that are read twice, enough to catch a coin toss 255 times in 256


@dataclass(frozen=True)
class Batch:
    """Some samples: the model's inputs, their labels (B,), and their places (B,) in the training set."""

    inputs: Any
    labels: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Arrays:
    """Arrays (X, y), read by slices; memory maps stay on disk."""

    inputs: Any
    labels: Ints
    batch_size: int
    class_names: tuple[str, ...] | None
    prepare: Prepare

    def __len__(self) -> int:
        """Give the number of samples."""
        return len(self.labels)

    def take(self, indices: Sequence[int]) -> Any:
        """Give the model's inputs of some samples, as one batch."""
        return self.read(indices).inputs

    def read(self, indices: Sequence[int]) -> Batch:
        """Give some samples, as one batch."""
        places = _some_places(indices, len(self))
        return Batch(self.inputs[places], self.labels[places], places)

    def known_labels(self) -> Ints | None:
        """Give the classes of all samples without reading them; None where that cannot be done."""
        return self.labels

    def __iter__(self) -> Iterator[Batch]:
        """Give batches from the first sample to the last."""
        for start in range(0, len(self), self.batch_size):
            labels = self.labels[start : start + self.batch_size]
            rows = slice(start, start + len(labels))
            yield Batch(self.inputs[rows], labels, np.arange(start, start + len(labels)))


@dataclass(frozen=True)
class Loaded:
    """Samples that are read one by one.

    Attributes
    ----------
    samples : each with its index
    loader : reads them in order; its ``collate_fn`` makes inputs and classes (B,) of them
    class_names : one a class, for display; None where nobody names them
    prepare : what makes model inputs of new inputs
    """

    samples: Samples
    loader: DataLoader[Any]
    class_names: tuple[str, ...] | None
    prepare: Prepare

    def __len__(self) -> int:
        """Give the number of samples."""
        return len(self.samples)

    def take(self, indices: Sequence[int]) -> Any:
        """Give the model's inputs of some samples, as one batch."""
        return self.read(indices).inputs

    def read(self, indices: Sequence[int]) -> Batch:
        """Give some samples, as one batch."""
        assert self.loader.collate_fn is not None
        places = _some_places(indices, len(self))
        inputs, labels = self.loader.collate_fn([self.samples[index] for index in places.tolist()])
        return Batch(inputs, labels, places)

    def known_labels(self) -> Ints | None:
        """Give the classes of all samples as the set lists them, if it does; it may list others."""
        return self.samples.labels()

    def __iter__(self) -> Iterator[Batch]:
        """Give batches from the first sample to the last."""
        start = 0
        for inputs, labels in self.loader:
            yield Batch(inputs, labels, np.arange(start, start + len(labels)))
            start += len(labels)


TrainingSet = Arrays | Loaded


def _some_places(indices: Sequence[int], n: int) -> Ints:
    places = check_places("indices", indices, n)
    if not len(places):
        raise InvalidInputError("'indices' must name at least one sample. Got none.")
    return places


def as_training_set(
    data: Any,
    batch_size: int = 256,
    *,
    names: Sequence[str] | None = None,
    preprocess: Callable[[Any], Any] | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> TrainingSet:
    """Read ``data`` as a training set whose sample i is always the user's sample i.

    Parameters
    ----------
    data
        - a map-style ``Dataset``, a list, or a ``datasets.Dataset``;
        - an ``IterableDataset`` or another iterable that can be read again, whose samples count in its order;
        - a ``DataLoader`` over one of these, with its batch size and ``collate_fn``. Shuffling and
          ``drop_last`` are left out, so that index i means ``loader.dataset[i]`` and every sample counts;
        - a tuple ``(X, y)``, X an array, tensor or memory map, a mapping of these, or a list;
        - the path of a folder with a subfolder of images a class.

        Samples are pairs (input, label), or mappings or dataclasses with a label, which is one of 0 … K−1 or
        a class's name.
    batch_size
        Samples a batch; a ``DataLoader`` keeps its own.
    names
        The model's names of the classes, in order.
    preprocess
        Makes the model's inputs of a batch of inputs: a tokeniser, an image processor, or any function.
    collate_fn
        Makes a batch of a list of samples, as in a ``DataLoader``.

    Warns
    -----
    DataWarning
        When the same sample is not the same twice, or model and data name the classes differently.
    """
    if isinstance(data, Arrays | Loaded):
        if preprocess is not None or collate_fn is not None:
            raise InvalidInputError(
                "'preprocess' and 'collate_fn' must be given where the samples are first read. "
                f"Got them beside {type(data).__name__}, which has its own. Pass them to as_training_set."
            )
        return data
    batch_size = check_count("batch_size", batch_size, 1, MOST)
    if names is not None:
        names = check_names("names", names)
    for name, function in {"preprocess": preprocess, "collate_fn": collate_fn}.items():
        if function is not None:
            check_callable(name, function, "None or a function of a batch")
    workers: dict[str, Any] = {}
    if isinstance(data, DataLoader):
        _check_order(data)
        if collate_fn is None and data.collate_fn is not default_collate:
            collate_fn = data.collate_fn
        workers = {
            "num_workers": data.num_workers,
            "worker_init_fn": data.worker_init_fn,
            "multiprocessing_context": data.multiprocessing_context,
        }
        assert data.batch_size is not None
        data, batch_size = data.dataset, data.batch_size
    if isinstance(data, str | Path):
        data = ImageFolder(Path(data))
    prepare = Prepare(collate_fn, preprocess)
    labels = Labels.of(names, data_names(data))
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        data = data.tensors
    if (
        isinstance(data, tuple)
        and len(data) == 2
        and isinstance(data[0], Tensor | np.ndarray | Mapping | list)
    ):
        data = Rows(*data)
        if is_array(data.inputs) and prepare == Prepare():
            _check_not_empty(data)
            return Arrays(data.inputs, labels.encode(data.labels), batch_size, labels.names, prepare)
    dataset = Samples(data, labels)
    _check_not_empty(dataset)
    collate = Collate(prepare, labels)
    _warn_if_random(dataset, collate)
    loader = DataLoader(dataset, batch_size=batch_size, collate_fn=collate, **workers)
    return Loaded(dataset, loader, labels.names, prepare)


@dataclass(frozen=True)
class Collate:
    """Makes inputs and classes (B,) of samples and their indices."""

    prepare: Prepare
    labels: Labels

    def __call__(self, samples: list[tuple[int, Any]]) -> tuple[Any, Ints]:
        """Put the samples together."""
        indices, items = [index for index, _ in samples], [item for _, item in samples]
        inputs, labels = self.prepare.labelled(items)
        if len(labels) != len(items):
            raise InvalidInputError(
                f"'collate_fn' must keep one label a sample. Got {len(labels)} for {len(items)} samples."
            )
        return inputs, self.labels.encode(labels, indices)


def _check_order(loader: DataLoader[Any]) -> None:
    """Raise where a loader's samples are not those of its dataset, once each."""
    if loader.batch_size is not None and isinstance(loader.dataset, IterableDataset):
        return
    sampler = loader.sampler
    whole = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler)
        and not sampler.replacement
        and sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    )
    # Other samplers leave samples out or repeat them, and those left out must not be attributed.
    if loader.batch_size is None or not whole:
        cause = type(loader.batch_sampler if loader.batch_size is None else sampler).__name__
        raise InvalidInputError(
            f"'data' is a DataLoader with its own sampler ({cause}), so the order of its samples is unknown. "
            "Pass the dataset itself, or torch.utils.data.Subset(dataset, indices)."
        )


def _check_not_empty(samples: Any) -> None:
    if len(samples) == 0:
        raise InvalidInputError("'data' must have at least one sample. Got an empty set.")


def _warn_if_random(samples: Samples, collate: Collate) -> None:
    """Read a few samples twice and warn if they differ."""
    n = len(samples)
    # A stream is read from its start: its last sample would cost a whole pass.
    spread = range(min(n, _CHECKED)) if isinstance(samples.data, Stream) else np.linspace(0, n - 1, _CHECKED)
    indices = sorted({int(i) for i in spread})

    def read(index: int) -> Any:
        try:
            return collate([samples[index]])[0]
        except Exception:  # whoever reads the sample in earnest reports it
            return None

    first, second = ([read(i) for i in indices] for _ in range(2))
    pairs = zip(indices, first, second, strict=True)
    differ = [i for i, a, b in pairs if a is not None and b is not None and not same(a, b)]
    if differ:
        warnings.warn(
            f"'data' gives different inputs for the same sample, such as {differ[0]}: random augmentation? "
            "Features then change from run to run. Pass the set with the transform that is used for testing.",
            DataWarning,
            stacklevel=3,
        )
