"""Data sources, and samples drawn from them; whence's own sources are in ``sources``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from whence.core.arrays import Ints
from whence.core.checks import check_callable
from whence.core.naming import call_with, make_named
from whence.core.registry import Registry
from whence.errors import InvalidInputError
from whence_studies.scenes.views import View, view


@dataclass(frozen=True)
class Source:
    """A source of samples.

    Attributes
    ----------
    name : its name in protocols
    read : function that returns a mapping with ``train`` and ``test``, each inputs and labels or a torch data
        set of such pairs, and optionally ``class_names``. It is called with those of the arguments ``folder``
        (with the data), ``n_test`` (number of tests, None for all) and ``seed`` that it takes

    Examples
    --------
    >>> import whence
    >>> from whence_studies import Source
    >>> whence.register(Source("corners", lambda: {"train": ([[0.0]], [0]), "test": ([[1.0]], [0])})).name
    'corners'
    """

    name: str
    read: Callable[..., Mapping[str, Any]]

    def __post_init__(self) -> None:
        check_callable("read", self.read, "a function that returns train and test")


SOURCES: Registry[Source] = Registry(
    "data source", lambda thing: isinstance(thing, Source), stands_for=lambda source: source.read
)


class Lazy(Dataset[Any]):
    """Samples with known labels (N,) whose inputs are read on demand."""

    def __init__(self, labels: Ints, read: Callable[[int], Any]) -> None:
        self.labels, self.read = labels, read

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Read a sample."""
        return self.read(index), int(self.labels[index])


def default_folder() -> Path:
    """Return the folder with a subfolder per data set: ``WHENCE_DATA``, or ``~/.cache/whence/data``."""
    return Path(os.environ.get("WHENCE_DATA") or "~/.cache/whence/data").expanduser()


def require(path: Path, what: str) -> None:
    """Raise if a file or folder of a data set is missing; ``what`` says what to put there."""
    if not path.exists():
        raise InvalidInputError(
            f"There is no {path}. Put {what} there, or pass another folder with --data or WHENCE_DATA."
        )


def load(name: str, folder: Path, n_train: int | None, n_test: int | None, seed: int) -> tuple[View, View]:
    """Draw training samples and tests of a data set, balanced over classes; only these are read.

    Parameters
    ----------
    name
        Name of a source, or ``module:name`` of one, or of a function like its ``read``.
    folder
        Folder with one subfolder per data set, in its authors' format.
    n_train, n_test
        Numbers of samples; None takes all.
    seed
        Seed of the draw.

    Examples
    --------
    >>> train, test = load("sample", Path(), 100, 20, seed=0)
    >>> tuple(train[0][0].shape), np.bincount(test.labels).tolist()
    ((1, 28, 28), [2, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    """
    offered: dict[str, Any] = {"folder": folder, "n_test": n_test, "seed": seed}
    given = SOURCES.get(name, "data.name") if name in SOURCES else make_named("data.name", name, **offered)
    if isinstance(given, Source):
        given = call_with(given.read, **offered)
    if not isinstance(given, Mapping) or not {"train", "test"} <= given.keys():
        raise InvalidInputError(
            f"'data.name' must return a mapping with train and test, and optionally class_names. Got "
            f"{sorted(given) if isinstance(given, Mapping) else type(given).__name__} from {name!r}."
        )
    sizes = {"train": n_train, "test": n_test}
    parts = {what: view(given[what], show_progress=False) for what in sizes}
    K = 1 + max(int(part.labels.max()) for part in parts.values())
    names = tuple(str(one) for one in given.get("class_names") or range(K))
    if len(names) < K:
        raise InvalidInputError(f"'class_names' of {name!r} must name {K} classes. Got {len(names)}.")
    train, test = (taken(p, draw(p.labels, sizes[what], seed, what), names) for what, p in parts.items())
    return train, test


def draw(labels: Ints, size: int | None, seed: int, what: str) -> Ints:
    """Return the sorted indices of ``size`` samples, balanced over classes as far as possible."""
    if size is None:
        return np.arange(len(labels))
    if size > len(labels):
        raise InvalidInputError(f"'{what}' must be at most {len(labels)}, the number of samples. Got {size}.")
    order = np.random.default_rng(seed).permutation(len(labels))
    shuffled = labels[order]
    turn = np.empty(len(labels), dtype=np.int64)  # number of samples of its class before a sample
    for c in np.unique(shuffled):
        mine = shuffled == c
        turn[mine] = np.arange(mine.sum())
    return np.sort(order[np.argsort(turn, kind="stable")[:size]])


def taken(samples: View, places: Ints, class_names: tuple[str, ...] | None) -> View:
    """Read some samples, and return a view of these alone."""
    inputs = together([samples[int(place)][0] for place in places])
    return view((inputs, samples.labels[places]), show_progress=False, class_names=class_names)


def together(inputs: list[Any]) -> Tensor | list[str]:
    """Stack inputs into one tensor; texts stay a list."""
    if all(isinstance(one, str) for one in inputs):
        return inputs
    try:
        return torch.stack([torch.as_tensor(one) for one in inputs])
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"'data.name' must return texts, or tensors of one shape. Got {error}. Pad tensors of different "
            "shapes."
        ) from error
