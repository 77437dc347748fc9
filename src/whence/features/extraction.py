"""Run a model's extractor over a training set, into memory or into a bank that can be resumed and reused."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm

from whence.core import fingerprint, store
from whence.core.cache import Cache, Parts, Say, Slot
from whence.core.checks import check_choice, check_count, check_flag, to_array
from whence.core.processor import REMEDY, bfloat16_works
from whence.core.resources import free_disk, free_memory, in_words
from whence.core.words import plain_line
from whence.data import as_training_set
from whence.errors import InvalidInputError, StoreError
from whence.features.bank import (
    SKIPPED,
    Folder,
    Growing,
    InFile,
    InMemory,
    Ints,
    Mask,
    Rows,
    blocks,
    full_disk,
    widened,
)
from whence.features.feature_bank import FeatureBank, checksum
from whence.features.forward import Forward
from whence.features.source import Part, Source, open_source
from whence.model.bound import BoundModel
from whence.model.extractor import Extractor, check_model, find_head
from whence.model.inputs import check_device

CHECKPOINT_SECONDS = 1.0
_AGAIN = 4  # random rows that are computed anew before a bank is reused, beside the first
DTYPES = ("float32", "float16")
AUTOCASTS = (None, "bfloat16", "float16")

OnError = Literal["raise", "skip"]


def extract(
    model: nn.Module,
    data: Any,
    *,
    layer: str | None = None,
    batch_size: int = 256,
    cache_dir: str | os.PathLike[str] | None = None,
    dtype: str = "float32",
    device: str | torch.device | None = None,
    autocast: str | None = None,
    num_workers: int = 0,
    on_error: OnError = "raise",
    show_progress: bool = True,
) -> FeatureBank:
    """Collect the features and labels of every training sample.

    With a ``cache_dir`` the rows go to a file there as they come, a run that was killed resumes where it
    was, and a later run with the same model, data and options takes the file as it is. Without one they are
    kept in memory, or in a temporary file when they would fill more than half of the free memory.

    Parameters
    ----------
    model
        A torch classifier whose last layer is linear.
    data
        Anything ``whence.data.as_training_set`` reads.
    layer
        The last linear layer's name, when the model does something after it.
    batch_size
        Samples a forward pass.
    cache_dir
        Folder for banks, made if it is missing; see ``whence cache ls``.
    dtype
        "float32", or "float16" for half the disk and three digits.
    device
        Where the model runs, which is moved there and back; None leaves it where it is.
    autocast
        "bfloat16" or "float16": run the forward passes in mixed precision.
    num_workers
        Processes that read samples.
    on_error
        What to do with a sample that cannot be read: "raise", or "skip" it, which masks its row.
    show_progress
        Show what is needed, a progress bar, and what the cache does.
    """
    _check_options(dtype, autocast, num_workers, on_error)
    batch_size = check_count("batch_size", batch_size)
    check_flag("show_progress", show_progress)
    check_model(model, layer)
    if device is not None:
        device = check_device(device)
    if autocast == "bfloat16":
        _check_bfloat16(model, device)
    samples = as_training_set(data, batch_size)
    with nullcontext() if device is None else _placed(model, device):
        source = open_source(samples, batch_size, num_workers, skip=on_error == "skip")
        first = next((part for part in source.batches(0) if len(part.indices)), None)
        if first is None:
            raise InvalidInputError("'data' must have a sample that can be read. None of them can.")
        # A head that was found has the output's values; one that was named may only rank the classes.
        extractor = Extractor(model, find_head(model, first.inputs, layer), True if layer is None else None)
        forward = Forward(extractor, np.dtype(dtype), autocast)
        before = fingerprint.structure(extractor.model)
        forward.probe(first)
        after = fingerprint.structure(extractor.model)
        made_of = fingerprint.settled(before, after)
        extractor.notes = frozenset(before.keys() | after.keys()) - made_of.keys()
        job = _Job(source, forward, forward.dimension, made_of, show_progress, teller(show_progress))
        found = job.uncached() if cache_dir is None else job.cached(Cache(cache_dir))
    head = extractor.head()
    bound = BoundModel(extractor, prepare=samples.prepare)
    return FeatureBank(found.features, found.labels, head, len(head.weight), bound, samples, *found[2:])


def teller(show: bool) -> Say:
    """Give a function that prints a line beside the progress bars, or one that does nothing."""

    def say(line: str) -> None:
        if show:
            tqdm.write(plain_line(line), file=sys.stderr)

    return say


def as_float32(features: Rows) -> Rows:
    """Widen float16 rows, which the solver does not read; other rows come back as they are."""
    rows: Any = features
    if not isinstance(rows, np.ndarray):  # of which a memory map stays one
        features = to_array("features", features)
    if features.dtype != np.float16:
        return features
    if features.ndim != 2:
        raise InvalidInputError(f"'features' must have shape (n, d). Got {features.shape}.")
    n, dimension = features.shape
    with _room_for(n, dimension, np.dtype(np.float32)) as room:
        return widened(features, room)


def taken(features: Rows, mask: Mask) -> Rows:
    """Give the rows where a mask (N,) is True: without a copy where that is all of them."""
    if mask.all():
        return features
    n, dimension = int(mask.sum()), features.shape[1]
    with _room_for(n, dimension, features.dtype) as rows:
        for block, some in zip(blocks(features), blocks(mask, features), strict=True):
            rows.append(block[some])
        return rows.whole()


class _Sink(Protocol):
    """Where the rows go."""

    def append(self, features: Rows, labels: Ints) -> None:
        """Add the rows of the next samples."""

    def checkpoint(self) -> None:
        """Make what was added survive."""


class _Loose:
    """Rows that end with the process."""

    def __init__(self, features: Growing, n: int) -> None:
        self.features = features
        self.labels = InMemory(n, (), np.int64)

    def append(self, features: Rows, labels: Ints) -> None:
        self.features.append(features)
        self.labels.append(labels)

    def checkpoint(self) -> None:
        pass


class _Found(NamedTuple):
    """What an extraction gives of a bank."""

    features: Rows
    labels: Ints
    parts: Parts
    checksum: str
    note: str


@dataclass(frozen=True)
class _Job:
    """One extraction."""

    source: Source
    forward: Forward
    dimension: int
    made_of: Parts  # of the model, what does not change when it runs
    show_progress: bool
    say: Say

    def uncached(self) -> _Found:
        """Keep the features in memory, or in a temporary file."""
        n = len(self.source)
        with _room_for(n, self.dimension, self.forward.dtype) as rows:
            self.say(self._needs(n, Path(tempfile.gettempdir()) if isinstance(rows, InFile) else None))
            sink = _Loose(rows, n)
            self._fill(sink, 0)
            features = rows.whole()
        return _Found(features, sink.labels.whole(), {}, "", "computed")

    def cached(self, cache: Cache) -> _Found:
        """Keep the features in a cache, and take from it what is there."""
        parts = self._parts()
        slot = cache.slot("bank", parts)
        with full_disk(cache.folder), slot.locked(say=self.say):
            cache.sweep()
            folder, note = self._open(slot)
            self.say(f"Features: {note} ({slot.path}).")
            try:
                if not folder.journal.complete:
                    self._into(folder, slot.path)
                features, labels = folder.finish(_fits(len(self.source), self.dimension, self.forward.dtype))
                sums = folder.journal.sums
                if not slot.complete:
                    slot.finish()
            finally:
                folder.close()
        return _Found(features, labels, parts, checksum(sums), note)

    def _open(self, slot: Slot) -> tuple[Folder, str]:
        """Open the entry, whole, half or new, and say which."""
        dtype = self.forward.dtype.name
        if slot.path.exists():
            try:
                if not slot.begun:
                    raise StoreError(f"{slot.path} does not say what it is for.")
                folder = Folder(slot.path, self.dimension, dtype)
                self._check_again(folder)
            except StoreError as error:
                why = f"computed again, since the cached ones are damaged or stale: {error}"
            else:
                journal = folder.journal
                if journal.complete:
                    return folder, "reused"
                return folder, f"resumed at sample {journal.samples:,}" if journal.samples else "computed"
        else:
            why = slot.why_new()
            why = f"computed, since {why}" if why else "computed"
        layer, model = self.forward.extractor.layer, type(self.forward.extractor.model).__qualname__
        title = f"{model}, layer {layer!r}, {len(self.source):,} × {self.dimension} {dtype}"
        slot.begin(title)
        return Folder(slot.path, self.dimension, dtype), why

    def _check_again(self, folder: Folder) -> None:
        """Raise where a few samples have other features or labels now, or one that was skipped can be read.

        A fingerprint sees all that it looks at; this sees what nobody thought of, sooner or later.
        """
        try:
            features, labels = folder.mapped()
            for index in np.flatnonzero(labels == SKIPPED).tolist():
                if not self.source.read(index).skipped:
                    raise StoreError(f"sample {index}, which was skipped, can be read now.")
            valid = np.flatnonzero(labels != SKIPPED)
            some = np.random.default_rng().permutation(valid[1:])[:_AGAIN]
            for index in sorted({*valid[:1].tolist(), *some.tolist()}):
                part = self.source.read(index)
                if part.skipped:
                    raise StoreError(f"sample {index} cannot be read any more.")
                if part.labels[0] != labels[index]:
                    raise StoreError(f"the label of sample {index} is {part.labels[0]}, was {labels[index]}.")
                apart = self.forward.apart(self.forward(part)[0], features[index])
                if apart > 0:
                    raise StoreError(f"the features of sample {index} differ by {apart:.2g} of their length.")
        except BaseException:
            folder.close()
            raise

    def _into(self, folder: Folder, path: Path) -> None:
        start = folder.journal.samples
        self.say(self._needs(len(self.source) - start, path, start))
        with full_disk(path, "What was done so far is kept and is taken up again. "):
            try:
                self._fill(folder, start)
            finally:
                # Also when interrupted: everything up to the last whole batch is then kept.
                folder.checkpoint()

    def _fill(self, sink: _Sink, start: int) -> None:
        """Add the rows of all samples from ``start``."""
        n, done = len(self.source), start
        mark = time.monotonic()
        with tqdm(
            total=n, initial=start, desc="Features", unit="sample", disable=not self.show_progress
        ) as bar:
            for part in self.source.batches(start):
                rows, labels = self._rows(part)
                sink.append(rows, labels)
                done += len(rows)
                bar.update(len(rows))
                if time.monotonic() - mark >= CHECKPOINT_SECONDS:
                    sink.checkpoint()
                    mark = time.monotonic()
        if done != n:
            raise InvalidInputError(f"'data' says it has {n} samples but gave {done}. Check its __len__.")

    def _rows(self, part: Part) -> tuple[Rows, Ints]:
        """Features (B, d) and labels (B,) of a batch, with those of samples that could not be read."""
        if not part.skipped:
            return self.forward(part), part.labels
        n = len(part.indices) + len(part.skipped)
        features, labels = np.zeros((n, self.dimension), self.forward.dtype), np.full(n, SKIPPED)
        if len(part.indices):
            read = part.indices - min(*part.indices, *part.skipped)
            features[read], labels[read] = self.forward(part), part.labels
        return features, labels

    def _needs(self, n: int, folder: Path | None, start: int = 0) -> str:
        """Say what ``n`` more rows need and what there is, or raise where the disk is too small."""
        size = n * self.dimension * self.forward.dtype.itemsize
        small = self.source.batch_size * self.dimension * 4
        more = f" from sample {start:,}" if start else ""
        line = f"Features: {n:,} rows × {self.dimension} {self.forward.dtype}{more}; "
        if folder is not None:
            free = free_disk(folder)
            needed = size + 8 * n
            if needed > free:
                raise StoreError(
                    f"The features need {in_words(needed)} of disk at {folder}, where {in_words(free)} are "
                    'free. Free some space, name another cache_dir, or use dtype="float16".'
                )
            line += f"disk {in_words(needed)} of {in_words(free)} free; "
        free_now = free_memory()
        known = "" if free_now is None else f" of {in_words(free_now)} free"
        return line + f"memory {in_words((small if folder else size) + 8 * n)}{known}."

    def _parts(self) -> Parts:
        """Fingerprint everything the features depend on."""
        extractor = self.forward.extractor
        parameter = next(extractor.model.parameters())
        return {
            **store.fingerprint(extractor.model, extractor.layer),
            **self.made_of,
            **self.source.prints(),
            "dtype": self.forward.dtype.name,
            "autocast": str(self.forward.autocast),
            "batch size": str(self.source.batch_size),
            "device": parameter.device.type,
            "code the extraction": f"source {_code()}",
        }


def _code() -> str:
    rooms = ("features", "data", "model")
    return fingerprint.source(*(f"whence.{room}" for room in rooms))


def _fits(n: int, dimension: int, dtype: np.dtype[Any]) -> bool:
    """Whether rows fill at most half of the memory that is free."""
    free = free_memory()
    return free is None or n * dimension * dtype.itemsize <= free / 2


@contextmanager
def _room_for(n: int, dimension: int, dtype: np.dtype[Any]) -> Iterator[Growing]:
    """Room for rows in memory, or in a temporary file when they would fill half of what is free."""
    if _fits(n, dimension, dtype):
        yield InMemory(n, (dimension,), dtype)
        return
    # The system removes the file when the last map of it is gone, however the process ends.
    with full_disk(tempfile.gettempdir()), tempfile.TemporaryFile(buffering=0) as file:
        yield InFile(file, (dimension,), dtype)


@contextmanager
def _placed(model: nn.Module, device: str | torch.device) -> Iterator[None]:
    """Move a model to a device, and back afterwards."""
    before = next(model.parameters()).device
    model.to(device)
    try:
        yield
    finally:
        model.to(before)


def _check_options(dtype: str, autocast: str | None, num_workers: int, on_error: str) -> None:
    check_choice("dtype", dtype, DTYPES)
    check_choice("autocast", autocast, AUTOCASTS)
    num_workers = check_count("num_workers", num_workers, 0)
    check_choice("on_error", on_error, ("raise", "skip"))


def _check_bfloat16(model: nn.Module, device: str | torch.device | None) -> None:
    """Refuse bfloat16 on a processor that would die of it."""
    place = next(model.parameters()).device if device is None else torch.device(device)
    if place.type == "cpu" and not bfloat16_works():
        raise InvalidInputError(
            '\'autocast\' must be None or "float16" here. Got "bfloat16", on which this processor traps or '
            f"errs. Set {'='.join(REMEDY)} in the environment before Python starts, or leave autocast out."
        )
