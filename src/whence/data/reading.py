"""Read samples in batches, here or in worker processes; one that cannot be read does not stop the others."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Literal, Self

import numpy as np
from torch.utils.data import DataLoader, Dataset, get_worker_info

from whence.core.arrays import Array, Ints
from whence.core.display import displayed
from whence.errors import InvalidInputError, SampleError, WhenceError, WorkerError

OnError = Literal["raise", "skip"]
Collate = Callable[[list[Any], list[int]], tuple[Any, Array]]
"""Makes the model's inputs and the labels (B, …) of samples and their places; of none, labels only."""

_AHEAD = 2  # batches that a process reads ahead
_DIED = "DataLoader worker (pid"  # how torch's error begins


@displayed()
@dataclass(frozen=True)
class Batch:
    """A batch of samples.

    Attributes
    ----------
    inputs : the model's; None where no sample could be read
    labels : (B, …) of the samples that could be read
    indices : (B,) their places in the training set
    skipped : places of those that could not
    """

    inputs: Any
    labels: Array
    indices: Ints
    skipped: tuple[int, ...] = ()


@dataclass(frozen=True)
class Workers:
    """Processes that read: how many, what each does first, and how they are started."""

    number: int = 0
    first: Callable[[int], None] | None = None
    context: Any = None


@dataclass(frozen=True)
class _Failure:
    """A sample that could not be read; an exception would stop the reading of all other samples."""

    message: str
    cause: BaseException | None = None


_Read = tuple[list[int], Any, list[tuple[int, _Failure]]]
"""Places of what could be read, the batch of it, and what could not."""


@dataclass(frozen=True)
class Reader(Dataset[_Read]):
    """Reads samples of a map-style dataset, whose errors are of type SampleError.

    For ``on_error="skip"`` it passes over samples that cannot be read; for None and "raise" it raises
    SampleError, which for "raise" names the other choice.
    """

    samples: Any
    collate: Collate
    workers: Workers
    on_error: OnError | None

    def batch(self, places: Sequence[int]) -> Batch:
        """Read one batch, here."""
        return self._checked(self[places])

    def batches(self, places: Sequence[Sequence[int]]) -> Iterator[Batch]:
        """Read several batches."""
        if not self.workers.number:
            yield from map(self.batch, places)
            return
        loader = DataLoader(
            self,
            batch_size=None,
            sampler=places,
            num_workers=self.workers.number,
            collate_fn=_unchanged,
            worker_init_fn=partial(_start, self.workers.first),
            multiprocessing_context=self.workers.context,
            prefetch_factor=_AHEAD,
        )
        reads, read_so_far, died = iter(loader), 0, ""
        with _Alarm() as alarm:
            try:
                while read_so_far < len(places):
                    try:
                        with alarm.heard():
                            read = next(reads)
                    except (RuntimeError, ConnectionError, EOFError) as error:
                        broke = not isinstance(error, RuntimeError) and not str(error).startswith("Caught ")
                        if not broke and not str(error).startswith(_DIED):
                            raise
                        # A process that dies while it hands over a batch only breaks the connection.
                        died = str(error).strip().rstrip(".") or type(error).__name__
                        break
                    read_so_far += 1
                    yield self._checked(read)
            finally:
                del reads  # ends the other processes, now
                alarm.drain()
        if died:
            ahead = places[read_so_far:][: _AHEAD * self.workers.number]
            raise WorkerError(
                f"A process that reads 'data' died while samples {ahead[0][0]} to {ahead[-1][-1]} were being "
                f"read: {died}. Give it more memory, pass a smaller num_workers, or read with num_workers=0, "
                "where the sample's own error shows."
            )

    def __getitem__(self, places: Sequence[int]) -> _Read:
        """Read samples, and make a batch of those that could be read."""
        here, indices, items, failures = get_worker_info() is None, [], [], []
        for place in places:
            try:
                items.append(self.samples[place])
                indices.append(place)
            except SampleError as error:
                # Not every exception can be sent from one process to another.
                failures.append((place, _Failure(error.reason, error.__cause__ if here else None)))
        try:
            return indices, self.collate(items, indices), failures
        except WhenceError as error:
            if here:
                raise
            # torch would wrap it in the traceback of the reading process
            return indices, _Failure(str(error)), failures

    def _checked(self, read: _Read) -> Batch:
        indices, batch, failures = read
        if failures and self.on_error != "skip":
            index, failure = failures[0]
            remedy = ', or pass on_error="skip" to leave such samples out' if self.on_error else ""
            raise SampleError(index, failure.message, f"Repair or remove it{remedy}.") from failure.cause
        if isinstance(batch, _Failure):
            raise InvalidInputError(batch.message)
        inputs, labels = batch
        return Batch(inputs, labels, np.array(indices, np.int64), tuple(index for index, _ in failures))


class _Alarm:
    """Hears of dead processes only while a batch is waited for.

    torch's handler of the signal raises in whatever the main thread runs, which may be the model, or the
    interpreter's own clean-up. Without it, torch finds dead processes every few seconds.
    """

    def __init__(self) -> None:
        on_main = threading.current_thread() is threading.main_thread()
        self._set = on_main and hasattr(signal, "SIGCHLD")
        self._waits, self._missed = False, False

    def __enter__(self) -> Self:
        if self._set:
            self._then = signal.signal(signal.SIGCHLD, self._hear)
        return self

    def __exit__(self, *error: object) -> None:
        if self._set and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, self._then)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Raise torch's error for processes that died before or die now."""
        self._waits = True
        try:
            if self._missed:
                self._hear(signal.SIGCHLD, None)
            yield
        finally:
            self._waits = self._missed = False

    def drain(self) -> None:
        """Let torch forget the dead, of whom it would speak when another process ends."""
        if self._set:
            self._hear(signal.SIGCHLD, None)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not callable(self._then):
            return
        try:
            self._then(number, frame)
        except RuntimeError as error:
            if self._waits or not str(error).startswith(_DIED):
                raise
            self._missed = True


def _unchanged(read: Any) -> Any:
    """Return what was read unchanged; torch would make tensors of it."""
    return read


def _start(first: Callable[[int], None] | None, worker: int) -> None:
    """Begin a reading process: it leaves Ctrl-C to the process that started it, which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _unless_alone
    if first is not None:
        first(worker)


def _unless_alone(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an error, unless it only says that the process this one reads for ended while it was asking."""
    if not issubclass(kind, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)
