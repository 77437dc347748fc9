"""Sources of samples: columns, a dataset, a stream, folders. Each returns samples by index, unchanged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset

from whence.core.arrays import Array
from whence.core.checks import check_parts, shown, to_array
from whence.core.naming import optional_import
from whence.data.items import LABEL_NAMES
from whence.data.tables import column_values, is_table, labelled_table, table_inputs
from whence.errors import InvalidInputError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})


def as_source(data: Any) -> Any:
    """Return data as a source with a length and samples by index, or raise."""
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        data = data.tensors
    if is_table(data):
        data = labelled_table(data)
    pair = isinstance(data, tuple) and len(data) == 2
    if pair:
        data = _column(data[0]), _column(data[1])
    if pair and isinstance(data[0], Tensor | np.ndarray | Mapping | list):
        return Columns(*data)
    by_index = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    return (
        data if by_index and not isinstance(data, IterableDataset | Mapping | str | bytes) else Stream(data)
    )


def _column(values: Any) -> Any:
    """Return a table of pandas or its like as arrays, a column as an array of numbers or a list."""
    if is_table(values):
        return table_inputs(values)
    return column_values(values) if hasattr(values, "to_numpy") else values


@dataclass(frozen=True)
class Columns:
    """The pairs of (X, y); X may be a mapping of arrays or a list."""

    inputs: Any
    labels: Any

    def __post_init__(self) -> None:
        parts = list(self.inputs.values()) if isinstance(self.inputs, Mapping) else [self.inputs]
        check_parts("data", self.inputs)
        for part in (*parts, self.labels):
            if not hasattr(part, "__len__") or isinstance(part, str | bytes) or getattr(part, "ndim", 1) == 0:
                raise InvalidInputError(
                    f"'data' must be a pair of inputs and labels with as many rows. Got {shown(part)} in it."
                )
        lengths = {len(part) for part in parts}
        if lengths != {len(self.labels)}:
            raise InvalidInputError(
                f"'data' must give one label per sample. Got {' and '.join(map(str, lengths))} inputs and "
                f"{len(self.labels)} labels."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        x = self.inputs
        row = {name: part[index] for name, part in x.items()} if isinstance(x, Mapping) else x[index]
        return row, self.labels[index]


@dataclass(frozen=True)
class Joined:
    """Several sets of samples, concatenated."""

    parts: tuple[Any, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, index: int) -> Any:
        for part in self.parts:
            if index < len(part):
                return part[index]
            index -= len(part)
        raise IndexError(f"'index' must be below {len(self)}.")


class Stream:
    """An iterable read by index: forwards in its order, backwards by starting again."""

    def __init__(self, data: Any) -> None:
        if isinstance(data, Mapping | bytes | Iterator) or not isinstance(data, Iterable):
            hint = f" with {', '.join(map(str, data))}" if isinstance(data, Mapping) else ""
            raise InvalidInputError(
                "'data' must be a Dataset, a DataLoader, a tuple (X, y), the path of an image folder, or an "
                f"iterable that can be read again. Got {type(data).__name__}{hint}. "
                "Pass one split of several, and collect the samples of an iterator in a list first."
            )
        self.data = data
        self.length = len(data) if isinstance(data, Sized) else sum(1 for _ in data)
        self._samples: Iterator[Any] | None = None
        self._next, self._process = 0, os.getpid()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        # A forked process has a copy of the iterator, but the files behind it are one and the same.
        if self._samples is None or index < self._next or self._process != os.getpid():
            self._samples, self._next, self._process = iter(self.data), 0, os.getpid()
        ahead, self._next = index - self._next, index + 1
        try:
            return next(islice(self._samples, ahead, None))
        except StopIteration:
            self._samples = None
            raise IndexError(f"'data' has fewer than the {self.length} samples that it had before") from None
        except Exception:
            self._samples = None  # a generator is at its end after an error
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_samples": None, "_next": 0}  # a worker process begins its own reading


class ImageFolder(Dataset[Any]):
    """Pairs (image, class name) of the images below ``root/<class>/``, in the order of their paths.

    Attributes
    ----------
    root : the folder
    classes : the subfolders' names, sorted
    paths : the files, class after class
    labels : the class name of each
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            what = "is a file" if root.exists() else "does not exist"
            raise InvalidInputError(
                f"'data' must be a folder with a subfolder of images per class. Got '{root}', which {what}."
            )
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        images = [(path, folder.name) for folder in folders for path in _images(folder)]
        if not images:
            raise InvalidInputError(
                f"'data' must be a folder with a subfolder of images per class. Got '{root}' with "
                f"{len(folders)} subfolders and no image in them ({', '.join(sorted(SUFFIXES))})."
            )
        self.root, self.classes = root, [folder.name for folder in folders]
        self.paths = [path for path, _ in images]
        self.labels = [label for _, label in images]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, str]:
        with optional_import(
            "'data' is a folder of images, which needs Pillow. Run: pip install 'whence[images]'"
        ):
            from PIL import Image
        path = self.paths[index]
        try:
            with Image.open(path) as image:
                return image.convert("RGB"), self.labels[index]
        except (OSError, SyntaxError, ValueError) as error:  # Pillow's words for a broken file
            raise OSError(f"'{path}' cannot be read as an image ({error})") from error


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def data_names(dataset: Any) -> tuple[str, ...] | None:
    """Find the class names that a dataset carries: features["label"].names, or classes."""
    if isinstance(dataset, Subset):
        return data_names(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        names = {data_names(part) for part in dataset.datasets}
        return names.pop() if len(names) == 1 else None
    features: Any = getattr(dataset, "features", None)
    for name in LABEL_NAMES if isinstance(features, dict) else ():
        listed = getattr(features.get(name), "names", None)
        if listed:
            return tuple(map(str, listed))
    classes = getattr(dataset, "classes", None)
    return tuple(map(str, classes)) if isinstance(classes, list | tuple) and classes else None


def listed_labels(dataset: Any) -> Array | None:
    """Return all labels of a dataset without reading its samples; None where that cannot be done."""
    if isinstance(dataset, Subset):
        known = listed_labels(dataset.dataset)
        return None if known is None else known[np.asarray(dataset.indices)]
    if isinstance(dataset, ConcatDataset | Joined):
        several = (
            [part.known_labels() for part in dataset.parts]
            if isinstance(dataset, Joined)
            else [listed_labels(part) for part in dataset.datasets]
        )
        parts = [part for part in several if part is not None]
        return np.concatenate(parts) if len(parts) == len(several) else None
    if isinstance(dataset, TensorDataset):
        return dataset.tensors[-1].numpy(force=True)
    columns = getattr(dataset, "column_names", None)
    if isinstance(columns, list):
        names = [name for name in LABEL_NAMES if name in columns]
        return np.asarray(dataset[names[0]][:]) if len(names) == 1 else None
    for name in ("targets", "labels"):
        labels = getattr(dataset, name, None)
        if isinstance(labels, list | Tensor | np.ndarray) and len(labels) == len(dataset):
            return to_array("data", labels)
    return None
