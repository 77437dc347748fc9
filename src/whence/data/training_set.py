"""The training set: samples by index, batches, labels and fingerprint, for every source of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from torch.utils.data import Dataset

from whence.core.arrays import Array, Ints, Mask
from whence.core.checks import check_places
from whence.core.display import displayed
from whence.core.machine import BATCH_SIZE
from whence.core.naming import name_errors
from whence.core.progress import bar
from whence.data.corpus import Corpus
from whence.data.inputs import first_sample
from whence.data.items import LABEL_NAMES, Prepare, as_fields, is_array, split
from whence.data.reading import Batch, OnError, Reader, Workers
from whence.data.sources import Columns, ImageFolder, Joined, Stream, as_source, data_names, listed_labels
from whence.errors import InvalidInputError, SampleError
from whence.tasks import Task, find_task

_FIRST = 64  # samples by whose labels the task is found, where one is not enough

Change = Callable[[Any, np.random.Generator], Any]
"""Makes other inputs of a sample's; the generator is the sample's own."""


class Mark(NamedTuple):
    """A change of samples' inputs, with a mask (N,) of these and the seed of what is random about it."""

    change: Change
    where: Mask
    seed: int


@displayed("__len__", "kind", "class_names", "batch_size")
@dataclass(frozen=True, eq=False)
class TrainingSet(Dataset[Any]):
    """Samples in the user's order, read on request. Nothing is copied.

    It is a map-style ``Dataset`` of the samples as the user has them, and it gives batches as the model takes
    them. ``subset``, ``relabelled``, ``marked`` and ``changed`` give others that read from the same source.

    Attributes
    ----------
    source : where the samples lie
    task : what labels are
    prepare : makes the model's inputs of samples, of these and of new ones
    batch_size : samples per batch
    workers : processes that read
    on_error : what happens where a sample cannot be read; None where nobody was asked
    places : (N,) of the samples in ``source``; None for all of them
    labels : (N, …) that stand for those in ``source``; None for its own. Those of samples that were left out
        are blank
    marks : on inputs
    """

    source: Any
    task: Task
    prepare: Prepare
    batch_size: int
    workers: Workers
    on_error: OnError | None = None
    places: Ints | None = None
    labels: Array | None = None
    marks: tuple[Mark, ...] = ()

    @classmethod
    def of(
        cls,
        data: Any,
        batch_size: int = BATCH_SIZE,
        prepare: Prepare | None = None,
        names: Sequence[str] | None = None,
        workers: Workers | None = None,
        task: Task | None = None,
    ) -> Self:
        """Return data as a training set; samples are read only to find the task by their labels.

        See ``as_training_set``.
        """
        data = ImageFolder(Path(data)) if isinstance(data, str | Path) else data
        source = as_source(data)
        if len(source) == 0:
            raise InvalidInputError("'data' must have at least one sample. Got an empty set.")
        prepare = prepare or Prepare()
        task = (task or find_task(_first_labels(source, prepare))).with_names(names, data_names(data))
        samples = cls(source, task, prepare, batch_size, workers or Workers())
        return replace(samples, labels=task.encode(source.labels)) if samples._sliced else samples

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """One name per class, for display; None without names."""
        return self.task.names

    @property
    def kind(self) -> str:
        """The kind of source."""
        return type(self.source).__name__

    @property
    def is_stream(self) -> bool:
        """Whether reading a sample requires reading those before it."""
        return isinstance(self.source, Stream)

    @property
    def _sliced(self) -> bool:
        """Whether batches are slices of arrays, which are not copied; memory maps stay on disk."""
        whole = isinstance(self.source, Columns) and is_array(self.source.inputs)
        ready = self.prepare.collate_fn is None and self.prepare.preprocess is None
        return whole and ready and not self.marks

    def __len__(self) -> int:
        return len(self.source) if self.places is None else len(self.places)

    def __getitem__(self, index: int) -> Any:
        """Read a sample as the user has it, with its marks and its label here."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"'index' must lie in [0, {len(self)}). Got {index}.")
        index = int(index) % len(self)
        place = self._place(index)
        try:
            item = self.source[place]
        except Exception as error:
            raise SampleError(index, f"{type(error).__name__}: {error}") from error
        if self.labels is None and not self.marks:
            return item
        inputs, label = split(item)
        for mark in self.marks:
            if mark.where[index]:
                inputs = _changed(mark.change, inputs, np.random.default_rng([mark.seed, place]))
        if self.labels is not None and self.task.known(self.labels[[index]])[0]:
            label = self.labels[index].tolist()
        fields = as_fields(item)
        if fields is None:
            return inputs, label
        return {**inputs, next(name for name in LABEL_NAMES if name in fields): label}

    def take(self, indices: Sequence[int]) -> Any:
        """Return the model's inputs of samples, as one batch."""
        return self.read(indices).inputs

    def read(self, indices: Sequence[int]) -> Batch:
        """Return samples, as one batch."""
        rows = check_places("indices", indices, len(self))
        if not len(rows):
            raise InvalidInputError("'indices' must name at least one sample. Got none.")
        return self._cut(rows, rows) if self._sliced else self._reading.batch(rows.tolist())

    def batches(self, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """Return batches from sample ``start`` to the one before ``stop``, or to the last."""
        stop = len(self) if stop is None else min(stop, len(self))
        spans = [range(a, min(a + self.batch_size, stop)) for a in range(start, stop, self.batch_size)]
        if self._sliced:
            yield from (self._cut(slice(rows.start, rows.stop), np.array(rows)) for rows in spans)
        else:
            yield from self._reading.batches(spans)

    def known_labels(self) -> Array | None:
        """Return the labels (N, …) as the set lists them, if it does, without reading samples.

        A dataset may list others than its samples have.
        """
        if self.labels is not None:
            return self.labels
        known = listed_labels(self.source)
        if known is None:
            return None
        try:
            return self.task.encode(known if self.places is None else known[self.places])
        except InvalidInputError:
            return None

    def every_label(self, show_progress: bool = True) -> Array:
        """Return the labels (N, …) as the set lists them, or after reading every sample."""
        known = self.known_labels()
        if known is not None:
            return known
        every = bar(
            "Reading labels", len(self), "samples", parts=range(len(self)), show=show_progress, delay=1
        )
        return self.task.encode([split(self[i])[1] for i in every])

    def reading(self, num_workers: int, on_error: OnError) -> Self:
        """Return the same set with processes that read it, and what to do with samples they cannot read."""
        workers = replace(self.workers, number=num_workers or self.workers.number)
        return replace(self, workers=workers, on_error=on_error)

    def subset(self, indices: Ints) -> Self:
        """Return the set of these samples, in the order given."""
        return replace(
            self,
            places=self._place(indices),
            labels=None if self.labels is None else self.labels[indices],
            marks=tuple(mark._replace(where=mark.where[indices]) for mark in self.marks),
        )

    def relabelled(self, labels: Array, class_names: tuple[str, ...] | None) -> Self:
        """Return the set with other labels (N, …), and the names of their classes."""
        return replace(self, labels=labels, task=replace(self.task, names=class_names))

    def changed(self, labels: Array | None, *added: Self) -> Self:
        """Return the set with other samples after its own, and labels (N + M, …) of all; None for their own.

        Samples whose label is blank are left out; all keep their places.
        """
        parts = tuple(part for samples in (self, *added) for part in samples.parts)
        return replace(self, source=Joined(parts), places=None, labels=labels, marks=())

    @property
    def parts(self) -> tuple[Self, ...]:
        """The sets that ``changed`` combined, else the set itself."""
        joined = isinstance(self.source, Joined) and self.places is None and not self.marks
        return self.source.parts if joined else (self,)

    @cached_property
    def corpus(self) -> Corpus | None:
        """The documents whose places the samples are, all of them, in their order; None of other samples."""
        parts = [part for part in self.parts if part.places is None and not part.marks]
        sources = [part.source for part in parts if isinstance(part.source, Corpus)]
        whole = self.places is None and not self.marks and len(sources) == len(self.parts)
        return Corpus.joined(sources) if whole else None

    @cached_property
    def example(self) -> Any:
        """The inputs of the first sample as a batch of one before ``preprocess``; None of a corpus."""
        return None if self.corpus is not None else first_sample(self, self.prepare)

    def marked(self, mark: Mark) -> Self:
        """Return the set with a change of samples' inputs, after those that it has."""
        return replace(self, marks=(*self.marks, mark))

    @property
    def _reading(self) -> Reader:
        return Reader(self, self._collate, self.workers, self.on_error)

    def _collate(self, items: list[Any], indices: list[int]) -> tuple[Any, Array]:
        """Make the model's inputs and labels (B, …) of samples."""
        if not items:
            return None, self.task.blank(0)
        inputs, labels = self.prepare.labelled(items)
        if len(labels) != len(items):
            raise InvalidInputError(
                f"'collate_fn' must keep one label per sample. Got {len(labels)} for {len(items)} samples."
            )
        return inputs, self.task.encode(labels, indices)

    def _cut(self, rows: slice | Ints, indices: Ints) -> Batch:
        """Return rows of arrays as a batch, of a slice without a copy."""
        assert self.labels is not None
        return Batch(self.source.inputs[self._place(rows)], self.labels[rows], indices)

    def _place(self, indices: Any) -> Any:
        return indices if self.places is None else self.places[indices]


def _first_labels(source: Any, prepare: Prepare) -> Any:
    """Return labels as a source has them: all that it lists, or those of the first samples."""
    if isinstance(source, Columns):
        return source.labels
    known = listed_labels(source)
    if known is not None:
        return known
    labels: list[Any] = []
    for place in range(min(len(source), _FIRST)):
        try:
            items = [source[place]]
            label = split(items[0] if prepare.collate_fn is None else prepare.collate_fn(items))[1]
        except Exception:  # whoever reads the sample in earnest reports it
            continue
        labels.append(label if prepare.collate_fn is None else label[0])
        if isinstance(labels[0], int | np.integer | str):  # a class, of which one is enough
            break
    return labels


def _changed(change: Change, inputs: Any, rng: np.random.Generator) -> Any:
    with name_errors("'shortcut' must be a function of a sample's inputs and a random generator. It"):
        return change(inputs, rng)
