"""Attribution methods and their registry."""

from __future__ import annotations

from os import PathLike

from torch import nn

from whence import store
from whence.attributors.base import Attributor, Limits, Ranked, TopK
from whence.attributors.dualda import DualDA
from whence.attributors.graddot import GradCos, GradDot, TracIn
from whence.attributors.trak import TRAK
from whence.errors import InvalidInputError, StoreError

__all__ = [
    "TRAK",
    "Attributor",
    "DualDA",
    "GradCos",
    "GradDot",
    "Limits",
    "Ranked",
    "TopK",
    "TracIn",
    "get",
    "load",
    "names",
]

# One line a method; the command line, the evaluation and the contract tests read this table.
_TABLE: tuple[type[Attributor], ...] = (
    DualDA,
    GradDot,
    GradCos,
    TracIn,
    TRAK,
)
_METHODS = {method.name: method for method in _TABLE}


def names() -> list[str]:
    """Names of the attribution methods, sorted."""
    return sorted(_METHODS)


def get(name: str) -> type[Attributor]:
    """Return the class of an attribution method by its name.

    Examples
    --------
    >>> get("dualda").__name__
    'DualDA'
    """
    if name not in _METHODS:
        raise InvalidInputError(f"'name' must be one of {', '.join(names())}. Got {name!r}.")
    return _METHODS[name]


def load(path: str | PathLike[str], model: nn.Module | None = None) -> Attributor:
    """Read a saved attributor.

    Parameters
    ----------
    path
        The file that ``save`` wrote.
    model
        The model it was fitted on, needed to attribute inputs; features can be attributed without it.
        A model with other weights is refused with StoreError, which says what differs.
    """
    arrays, manifest = store.read(path)
    method = manifest.get("method")
    if method not in _METHODS:
        raise StoreError(f"{path} was saved by the method {method!r}, which this version of whence lacks.")
    attributor = _METHODS[method]._restore(arrays, manifest, model)
    attributor.fit_seconds_ = 0.0
    return attributor
