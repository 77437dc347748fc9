"""How far long work is, for those who listen: a page instead of a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Part = TypeVar("Part")
Listener = Callable[[str, int, int], None]
"""Takes what is done, how much of it, and of how much, 0 where nobody knows. What it raises ends the work."""

_LAYOUT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {unit}, {elapsed} so far, {remaining} left"

_SOLVING = "{desc}: {percentage:3.0f}%|{bar}| {elapsed} so far{postfix}"

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

    ``initial`` of ``total`` units are done already. The bar goes through ``parts``, or is moved by hand where
    they are None; ``options`` are others of tqdm.
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
    """Report to listeners how far work is."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(what, done, total)


def watched(
    parts: Iterable[Part], total: int, what: str, show: bool, size: Callable[[Any], int] = len
) -> Iterator[Part]:
    """Yield parts of ``total`` samples with a bar that counts samples by the size of a part."""
    with bar(what, total, "samples", show=show) as shown:
        for part in parts:
            yield part
            shown.update(size(part))


@contextmanager
def gap_bar(tol: float, show: bool) -> Iterator[Callable[[float, float], None]]:
    """Show how many decades of the gap from 1 to ``tol`` are done; yields a callback (seconds, gap)."""
    from tqdm.auto import tqdm  # which takes a while to import

    decades = max(-math.log10(tol), 1e-9) if tol > 0 else 16.0
    digits = max(1, round(decades))
    title = f"Solving to a gap of {tol:.0e}"
    with tqdm(total=decades, desc=title, bar_format=_SOLVING, disable=not show) as shown:

        def move(seconds: float, gap: float) -> None:
            """Move on to ``gap``; a gap that grows again does not move the bar back."""
            done = decades if gap <= 0 else min(max(-math.log10(gap), shown.n), decades)
            shown.set_postfix_str(f"gap {gap:.1e}", refresh=False)
            shown.update(done - shown.n)
            tell("Digits of the solution", min(int(done), digits), digits)

        tell("Digits of the solution", 0, digits)
        yield move
