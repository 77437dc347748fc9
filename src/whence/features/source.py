"""A training set read in fixed batches from any of them on, sample by sample where one cannot be read."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch.utils.data import DataLoader, Dataset, get_worker_info

from whence.core.fingerprint import Digest, anatomy, settled
from whence.data import Arrays, Loaded, as_training_set
from whence.data.samples import Rows, Stream
from whence.errors import InvalidInputError, SampleError, WhenceError

Ints = npt.NDArray[np.int64]

_SAMPLED = 64  # items of a lazy set whose contents enter its fingerprint


class Part(NamedTuple):
    """A batch: the model's inputs, labels (B,) and places (B,) of what could be read, and what could not."""

    inputs: Any
    labels: Ints
    indices: Ints
    skipped: list[int]


class Source(Protocol):
    """What extraction reads."""

    batch_size: int

    def __len__(self) -> int:
        """Give the number of samples."""

    def batches(self, start: int) -> Iterator[Part]:
        """Give batches from sample ``start``, a multiple of the batch size, to the last."""

    def read(self, index: int) -> Part:
        """Give one sample as a batch."""

    def prints(self) -> dict[str, str]:
        """Fingerprint the labels of all samples, and the contents of all or of a seeded choice."""


def open_source(data: Any, batch_size: int, num_workers: int, *, skip: bool) -> Source:
    """Read ``data`` as ``whence.data.as_training_set`` does; with ``skip``, pass over unreadable samples."""
    samples = as_training_set(data, batch_size)
    if isinstance(samples, Arrays):
        return _Arrays(samples.inputs, samples.labels, samples.batch_size)
    return _Loaded(samples, num_workers, skip)


class _Arrays:
    """Arrays (X, y), of which every sample can be read and hashed in place."""

    def __init__(self, inputs: Any, labels: Ints, batch_size: int) -> None:
        self.inputs, self.labels, self.batch_size = inputs, labels, batch_size

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, start: int) -> Iterator[Part]:
        for first in range(start, len(self), self.batch_size):
            yield self._part(first, min(first + self.batch_size, len(self)))

    def read(self, index: int) -> Part:
        return self._part(index, index + 1)

    def prints(self) -> dict[str, str]:
        return {**_labels_print(self.labels), **_items_print(len(self), len(self), [self.inputs])}

    def _part(self, first: int, last: int) -> Part:
        rows = slice(first, last)
        return Part(self.inputs[rows], self.labels[rows], np.arange(first, last), [])


