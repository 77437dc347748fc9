"""One extraction: checked features of batches, which are independent pieces of work put in order.

In a cache, features are begun, taken up again, or taken from there once they were looked at.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm

from whence import engine
from whence.core import fingerprint, progress, store
from whence.core.arrays import Array
from whence.core.cache import Cache, Parts, Say, Slot
from whence.core.checks import check_flag, check_that
from whence.core.display import in_words, plain_line
from whence.core.fingerprint import Description, Digest
from whence.core.machine import free_disk, free_memory
from whence.core.progress import bar
from whence.data import Batch, TrainingSet
from whence.errors import HeadError, InvalidInputError, StoreError
from whence.features.folder import KIND, Folder
from whence.features.rows import InFile, Rows, fits, full_disk, hashed, room_for
from whence.model.extractor import Extractor, check_repeatable
from whence.model.inputs import take
from whence.model.layers import Layers
from whence.tasks import Task

CHECKPOINT_SECONDS = 1.0
_MEASURED = 256  # samples by whose features layers are scaled
_REMEDY = "Check the model's activations on that sample, or leave it out."
_PROBED = 64  # samples that show whether the model is random or mixes the samples of a batch
VOUCH = "Pass a cache_key, a word that you change whenever model or data change, to vouch for it."
_AGAIN = 4  # random rows that are computed again before a bank is reused, besides the first


class Read(NamedTuple):
    """Features (B, d) and labels (B, …) of a batch, and the digest of its inputs, once per sample (B, 16)."""

    features: Rows
    labels: Array
    inputs: Array


def contents(batch: Batch) -> Array:
    """Digest a batch as the model gets it, once per sample (B, 16); zeros where it cannot be read."""
    digest, n = Digest(), len(batch.indices) + len(batch.skipped)
    digest.add([batch.inputs, batch.labels, batch.skipped])
    value = np.frombuffer(bytes.fromhex(digest.hexdigest()), np.uint8)
    return np.tile(np.zeros_like(value) if digest.unread else value, (n, 1))


class Forward:
    """Checked features of a batch, in the bank's dtype."""

    def __init__(self, extractor: Extractor, task: Task, dtype: np.dtype[Any], autocast: str | None) -> None:
        self.extractor, self.task, self.dtype, self.autocast = extractor, task, dtype, autocast
        self.n_outputs = len(extractor.head().weight)

    @property
    def dimension(self) -> int:
        """The number of features."""
        return int(self.extractor.head().weight.shape[1])

    def __call__(self, batch: Batch) -> Rows:
        """Features (B, d), or an error that names the sample."""
        with self._running(batch):
            rows = self.extractor(batch.inputs).float().cpu().numpy()
        rule = f"give one label per input, {len(rows)}"
        check_that(len(rows) == len(batch.labels), "data", rule, len(batch.labels))
        self.task.check(batch.labels, batch.indices, self.n_outputs, self.extractor.layer)
        self._check_finite(rows, batch, _REMEDY)
        if rows.dtype != self.dtype:
            with np.errstate(over="ignore"):  # infinity is found below
                rows = rows.astype(self.dtype)
            self._check_finite(rows, batch, 'It is too large for float16; use dtype="float32".')
        return rows

    def scale(self, layers: Layers, batches: Iterable[Batch]) -> None:
        """Divide every layer's features by the root of their mean squared norm on the first few samples."""
        squares, seen = np.zeros(len(layers.places)), 0
        for batch in batches:
            if not len(batch.indices):
                continue
            with self._running(batch):
                rows = self.extractor(take(batch.inputs, slice(_MEASURED - seen))).float().cpu().numpy()
            self._check_finite(rows, batch, _REMEDY)
            squares += [np.sum(rows[:, part] ** 2, dtype=np.float64) for part in layers.places.values()]
            seen += len(rows)
            if seen == _MEASURED:
                break
        self.extractor.layers = layers.scaled((squares / seen).tolist())

    def rows(self, batch: Batch) -> Read:
        """Read a batch; what could not be read has zeros and blank labels."""
        return Read(*self._rows(batch), contents(batch))

    def _rows(self, batch: Batch) -> tuple[Rows, Array]:
        if not batch.skipped:
            return self(batch), batch.labels
        n = len(batch.indices) + len(batch.skipped)
        features, labels = np.zeros((n, self.dimension), self.dtype), self.task.blank(n)
        if len(batch.indices):
            read = batch.indices - min(*batch.indices, *batch.skipped)
            features[read], labels[read] = self(batch), batch.labels
        return features, labels

    def difference(self, now: Rows, before: Rows) -> float:
        """Return how far two rows of features of a sample differ, by their length; 0 if by rounding only."""
        a, b = now.astype(np.float64), before.astype(np.float64)
        length, distance = (float(np.linalg.norm(row)) for row in (np.r_[a, b], a - b))
        difference = distance / max(length, 1e-6)
        # Batches of other sizes are added up in another order; in mixed precision that shows.
        rounding = 0.05 if self.autocast else 0.01 if self.dtype == np.float16 else 1e-3
        return difference if difference > rounding else 0.0

    def probe(self, batch: Batch) -> None:
        """Raise ModelError unless a few samples have the same features again, and in another batch."""
        with self._running(batch):
            check_repeatable(self.extractor, take(batch.inputs, slice(_PROBED)))

    @contextmanager
    def _running(self, batch: Batch) -> Iterator[None]:
        """Run the model on a batch in its precision; an error about the head names the sample."""
        try:
            device = next(self.extractor.model.parameters()).device.type
            with torch.autocast(device, getattr(torch, self.autocast)) if self.autocast else nullcontext():
                yield
        except HeadError as error:
            raise error.about(f"sample {batch.indices[error.row]} of 'data'") from None

    @staticmethod
    def _check_finite(rows: Rows, batch: Batch, remedy: str) -> None:
        finite = np.isfinite(rows)
        if not finite.all():
            i, j = np.argwhere(~finite)[0]
            raise InvalidInputError(
                f"The model's features must be finite. Got {rows[i, j]} for sample {batch.indices[i]} of "
                f"'data', feature {j}. {remedy}"
            )
        with np.errstate(over="ignore"):
            lengths = np.einsum("ij,ij->i", rows, rows, dtype=np.float32)
        if not np.isfinite(lengths).all():
            i = int(np.isfinite(lengths).argmin())
            raise InvalidInputError(
                f"The model's features must be small enough for inner products in float32. Those of sample "
                f"{batch.indices[i]} of 'data' are up to {np.abs(rows[i]).max():.3g}. Scale the inputs."
            )


