"""How far long work is, for those who listen: a page instead of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Listener = Callable[[str, int, int], None]
"""Takes what is done, how much of it, and of how much, 0 where nobody knows. What it raises ends the work."""

_LAYOUT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {unit}, {elapsed} so far, {remaining} left"

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


def bar(
    what: str,
    total: int,
    unit: str,
    *,
    parts: Iterable[Any] | None = None,
    show: bool = True,
    initial: int = 0,
    **options: Any,
) -> Any:
    """Make a progress bar of tqdm that says what is done, how long it has taken and how long it will take.

    Parameters
    ----------
    what
        Is done, in words.
    total, unit, initial
        How many there are of what, in the plural, and how many are done already.
    parts
        To go through; None for a bar that is moved by hand.
    show
        Whether it is seen.
    options
        Others of tqdm.
    """
    from tqdm.auto import tqdm  # which takes a while to import

    layout: dict[str, Any] = {"desc": what, "total": total, "unit": unit, "bar_format": _LAYOUT}
    return tqdm(parts, **layout, disable=not show, initial=initial, **options)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Return a listener how far work is that is begun inside.

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
