"""The attribution methods by name: whence's own, and those that users register from outside."""

from __future__ import annotations

import inspect
from typing import Any

from whence.attributors.base import Attributor
from whence.core.registry import Registry


def _is_method(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Attributor) and not inspect.isabstract(thing)


METHODS: Registry[type[Attributor]] = Registry("attribution method", _is_method, lambda method: method.name)
"""The command line, the evaluation, ``load`` and the contract tests read this table."""

register = METHODS.add


def names() -> list[str]:
    """Names of the attribution methods, sorted."""
    return METHODS.names()


def get(name: str) -> type[Attributor]:
    """Return the class of an attribution method by its name, or the class that ``module:name`` finds.

    Examples
    --------
    >>> get("dualda").__name__
    'DualDA'
    """
    return METHODS.get(name)