@dataclass(frozen=True)
class Job:
    """One extraction."""

    samples: TrainingSet
    forward: Forward
    made_of: Description  # what the model is made of, where it does not change when it runs
    first: int  # sample that can be read
    cache_key: str | None  # stands for what cannot be read, and for the samples' inputs
    show_progress: bool  # show what is needed, a progress bar, and what the cache does

    @property
    def say(self) -> Say:
        """The function that shows the user a line."""
        return make_printer(self.show_progress)

    def uncached(self) -> tuple[Rows, Array]:
        """Keep features and labels in memory, or in a temporary file."""
        n, labels = len(self.samples), []
        with room_for(n, self.forward.dimension, self.forward.dtype) as features:
            self.say(self.needs(Path(tempfile.gettempdir()) if isinstance(features, InFile) else None))
            for batch in self.rows():
                features.append(batch.features)
                labels.append(batch.labels)
            return features.whole(), np.concatenate(labels)

    def rows(self, start: int = 0) -> Iterator[Read]:
        """Return the rows of all samples from ``start`` on, a batch at a time, and show how far they are."""
        n, hidden = len(self.samples), not self.show_progress
        with bar("Reading features", n, "samples", show=not hidden, initial=start) as watched:
            for batch in self._rows(start):
                yield batch
                start += len(batch.labels)
                watched.update(len(batch.labels))
                progress.report("Features", start, n)

    def needs(self, folder: Path | None, start: int = 0) -> str:
        """Describe what rows from ``start`` on need and what there is, or raise where the disk is too small.

        ``folder`` is where they are written; None keeps all in memory. ``start`` rows are there.
        """
        n, d, dtype = len(self.samples) - start, self.forward.dimension, self.forward.dtype
        labels = n * self.forward.task.blank(1).nbytes
        size = needed = n * d * dtype.itemsize + labels
        more = f" from sample {start:,}" if start else ""
        line = f"Features: {n:,} rows × {d} {dtype}{more}; "
        if folder is not None:
            free = free_disk(folder)
            if needed > free:
                raise StoreError(
                    f"The features need {in_words(needed)} of disk at {folder}, where {in_words(free)} are "
                    'free. Free some space, name another cache_dir, or use dtype="float16".'
                )
            line += f"disk {in_words(needed)} of {in_words(free)} free; "
            size = self.samples.batch_size * d * 4 + labels  # what is in memory while others are written
        free_now = free_memory()
        known = "" if free_now is None else f" of {in_words(free_now)} free"
        return line + f"memory {in_words(size)}{known}."

    def _rows(self, start: int) -> Iterator[Read]:
        """Return the rows of batches from sample ``start`` on, in order."""
        if self.samples.workers.number:  # which read ahead, all batches in one go
            yield from map(self.forward.rows, self.samples.batches(start))
            return
        n, size = len(self.samples), self.samples.batch_size
        ranges = [(first, min(first + size, n)) for first in range(start, n, size)]
        piece = partial(_rows_of, self.samples, self.forward)
        with closing(engine.ordered(piece, ranges)) as pieces:
            yield from pieces


def _rows_of(samples: TrainingSet, forward: Forward, places: tuple[int, int]) -> Read:
    """Read a range of samples, one batch."""
    (batch,) = samples.batches(*places)
    return forward.rows(batch)


def make_printer(show: bool) -> Say:
    """Return a function that prints a line above the progress bars, or one that does nothing."""
    show = check_flag("show", show)

    def say(line: str) -> None:
        if show:
            tqdm.write(plain_line(line), file=sys.stderr)

    return say


