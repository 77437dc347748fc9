"""Progress of long work: bars in a terminal, and listeners such as a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from whence.core.checks import check_flag

Part = TypeVar("Part")
Listener = Callable[[str, int, int], None]
"""Called with the step, the done units and the total (0 if unknown). An exception stops the work."""

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
    """Make a tqdm progress bar with a description, the elapsed time and the remaining time.

    ``initial`` of ``total`` units are done already. The bar goes through ``parts``, or is moved by hand where
    they are None; ``options`` are further options of tqdm.
    """
    from tqdm.auto import tqdm  # slow to import

    show = check_flag("show_progress", show)
    layout: dict[str, Any] = {"desc": what, "total": total, "unit": unit, "bar_format": _LAYOUT}
    return tqdm(parts, **layout, disable=not show, initial=initial, **options)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send the progress of work inside the block to a listener.

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


def report(what: str, done: int, total: int) -> None:
    """Report progress to listeners."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(what, done, total)


def watched(
    parts: Iterable[Part], total: int, what: str, show: bool, size: Callable[[Any], int] = len
) -> Iterator[Part]:
    """Yield parts of ``total`` samples with a progress bar that counts samples by the size of a part."""
    with bar(what, total, "samples", show=show) as shown:
        for part in parts:
            yield part
            shown.update(size(part))


@contextmanager
def gap_bar(tol: float, show: bool) -> Iterator[Callable[[float, float], None]]:
    """Show the decades of the gap from 1 to ``tol`` in a progress bar; yield a callback (seconds, gap)."""
    from tqdm.auto import tqdm  # slow to import

    decades = max(-math.log10(tol), 1e-9) if tol > 0 else 16.0
    digits = max(1, round(decades))
    title = f"Solving to a gap of {tol:.0e}"
    with tqdm(total=decades, desc=title, bar_format=_SOLVING, disable=not show) as shown:

        def move(seconds: float, gap: float) -> None:
            """Move on to ``gap``; a gap that grows again does not move the bar back."""
            done = decades if gap <= 0 else min(max(-math.log10(gap), shown.n), decades)
            shown.set_postfix_str(f"gap {gap:.1e}", refresh=False)
            shown.update(done - shown.n)
            report("Digits of the solution", min(int(done), digits), digits)

        report("Digits of the solution", 0, digits)
        yield move
