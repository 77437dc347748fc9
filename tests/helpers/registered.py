"""Registries that are as before after a test has added to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from whence.core import registry


@contextmanager
def forgetting() -> Iterator[None]:
    """Forget, at the end, what was registered inside, whole registries too."""
    for one in registry._ALL:
        one.names()  # imports what it has by itself
    before = [(one, dict(one._things)) for one in registry._ALL]
    try:
        yield
    finally:
        registry._ALL[:] = [one for one, _ in before]
        for one, things in before:
            one._things = things
