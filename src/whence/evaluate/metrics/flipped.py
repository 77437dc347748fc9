"""What pair flipping found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from whence.core.arrays import Doubles, Ints, Mask
from whence.evaluate.metrics.comparison import standard_error, table

Side = Literal["test", "train"]


@dataclass(frozen=True, eq=False)
class FlippingResult:
    """How fast the scores of pairs fall when their most relevant features are removed first.

    Attributes
    ----------
    methods : names
    side : the sample that features were removed from
    shares : (steps + 1,) of the features removed, from 0 to 1
    curves : (method, steps + 1) mean of τ(removed)/τ(0) over the pairs
    areas : (method, pair) area under each pair's curve; **lower is better**
    scores : (pair,) τ(0); positive for proponents, negative for opponents
    tests, trains : (pair,) which test sample, and which training sample
    ties : (method, method) whether two mean areas cannot be told apart: the 95 % interval of their difference
        over test samples drawn with replacement holds 0
    """

    methods: tuple[str, ...]
    side: Side
    shares: Doubles
    curves: Doubles
    areas: Doubles
    scores: Doubles
    tests: Ints
    trains: Ints
    ties: Mask

    @property
    def mean(self) -> Doubles:
        """Mean area of each method, (method,)."""
        mean: Doubles = self.areas.mean(axis=1)
        return mean

    @property
    def standard_error(self) -> Doubles:
        """Standard error of each mean, (method,), NaN of a single test sample, whose pairs count as alike."""
        return standard_error(self.areas, self.tests)

    def __str__(self) -> str:
        """Write a table in Markdown, the best method first."""
        both = zip(self.mean, self.standard_error, strict=True)
        cells = [f"{mean:.3f} ± {error:.3f}" for mean, error in both]
        return table("area", self.methods, cells, np.argsort(self.mean, kind="stable"), self.ties)

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types that JSON takes."""
        arrays = ("shares", "curves", "areas", "scores", "tests", "trains", "ties", "mean", "standard_error")
        plain: dict[str, Any] = {"methods": list(self.methods), "side": self.side}
        plain |= {name: getattr(self, name).tolist() for name in arrays}
        # JSON has no NaN, which the error of a single test is.
        plain["standard_error"] = [None if np.isnan(error) else error for error in plain["standard_error"]]
        return plain