def cached(job: Job, cache: Cache) -> tuple[Rows, Array, Parts, str, str]:
    """Keep the features in a cache, and take from it what is there.

    Returns features and labels, their fingerprint, their checksum, and where they come from, in words.
    """
    parts = _parts(job)
    slot = cache.slot(KIND, parts)
    with full_disk(cache.folder), slot.locked(say=job.say):
        cache.sweep()
        folder, note = _open(job, slot)
        job.say(f"Features: {note} ({slot.path}).")
        try:
            if not folder.complete:
                _fill(job, folder, slot.path)
            features, labels = folder.finish(fits(len(job.samples), job.forward.dimension, job.forward.dtype))
        finally:
            folder.close()
    return features, labels, parts, folder.checksum, note


def _open(job: Job, slot: Slot) -> tuple[Folder, str]:
    """Open the entry, whole, half or new, and say which."""
    forward = job.forward
    none = np.empty((0, forward.dimension), forward.dtype), forward.task.blank(0)
    doubts = "" if job.cache_key is not None else job.made_of.doubts
    if doubts:
        why = f"computed, since {doubts} cannot be compared. {VOUCH}"
    elif slot.path.exists():
        try:
            folder = Folder(slot, *none)
            _check_again(job, folder)
        except StoreError as error:
            why = f"computed again, since the cached ones are damaged or stale: {error}"
        else:
            if folder.complete:
                return folder, "reused"
            done = folder.progress.samples
            return folder, f"resumed at sample {done:,}" if done else "computed"
    else:
        why = slot.why_new()
        why = f"computed, since {why}" if why else "computed"
    layer, model = forward.extractor.layer, type(forward.extractor.model).__qualname__
    slot.begin(f"{model}, layer {layer!r}, {len(job.samples):,} × {forward.dimension} {forward.dtype}")
    return Folder(slot, *none), why


def _check_again(job: Job, folder: Folder) -> None:
    """Raise where samples have other inputs or labels now, or a few of them other features."""
    try:
        features, labels, inputs = folder.mapped()
        if job.cache_key is None:
            _check_inputs(job, inputs)
        valid = np.flatnonzero(job.forward.task.known(labels))
        drawn = np.random.default_rng().permutation(valid[1:])[:_AGAIN]
        for index in sorted({*valid[:1].tolist(), *drawn.tolist()}):
            batch = job.samples.read([index])
            if batch.skipped:
                raise StoreError(f"sample {index} cannot be read any more.")
            if not np.array_equal(batch.labels[0], labels[index]):
                raise StoreError(f"the label of sample {index} is {batch.labels[0]}, was {labels[index]}.")
            difference = job.forward.difference(job.forward(batch)[0], features[index])
            if difference > 0:
                raise StoreError(
                    f"the features of sample {index} differ by {difference:.2g} of their length."
                )
    except BaseException:
        folder.close()
        raise


def _check_inputs(job: Job, kept: Array) -> None:
    """Read the samples again, and raise where what the model would get of them is not what it got."""
    n, start = len(kept), 0
    with bar("Comparing samples", n, "samples", show=job.show_progress, delay=1) as watched:
        for batch in job.samples.batches(0, n) if n else ():
            now = contents(batch)
            stop = start + len(now)
            if not now.any():
                raise StoreError(f"the inputs of samples {start} to {stop - 1} cannot be compared. {VOUCH}")
            if not np.array_equal(now, kept[start:stop]):
                raise StoreError(f"samples {start} to {stop - 1} have other inputs or labels than before.")
            start = stop
            watched.update(len(now))


def _fill(job: Job, folder: Folder, path: Path) -> None:
    start = folder.progress.samples
    job.say(job.needs(path, start))
    mark = time.monotonic()
    kept = "What was done so far is kept and is taken up again. "
    with full_disk(path, kept):
        try:
            for batch in job.rows(start):
                folder.append(*batch)
                if time.monotonic() - mark >= CHECKPOINT_SECONDS:
                    folder.checkpoint()
                    mark = time.monotonic()
        finally:
            # Also when interrupted: everything up to the last whole batch is then kept.
            folder.checkpoint()


def _parts(job: Job) -> Parts:
    """Fingerprint what the features depend on; of the samples' inputs the first, the others are compared."""
    extractor, labels = job.forward.extractor, job.samples.known_labels()
    first = job.samples.read([job.first])
    code = fingerprint.source("whence.features", "whence.data", "whence.model")
    return {
        **store.fingerprint(extractor.model, extractor.layer),
        **({} if extractor.layers is None else {"layers": repr(extractor.layers)}),
        **job.made_of.lines,
        "number of samples": str(len(job.samples)),
        "data first inputs": f"digest {bytes(contents(first)[0]).hex()}",
        **({} if labels is None else {"data labels": f"{labels.dtype} {hashed(labels)}"}),
        "cache key": str(job.cache_key),
        "dtype": job.forward.dtype.name,
        "autocast": str(job.forward.autocast),
        "batch size": str(job.samples.batch_size),
        "device": next(extractor.model.parameters()).device.type,
        "code the extraction": f"source {code}",
    }
