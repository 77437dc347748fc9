"""What a file in ``packages`` has to say: how a package is installed, and what of it is measured.

A file is read by two interpreters: ours, which needs the tables only, and that of the package's own
environment, which runs the methods. So packages are imported inside methods, and nothing here needs more than
numpy and torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.scene import Scene

TORCH = ("torch==2.13.0", "numpy")
NAMES = (
    "whence",
    "dualxda",
    "kronfluence",
    "captum",
    "traker",
    "dattri",
    "bergson",
    "scikit_learn",
    "cleanlab",
)


class Method(ABC):
    """One way to attribute predictions, as a package offers it."""

    @abstractmethod
    def cache(self, scene: Scene, folder: Path) -> int | None:
        """Do the work that is done once, and return the bytes that are kept; None for none.

        ``folder`` is empty, and for whatever is to be written.
        """

    def explain(self, scene: Scene) -> np.ndarray | None:
        """Score the scene's tests for its targets: (test, train), or (test, k) where only the best are given.

        None where the package answers another question.
        """
        return None


@dataclass(frozen=True)
class Row:
    """A method with its options.

    Attributes
    ----------
    label : what the table calls it
    make : returns the method
    like : the method of whence that should agree, and its options; None where there is none
    per_test : whether explaining takes time per test, and not per test and training sample
    best : whether explaining returns only the best samples
    """

    label: str
    make: Callable[[], Method]
    like: tuple[str, dict[str, Any]] | None = None
    per_test: bool = False
    best: bool = False


@dataclass(frozen=True)
class Package:
    """A package with the rows that are measured.

    Attributes
    ----------
    name : of the distribution
    installs : arguments of pip, one call after another; none for our own environment
    rows : what is measured
    modules : what is imported before the clock starts
    without : modules that it imports and does not need here, to be replaced by empty ones
    """

    name: str
    installs: Sequence[Sequence[str]]
    rows: Sequence[Row]
    modules: Sequence[str]
    without: Sequence[str] = field(default=())


def package(name: str) -> Package:
    """Return the package that a file of ``packages`` describes."""
    found: Package = import_module(f"benchmarks.peers.packages.{name}").PACKAGE
    return found


def size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
