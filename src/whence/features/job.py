"""One extraction: ranges of samples are independent pieces of work, whose rows are put in order.

In a cache, features are begun, taken up again, or taken from there once they were looked at.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from whence import engine
from whence.core import fingerprint, progress, store
from whence.core.arrays import Array
from whence.core.cache import Cache, Parts, Say, Slot
from whence.core.display import in_words, plain_line
from whence.core.machine import free_disk, free_memory
from whence.core.progress import bar
from whence.data import TrainingSet
from whence.errors import StoreError
from whence.features.bank import checksum
from whence.features.folder import KIND, Folder
from whence.features.forward import Forward
from whence.features.rows import InFile, Rows, fits, full_disk, room_for

CHECKPOINT_SECONDS = 1.0
_AGAIN = 4  # random rows that are computed again before a bank is reused, besides the first


@dataclass(frozen=True)
class Job:
    """One extraction.

    Attributes
    ----------
    samples : to read
    forward : gives their features
    made_of : what the model is made of, where it does not change when it runs
    show_progress : show what is needed, a progress bar, and what the cache does
    """

    samples: TrainingSet
    forward: Forward
    made_of: Parts
    show_progress: bool

    @property
    def say(self) -> Say:
        """The function that shows the user a line."""
        return teller(self.show_progress)

    def uncached(self) -> tuple[Rows, Array]:
        """Keep features and labels in memory, or in a temporary file."""
        n, labels = len(self.samples), []
        with room_for(n, self.forward.dimension, self.forward.dtype) as features:
            self.say(self.needs(Path(tempfile.gettempdir()) if isinstance(features, InFile) else None))
            for rows, batch_labels in self.rows():
                features.append(rows)
                labels.append(batch_labels)
            return features.whole(), np.concatenate(labels)

    def rows(self, start: int = 0) -> Iterator[tuple[Rows, Array]]:
        """Return the rows of all samples from ``start`` on, a batch at a time, and show how far they are."""
        n, hidden = len(self.samples), not self.show_progress
        with bar("Reading features", n, "samples", show=not hidden, initial=start) as watched:
            for rows, labels in self._rows(start):
                yield rows, labels
                start += len(labels)
                watched.update(len(labels))
                progress.tell("Features", start, n)

    def needs(self, folder: Path | None, start: int = 0) -> str:
        """Describe what rows from ``start`` on need and what there is, or raise where the disk is too small.

        Parameters
        ----------
        folder
            Where they are written; None keeps all in memory.
        start
            Rows that are there.
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

    def _rows(self, start: int) -> Iterator[tuple[Rows, Array]]:
        """Return the rows of batches from sample ``start`` on, in order."""
        if self.samples.workers.number:  # which read ahead, all batches in one go
            yield from map(self.forward.rows, self.samples.batches(start))
            return
        n, size = len(self.samples), self.samples.batch_size
        ranges = [(first, min(first + size, n)) for first in range(start, n, size)]
        piece = partial(_rows_of, self.samples, self.forward)
        with closing(engine.ordered(piece, ranges)) as pieces:
            yield from pieces


def _rows_of(samples: TrainingSet, forward: Forward, places: tuple[int, int]) -> tuple[Rows, Array]:
    """Features and labels of a range of samples, one batch."""
    (batch,) = samples.batches(*places)
    return forward.rows(batch)


def teller(show: bool) -> Say:
    """Return a function that prints a line above the progress bars, or one that does nothing."""

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
    return features, labels, parts, checksum(folder.progress.sums), note


def _open(job: Job, slot: Slot) -> tuple[Folder, str]:
    """Open the entry, whole, half or new, and say which."""
    forward = job.forward
    none = np.empty((0, forward.dimension), forward.dtype), forward.task.blank(0)
    if slot.path.exists():
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
    """Raise where a few samples have other features or labels now, or one that was skipped can be read.

    A fingerprint sees all that it looks at; this sees what nobody thought of, sooner or later.
    """
    try:
        features, labels = folder.mapped()
        known = job.forward.task.known(labels)
        for index in np.flatnonzero(~known).tolist():
            if not job.samples.read([index]).skipped:
                raise StoreError(f"sample {index}, which was skipped, can be read now.")
        valid = np.flatnonzero(known)
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


def _fill(job: Job, folder: Folder, path: Path) -> None:
    start = folder.progress.samples
    job.say(job.needs(path, start))
    mark = time.monotonic()
    kept = "What was done so far is kept and is taken up again. "
    with full_disk(path, kept):
        try:
            for rows in job.rows(start):
                folder.append(*rows)
                if time.monotonic() - mark >= CHECKPOINT_SECONDS:
                    folder.checkpoint()
                    mark = time.monotonic()
        finally:
            # Also when interrupted: everything up to the last whole batch is then kept.
            folder.checkpoint()


def _parts(job: Job) -> Parts:
    """Fingerprint everything the features depend on."""
    extractor = job.forward.extractor
    code = fingerprint.source("whence.features", "whence.data", "whence.model")
    return {
        **store.fingerprint(extractor.model, extractor.layer),
        **({} if extractor.layers is None else {"layers": repr(extractor.layers)}),
        **job.made_of,
        **job.samples.prints(),
        "dtype": job.forward.dtype.name,
        "autocast": str(job.forward.autocast),
        "batch size": str(job.samples.batch_size),
        "device": next(extractor.model.parameters()).device.type,
        "code the extraction": f"source {code}",
    }
