"""Progress bars: of samples as they pass, and of a solver that reports its duality gap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tqdm.auto import tqdm

from whence.core import progress

Part = TypeVar("Part")

_LAYOUT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed} so far{postfix}"


def watched(
    parts: Iterable[Part], total: int, what: str, show: bool, size: Callable[[Any], int] = len
) -> Iterator[Part]:
    """Return the parts of so many samples, with a bar that counts samples by the size of a part."""
    with progress.bar(what, total, "samples", show=show) as bar:
        for part in parts:
            yield part
            bar.update(size(part))


@contextmanager
def gap_bar(tol: float, show: bool) -> Iterator[Callable[[float, float], None]]:
    """Show how many of the gap's decades from 1 to ``tol`` are done; what it gives takes (seconds, gap)."""
    decades = max(-math.log10(tol), 1e-9) if tol > 0 else 16.0
    with tqdm(
        total=decades, desc=f"Solving to a gap of {tol:.0e}", bar_format=_LAYOUT, disable=not show
    ) as bar:

        def move(seconds: float, gap: float) -> None:
            """Move on to ``gap``; a gap that grows again does not move the bar back."""
            done = decades if gap <= 0 else min(max(-math.log10(gap), bar.n), decades)
            bar.set_postfix_str(f"gap {gap:.1e}", refresh=False)
            bar.update(done - bar.n)
            progress.tell("Digits of the solution", min(int(done), digits), digits)

        digits = max(1, round(decades))
        progress.tell("Digits of the solution", 0, digits)
        yield move
