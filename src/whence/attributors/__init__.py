"""Attribution methods and their registry."""

from __future__ import annotations

from whence.attributors.base import Attributor, Ranked, TopK
from whence.attributors.dualda import DualDA
from whence.errors import InvalidInputError

__all__ = ["Attributor", "DualDA", "Ranked", "TopK", "get", "names"]

_METHODS: dict[str, type[Attributor]] = {method.name: method for method in (DualDA,)}


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
