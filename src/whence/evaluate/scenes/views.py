"""A data set seen with other labels, marks on its inputs, or fewer samples. Nothing is copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm

from whence.core.checks import check_flag, check_places, shown, to_array
from whence.core.fingerprint import Digest
from whence.data.folder import ImageFolder
from whence.data.items import LABEL_NAMES, as_fields, split
from whence.data.labels import Labels, data_names
from whence.data.samples import Rows, Samples, Stream
from whence.errors import InvalidInputError, SampleError, WhenceError
from whence.evaluate.metrics.arrays import Ints, Mask
from whence.evaluate.scenes.shortcuts import Shortcut

_SAMPLED = 64  # samples of a lazy set whose contents enter a fingerprint


@dataclass(frozen=True, eq=False)
class View(Dataset[Any]):
    """A data set as it would be with other labels, shortcuts or fewer samples; the data stay as they are.

    Samples are read from ``data`` when they are asked for. Views of views add up.

    Attributes
    ----------
    data : what the samples are read from
    indices : (n,) place of each sample in ``data``
    labels : (n,) int64, as the model is to see them
    true_labels : (n,) int64, as they were before any perturbation
    class_names : of ``labels``, or None
    flipped_mask : (n,) True where the label was made wrong
    poisoned_mask : (n,) True where a shortcut was put on the input
    history : what was done, in words, in order
    marks : shortcuts, each with a mask (n,) of the samples it is put on and its seed
    """

    data: Any
    indices: Ints
    labels: Ints
    true_labels: Ints
    class_names: tuple[str, ...] | None
    flipped_mask: Mask
    poisoned_mask: Mask
    history: tuple[str, ...] = ()
    marks: tuple[tuple[Shortcut, Mask, int], ...] = ()

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes where torchvision's data sets have them, and whence looks for them."""
        return self.class_names

    @property
    def flipped(self) -> Ints:
        """Places in this view of the samples whose label was made wrong."""
        return np.flatnonzero(self.flipped_mask)

    @property
    def poisoned(self) -> Ints:
        """Places in this view of the samples that a shortcut was put on."""
        return np.flatnonzero(self.poisoned_mask)

    @property
    def n_classes(self) -> int:
        """The number of classes: of names, or one more than the largest label."""
        return int(self.labels.max()) + 1 if self.class_names is None else len(self.class_names)

    def __len__(self) -> int:
        """Give the number of samples."""
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        """Read a sample: with the shortcuts it was given and with its label here."""
        place, label = int(self.indices[index]), int(self.labels[index])
        item = self.data[place]
        inputs, _ = split(item)
        for shortcut, where, seed in self.marks:
            if where[index]:
                inputs = _with_mark(shortcut, inputs, np.random.default_rng([seed, place]))
        fields = as_fields(item)
        if fields is None:
            return inputs, label
        return {**inputs, next(name for name in LABEL_NAMES if name in fields): label}

    def contents(self) -> str:
        """Identify the inputs in ``data``: all of arrays, a seeded choice of what is read one by one."""
        digest = Digest()
        digest.add(_contents(self.data))
        return digest.hexdigest()

    def fingerprint(self, contents: str | None = None) -> str:
        """Identify samples, labels and shortcuts: equal for equal views, whoever made them.

        Parameters
        ----------
        contents
            What ``contents`` gave for the same data, where it is known: it takes longest.
        """
        if contents is not None and not isinstance(contents, str):
            raise InvalidInputError(f"'contents' must be what contents() gave. Got {shown(contents)}.")
        digest = Digest()
        digest.add([contents or self.contents(), self.indices, self.labels])
        for shortcut, where, seed in self.marks:
            digest.add([shortcut, where, seed])
        return digest.hexdigest()


def view(data: Any, show_progress: bool = True) -> View:
    """Give a view that changes nothing.

    Parameters
    ----------
    data
        A map-style ``Dataset``, a list of samples, a ``datasets.Dataset``, a tuple ``(X, y)``, the path of a
        folder with a subfolder of images a class, or a view. Labels are known without reading the inputs
        where the data set has them as an array; else every sample is read once.
    """
    show_progress = check_flag("show_progress", show_progress)
    if isinstance(data, View):
        return data
    if isinstance(data, str | Path):
        data = ImageFolder(Path(data))
    names = data_names(data)
    pair = isinstance(data, tuple) and len(data) == 2
    if pair and isinstance(data[0], Tensor | np.ndarray | Mapping | list):
        data = Rows(*data)
    encoder = Labels.of(None, names)
    samples = None if isinstance(data, DataLoader) else Samples(data, encoder)
    if samples is None or isinstance(samples.data, Stream):
        raise InvalidInputError(
            "'data' must be read by index: a map-style Dataset, a list, or a tuple (X, y). "
            f"Got {type(data).__name__}. Of a DataLoader pass its dataset; collect a stream in a list."
        )
    if len(samples) == 0:
        raise InvalidInputError("'data' must have at least one sample. Got an empty set.")
    labels = samples.labels()
    if labels is None:
        every = tqdm(range(len(samples)), "reading labels", delay=1, disable=not show_progress)
        labels = encoder.encode([split(samples[i][1])[1] for i in every])
    if labels.min() < 0:
        i = int(labels.argmin())
        raise SampleError(
            i, f"its label must not be negative; it is {labels[i]}", "Map the labels to 0 … K−1."
        )
    never = np.zeros(len(labels), dtype=bool)
    return View(samples.data, np.arange(len(labels)), labels, labels, names, never, never)


def subset(data: Any, indices: Any) -> View:
    """Take some of the samples, in the order given.

    Parameters
    ----------
    data
        As for ``view``.
    indices
        Places of samples, or a mask (n,) with True for those to take.
    """
    base = view(data)
    given = to_array("indices", indices)
    if given.dtype == np.bool_ and given.shape == (len(base),):
        given = np.flatnonzero(given)
    if given.ndim != 1 or given.dtype.kind not in "iu" or len(given) == 0:
        raise InvalidInputError(
            f"'indices' must be places of samples or a mask ({len(base)},), and not empty. "
            f"Got {given.dtype} of shape {given.shape}."
        )
    rows = check_places("indices", given, len(base))
    return replace(
        base,
        indices=base.indices[rows],
        labels=base.labels[rows],
        true_labels=base.true_labels[rows],
        flipped_mask=base.flipped_mask[rows],
        poisoned_mask=base.poisoned_mask[rows],
        history=(*base.history, f"subset of {len(rows)}"),
        marks=tuple((shortcut, where[rows], seed) for shortcut, where, seed in base.marks),
    )


def _with_mark(shortcut: Shortcut, inputs: Any, rng: np.random.Generator) -> Any:
    try:
        return shortcut(inputs, rng)
    except WhenceError:
        raise
    except Exception as error:
        raise InvalidInputError(
            "'shortcut' must be a function of a sample's inputs and a random generator. It failed: "
            f"{type(error).__name__}: {error}."
        ) from error


def _contents(data: Any) -> Any:
    if isinstance(data, Rows):
        return data.inputs
    n = len(data)
    chosen = np.random.default_rng(0).choice(n, min(n, _SAMPLED), replace=False)
    return [n, *(split(data[int(i)])[0] for i in np.sort(chosen))]
