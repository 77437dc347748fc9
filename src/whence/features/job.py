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
from typing import NamedTuple

import numpy as np
from tqdm.auto import tqdm

from whence import engine
from whence.core import fingerprint, store
from whence.core.arrays import Array
from whence.core.cache import Cache, Parts, Say, Slot
from whence.core.words import plain_line
from whence.data import TrainingSet
from whence.errors import StoreError
from whence.features.bank import checksum
from whence.features.forward import Forward
from whence.features.journal import Folder
from whence.features.rows import Growing, InFile, InMemory, Rows, fits, full_disk, needs, room_for

CHECKPOINT_SECONDS = 1.0
_AGAIN = 4  # random rows that are computed anew before a bank is reused, beside the first


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
        """Tells the user a line."""
        return teller(self.show_progress)

    def uncached(self) -> tuple[Rows, Array]:
        """Keep features and labels in memory, or in a temporary file."""
        n = len(self.samples)
        with room_for(n, self.forward.dimension, self.forward.dtype) as rows:
            self.say(self.needs(n, Path(tempfile.gettempdir()) if isinstance(rows, InFile) else None))
            sink = _Loose(rows, n, self.forward.targets.blank(0))
            self.fill(sink, 0)
            return rows.whole(), sink.labels.whole()

    def fill(self, sink: Folder | _Loose, start: int) -> None:
        """Add the rows of all samples from ``start``."""
        n, hidden, mark = len(self.samples), not self.show_progress, time.monotonic()
        with tqdm(desc="Features", total=n, initial=start, unit="sample", disable=hidden) as bar:
            for rows, labels in self._rows(start):
                sink.append(rows, labels)
                bar.update(len(rows))
                if time.monotonic() - mark >= CHECKPOINT_SECONDS:
                    sink.checkpoint()
                    mark = time.monotonic()

    def needs(self, n: int, folder: Path | None, start: int = 0) -> str:
        """Say what ``n`` more rows need and what there is, or raise where the disk is too small."""
        forward = self.forward
        return needs(n, forward.dimension, forward.dtype, self.samples.batch_size, folder, start)

    def _rows(self, start: int) -> Iterator[tuple[Rows, Array]]:
        """Give the rows of batches from sample ``start`` on, in order."""
        if self.samples.workers.number:  # which read ahead, all batches in one go
            yield from map(self.forward.rows, self.samples.batches(start))
            return
        n, size = len(self.samples), self.samples.batch_size
        ranges = [(first, min(first + size, n)) for first in range(start, n, size)]
        piece = partial(_rows_of, self.samples, self.forward)
        with closing(engine.ordered(piece, ranges)) as found:
            yield from found


def _rows_of(samples: TrainingSet, forward: Forward, places: tuple[int, int]) -> tuple[Rows, Array]:
    """Features and labels of a range of samples, one batch."""
    (batch,) = samples.batches(*places)
    return forward.rows(batch)


class _Loose:
    """Rows that end with the process."""

    def __init__(self, features: Growing, n: int, like: Array) -> None:
        self.features = features
        self.labels = InMemory(n, like.shape[1:], like.dtype)

    def append(self, features: Rows, labels: Array) -> None:
        self.features.append(features)
        self.labels.append(labels)

    def checkpoint(self) -> None:
        pass


def teller(show: bool) -> Say:
    """Give a function that prints a line beside the progress bars, or one that does nothing."""

    def say(line: str) -> None:
        if show:
            tqdm.write(plain_line(line), file=sys.stderr)

    return say


class Found(NamedTuple):
    """What an extraction gives of a bank; see ``FeatureBank``."""

    features: Rows
    labels: Array
    parts: Parts
    checksum: str
    note: str


def cached(job: Job, cache: Cache) -> Found:
    """Keep the features in a cache, and take from it what is there."""
    parts = _parts(job)
    slot = cache.slot("bank", parts)
    with full_disk(cache.folder), slot.locked(say=job.say):
        cache.sweep()
        folder, note = _open(job, slot)
        job.say(f"Features: {note} ({slot.path}).")
        try:
            if not folder.journal.complete:
                _fill(job, folder, slot.path)
            features, labels = folder.finish(fits(len(job.samples), job.forward.dimension, job.forward.dtype))
            sums = folder.journal.sums
            if not slot.complete:
                slot.finish()
        finally:
            folder.close()
    return Found(features, labels, parts, checksum(sums), note)


def _open(job: Job, slot: Slot) -> tuple[Folder, str]:
    """Open the entry, whole, half or new, and say which."""
    forward = job.forward
    shape = forward.dimension, forward.dtype.name
    parts = *shape, forward.targets.blank(0)
    if slot.path.exists():
        try:
            if not slot.begun:
                raise StoreError(f"{slot.path} does not say what it is for.")
            folder = Folder(slot.path, *parts)
            _check_again(job, folder)
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
    layer, model = forward.extractor.layer, type(forward.extractor.model).__qualname__
    slot.begin(f"{model}, layer {layer!r}, {len(job.samples):,} × {shape[0]} {shape[1]}")
    return Folder(slot.path, *parts), why


def _check_again(job: Job, folder: Folder) -> None:
    """Raise where a few samples have other features or labels now, or one that was skipped can be read.

    A fingerprint sees all that it looks at; this sees what nobody thought of, sooner or later.
    """
    try:
        features, labels = folder.mapped()
        known = job.forward.targets.known(labels)
        for index in np.flatnonzero(~known).tolist():
            if not job.samples.read([index]).skipped:
                raise StoreError(f"sample {index}, which was skipped, can be read now.")
        valid = np.flatnonzero(known)
        some = np.random.default_rng().permutation(valid[1:])[:_AGAIN]
        for index in sorted({*valid[:1].tolist(), *some.tolist()}):
            batch = job.samples.read([index])
            if batch.skipped:
                raise StoreError(f"sample {index} cannot be read any more.")
            if not np.array_equal(batch.labels[0], labels[index]):
                raise StoreError(f"the label of sample {index} is {batch.labels[0]}, was {labels[index]}.")
            apart = job.forward.apart(job.forward(batch)[0], features[index])
            if apart > 0:
                raise StoreError(f"the features of sample {index} differ by {apart:.2g} of their length.")
    except BaseException:
        folder.close()
        raise


def _fill(job: Job, folder: Folder, path: Path) -> None:
    start = folder.journal.samples
    job.say(job.needs(len(job.samples) - start, path, start))
    with full_disk(path, "What was done so far is kept and is taken up again. "):
        try:
            job.fill(folder, start)
        finally:
            # Also when interrupted: everything up to the last whole batch is then kept.
            folder.checkpoint()


def _parts(job: Job) -> Parts:
    """Fingerprint everything the features depend on."""
    extractor = job.forward.extractor
    code = fingerprint.source("whence.features", "whence.data", "whence.model")
    return {
        **store.fingerprint(extractor.model, extractor.layer),
        **job.made_of,
        **job.samples.prints(),
        "dtype": job.forward.dtype.name,
        "autocast": str(job.forward.autocast),
        "batch size": str(job.samples.batch_size),
        "device": next(extractor.model.parameters()).device.type,
        "code the extraction": f"source {code}",
    }
