"""How far long work is, for those who listen: a page in the place of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, int, int], None]
"""Takes what is done, how much of it, and of how much, 0 where nobody knows. What it raises ends the work."""

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell a listener how far work is that is begun inside.

    Examples
    --------
    >>> from whence import engine
    >>> with listening(lambda what, done, total: print(what, done, "of", total)):
    ...     found = engine.results(abs, [-1, 2], title="numbers")
    numbers 0 of 2
    numbers 1 of 2
    numbers 2 of 2
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def tell(what: str, done: int, total: int) -> None:
    """Tell whoever listens how far work is."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(what, done, total)
