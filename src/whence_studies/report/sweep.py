"""Results of the sweep: every metric against the varied option of a method."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np

from whence_studies.report.summary import ResultSummary, paper
from whence_studies.suite.metric import Column
from whence_studies.suite.protocol import RANDOM, Method
from whence_studies.suite.results import loss_of

T = TypeVar("T")
Points = list[tuple[float, float]]


class SweptColumn(NamedTuple):
    """A column of the table of scores over the sweep.

    Attributes
    ----------
    column : the column
    points : ascending values of the option, with the score at each
    chance : score of the random attributor
    other : label and score of the best method that is neither swept nor random; the label counts ties
    """

    column: Column
    points: Points
    chance: float | None
    other: tuple[str, float] | None

    @property
    def best(self) -> Points:
        """The points with the best score, several if they are tied."""
        return _best(self.points, self.column.rising)

    @property
    def recommended(self) -> list[float | None]:
        """The scores at the values that the paper recommends; None for values outside the sweep."""
        return [dict(self.points).get(value) for value in paper()["method"]["choices"]]


class SweptResults:
    """The sweep of results; empty with fewer than three values."""

    def __init__(self, summary: ResultSummary) -> None:
        self.summary, self.results = summary, summary.results
        given = self.results.protocol.get("sweep", {})
        self.option, self.method = given.get("option", ""), given.get("method", paper()["method"]["name"])
        swept = [m for m in summary.everyone if m.name == self.method and set(m.options) == {self.option}]
        self.methods = sorted(swept, key=self.at) if len(swept) > 2 else []
        self._shared = cache(self._find_shared)

    def at(self, method: Method) -> float:
        """Return the value of the option."""
        return float(method.options[self.option])

    def columns(self) -> list[SweptColumn]:
        """Return all columns with at least three points."""
        return [swept for swept in map(self._column, self.summary.columns) if len(swept.points) > 2]

    def by_kappa(self) -> list[SweptColumn]:
        """Return the columns over κ = C·N·mean‖f‖² of each metric's scene, where κ is known."""
        columns = []
        for swept in self.columns():
            kappas = {self.at(m): self.kappa(swept.column, m) for m in self.methods}
            pairs = [(kappas[x], value) for x, value in swept.points]
            points = [(kappa, value) for kappa, value in pairs if kappa is not None]
            columns += [swept._replace(points=points)] if len(points) > 2 else []
        return columns

    def kappa(self, column: Column, method: Method) -> float | None:
        """Return κ of a method in the scene of a column."""
        return self.results.value(self.summary.owner(column), method.key, "kappa")

    def lines(self, metric: str, quantity: str) -> list[Points]:
        """Return a quantity over the sweep: one line per ``x`` of its rows, such as the class."""
        lines: dict[float | None, Points] = {}
        for method in self.methods:
            for row in self.results.select(metric, method.key, quantity):
                if row.value is not None:
                    lines.setdefault(row.x, []).append((self.at(method), row.value))
        return list(lines.values())

    def shared(self) -> list[tuple[list[str], tuple[float, ...], int]]:
        """Return retraining metrics, with the fractions and the number of seeds that all methods share."""
        by_shared: dict[tuple[tuple[float, ...], int], list[str]] = {}
        for metric in dict.fromkeys(s.column.metric for s in self.columns() if s.column.ties == "runs"):
            pairs = self._shared(metric)
            if pairs:
                fractions, seeds = sorted({p for _, p in pairs}), {seed for seed, _ in pairs}
                by_shared.setdefault((tuple(fractions), len(seeds)), []).append(metric)
        return [(metrics, *what) for what, metrics in by_shared.items()]

    def _column(self, column: Column) -> SweptColumn:
        pairs = [(self.at(method), self._value(column, method.key)) for method in self.methods]
        others = [m for m in self.summary.methods if m.name not in (self.method, RANDOM)]
        scored = [(m.label, value) for m in others if (value := self._value(column, m.key)) is not None]
        points = [(x, value) for x, value in pairs if value is not None]
        best = _best(scored, column.rising)
        other = (best[0][0] + f" and {len(best) - 1} more" * (len(best) > 1), best[0][1]) if best else None
        return SweptColumn(column, points, self._value(column, RANDOM), other)

    def _value(self, column: Column, key: str) -> float | None:
        """Return a score; for losses over the fractions and seeds that all methods share."""
        if column.ties != "runs":
            return self.results.value(column.metric, key)
        losses, pairs = self._losses(column.metric, key), sorted(self._shared(column.metric))
        if not losses or not pairs:
            return None
        if column.first:
            least = min(p for _, p in pairs)
            pairs = [(seed, p) for seed, p in pairs if p == least]
        weights = [1 / p for _, p in pairs]
        return float(np.average([losses[pair] for pair in pairs], weights=weights))

    def _find_shared(self, metric: str) -> set[tuple[int, float]]:
        """Return the pairs of a training seed and a fraction that all methods with losses share."""
        by_method = [set(self._losses(metric, method.key)) for method in self.summary.everyone]
        return (
            set.intersection(*by_method) if (by_method := [pairs for pairs in by_method if pairs]) else set()
        )

    def _losses(self, metric: str, key: str) -> dict[tuple[int, float], float]:
        return {
            (seed, p): loss
            for seed in range(self.summary.seeds(metric))
            for p, loss in self.summary.curve(metric, key, loss_of(seed))
        }


def _best(scored: list[tuple[T, float]], rising: bool) -> list[tuple[T, float]]:
    """Return the pairs with the best score, several if they are tied."""
    top = (max if rising else min)((value for _, value in scored), default=math.nan)
    return [pair for pair in scored if math.isclose(pair[1], top, rel_tol=1e-9)]