class _Loaded:
    """A map-style dataset, read by a DataLoader that is given the indices of each batch."""

    def __init__(self, samples: Loaded, num_workers: int, skip: bool) -> None:
        loader = samples.loader
        assert loader.batch_size is not None
        self.samples, self.loader, self.skip = samples, loader, skip
        self.batch_size: int = loader.batch_size
        self.num_workers = num_workers or loader.num_workers

    def __len__(self) -> int:
        return len(self.loader.dataset)  # type: ignore[arg-type]

    def batches(self, start: int) -> Iterator[Part]:
        n = len(self)
        places = [range(a, min(a + self.batch_size, n)) for a in range(start, n, self.batch_size)]
        yield from self._read(places, self.num_workers)

    def read(self, index: int) -> Part:
        return next(self._read([range(index, index + 1)], 0))

    def prints(self) -> dict[str, str]:
        n = len(self)
        before = self._anatomy()
        # What the code makes of some samples is looked at too: code does not say all that it does.
        parts = self._some()
        code = settled(before, self._anatomy())
        arrays, known = self.samples.samples.arrays(), self.samples.samples.labels()
        if arrays is not None:
            inputs, labels = arrays
            return {**_labels_print(labels), **_items_print(n, n, [inputs, parts]), **code}
        if known is not None and all(np.array_equal(part.labels, known[part.indices]) for part in parts):
            return {**_labels_print(known), **_items_print(len(parts), n, parts), **code}
        # Only reading every sample tells its label; then its contents cost little more.
        labels = np.full(n, -1, dtype=np.int64)
        digest = Digest()
        for part in self.batches(0):
            labels[part.indices] = part.labels
            digest.add(part)
        return {**_labels_print(labels), "data items": f"all {digest.hexdigest()}", **code}

    def _anatomy(self) -> dict[str, str]:
        """Describe the data set and the functions that its samples go through."""
        lines: dict[str, str] = {}
        for name, function in vars(self.samples.prepare).items():
            if function is not None:
                lines |= anatomy(function, name)
        data = self.samples.samples.data
        data = data.data if isinstance(data, Stream) else data
        # Of arrays and lists every item is read anyway.
        return lines if isinstance(data, Rows | list | tuple) else lines | anatomy(data, "data")

    def _some(self) -> list[Part]:
        """Read the samples of a seeded choice."""
        n = len(self)
        chosen = np.random.default_rng(0).choice(n, min(n, _SAMPLED), replace=False)
        return [self.read(int(i)) for i in np.sort(chosen)]

    def _read(self, places: Sequence[range], num_workers: int) -> Iterator[Part]:
        loader = DataLoader(
            _Guarded(self.loader.dataset),
            batch_sampler=[list(indices) for indices in places],
            num_workers=num_workers,
            collate_fn=_Collate(self.loader.collate_fn),
            worker_init_fn=_Start(self.loader.worker_init_fn) if num_workers else None,
            multiprocessing_context=self.loader.multiprocessing_context if num_workers else None,
        )
        for indices, batch, failures in loader:
            if failures and not self.skip:
                index, message = failures[0]
                raise SampleError(
                    index, message, 'Repair or remove it, or pass on_error="skip" to leave such samples out.'
                )
            if isinstance(batch, _Failure):
                raise InvalidInputError(batch.message)
            skipped = [index for index, _ in failures]
            if batch is None:
                yield Part(None, np.empty(0, np.int64), np.empty(0, np.int64), skipped)
                continue
            inputs, labels = batch
            yield Part(inputs, labels, np.array(indices), skipped)


@dataclass(frozen=True)
class _Failure:
    """Stands for what could not be read; an exception would end the reading of all other samples."""

    message: str


class _Start:
    """What a reading process does first: leave Ctrl-C to the process that started it, which ends it."""

    def __init__(self, own: Callable[[int], None] | None) -> None:
        self.own = own

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.excepthook = _unless_alone
        if self.own is not None:
            self.own(worker)


def _unless_alone(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an error, unless it only says that the process this one reads for ended while it was asking."""
    if not issubclass(kind, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)


class _Guarded(Dataset[Any]):
    """A dataset that gives each sample with its index, or with what went wrong."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, index: int) -> tuple[int, Any]:
        try:
            return index, self.dataset[index]
        except SampleError as error:
            return index, _Failure(error.reason)


class _Collate:
    """The user's collate_fn on what could be read."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, items: list[tuple[int, Any]]) -> tuple[list[int], Any, list[tuple[int, str]]]:
        failures = [(index, item.message) for index, item in items if isinstance(item, _Failure)]
        good = [(index, item) for index, item in items if not isinstance(item, _Failure)]
        try:
            batch = self.collate([item for _, item in good]) if good else None
        except WhenceError as error:
            if get_worker_info() is None:
                raise
            batch = _Failure(str(error))  # torch would wrap it in the traceback of the reading process
        return [index for index, _ in good], batch, failures


def _labels_print(labels: Ints) -> dict[str, str]:
    digest = Digest()
    digest.add(np.ascontiguousarray(labels, np.int64))
    return {"number of samples": str(len(labels)), "data labels": f"int64 {digest.hexdigest()}"}


def _items_print(hashed: int, n: int, contents: Sequence[Any]) -> dict[str, str]:
    digest = Digest()
    for part in contents:
        digest.add(part)
    return {"data items": f"{'all' if hashed == n else 'some'} {digest.hexdigest()}"}
