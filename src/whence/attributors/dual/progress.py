"""A progress bar for a solver that reports its duality gap."""

from __future__ import annotations

import math
from typing import Self

from tqdm.auto import tqdm


class GapBar:
    """Shows how many of the gap's decades from 1 to ``tol`` are done; call it with (seconds, gap)."""

    def __init__(self, tol: float, show: bool) -> None:
        self.decades = max(-math.log10(tol), 1e-9) if tol > 0 else 16.0
        layout = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}{postfix}"
        self.bar = tqdm(total=self.decades, desc="Solving", bar_format=layout, disable=not show)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def __call__(self, seconds: float, gap: float) -> None:
        """Move on to ``gap``; a gap that grows again does not move the bar back."""
        done = self.decades if gap <= 0 else min(max(-math.log10(gap), self.bar.n), self.decades)
        self.bar.set_postfix_str(f"gap {gap:.1e}", refresh=False)
        self.bar.update(done - self.bar.n)
