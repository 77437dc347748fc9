"""One extraction: ranges of samples are independent pieces of work, whose rows are put in order."""

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
from whence.core.arrays import Ints
from whence.core.cache import Parts, Say
from whence.core.words import plain_line
from whence.data import TrainingSet
from whence.features.forward import Forward
from whence.features.journal import Folder
from whence.features.rows import Growing, InFile, InMemory, Rows, needs, room_for

CHECKPOINT_SECONDS = 1.0


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

    def uncached(self) -> tuple[Rows, Ints]:
        """Keep features and labels in memory, or in a temporary file."""
        n = len(self.samples)
        with room_for(n, self.forward.dimension, self.forward.dtype) as rows:
            self.say(self.needs(n, Path(tempfile.gettempdir()) if isinstance(rows, InFile) else None))
            sink = _Loose(rows, n)
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

    def _rows(self, start: int) -> Iterator[tuple[Rows, Ints]]:
        """Give the rows of batches from sample ``start`` on, in order."""
        if self.samples.workers.number:  # which read ahead, all batches in one go
            yield from map(self.forward.rows, self.samples.batches(start))
            return
        n, size = len(self.samples), self.samples.batch_size
        ranges = [(first, min(first + size, n)) for first in range(start, n, size)]
        piece = partial(_rows_of, self.samples, self.forward)
        with closing(engine.ordered(piece, ranges)) as found:
            yield from found


def _rows_of(samples: TrainingSet, forward: Forward, places: tuple[int, int]) -> tuple[Rows, Ints]:
    """Features and labels of a range of samples, one batch."""
    (batch,) = samples.batches(*places)
    return forward.rows(batch)


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


def teller(show: bool) -> Say:
    """Give a function that prints a line beside the progress bars, or one that does nothing."""

    def say(line: str) -> None:
        if show:
            tqdm.write(plain_line(line), file=sys.stderr)

    return say
