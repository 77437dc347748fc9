"""Summary of results: scores, ties, ranks and costs, with the paper's numbers."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.stats import rankdata

from whence.core.arrays import Doubles
from whence_studies.comparison import standard_error, ties, ties_of_runs
from whence_studies.suite.metric import METRICS, Accuracies, Column, Curves, Numbers
from whence_studies.suite.protocol import RANDOM, Method
from whence_studies.suite.results import COSTS, ERROR, SPREAD, Results, loss_of

Section = TypeVar("Section", Curves, Accuracies, Numbers)


@dataclass(frozen=True)
class Cell:
    """A table cell: its value, whether it is the best or tied with it, a note, and whether it failed."""

    value: float | None
    best: bool
    tied: bool
    note: str
    failed: bool


class Retrained(NamedTuple):
    """Accuracies of retrained models by the share kept or removed.

    Attributes
    ----------
    shares : ascending shares
    rows : methods, with our accuracies and the paper's by share
    spreads : standard deviations of ours between training seeds, by a method's key and by share
    place : where the paper prints its accuracies
    """

    shares: list[float]
    rows: list[tuple[Method, dict[float, float], dict[float, float]]]
    spreads: dict[str, dict[float, float]]
    place: str | None

    @property
    def spread(self) -> bool:
        """Whether there are several training seeds."""
        return any(self.spreads.values())

    def best(self, share: float, rising: bool) -> float:
        """Return the best of our accuracies at a share."""
        return (max if rising else min)(ours[share] for _, ours, _ in self.rows if share in ours)


class ResultSummary:
    """A summary of results for the page and for the command line."""

    def __init__(self, results: Results) -> None:
        self.results = results
        # Results were validated when they were made; a user's own classes are not needed to show them.
        self.everyone = [Method.model_construct(**given) for given in results.protocol["methods"]]
        self.methods = [method for method in self.everyone if not method.sweep]
        kinds = {key: METRICS.get(key, "metrics") for key in results.protocol["metrics"]}
        self.metrics = list(kinds.values())
        self._options = {metric.name: results.protocol["metrics"][key] for key, metric in kinds.items()}
        self._owners = {
            replace(column, metric=column.metric or metric.name): metric.name
            for metric in self.metrics
            for column in metric.columns_for(self._options[metric.name])
        }
        self.columns = list(self._owners)

    def owner(self, column: Column) -> str:
        """Return the name of a column's metric; its rows may have another."""
        return self._owners[column]

    @cached_property
    def values(self) -> dict[Column, dict[str, float]]:
        """Scores by column and method."""
        by_column = {}
        for column in self.columns:
            scores = {method.key: self._value(method.key, column) for method in self.methods}
            by_column[column] = {key: value for key, value in scores.items() if value is not None}
        return by_column

    def _value(self, key: str, column: Column) -> float | None:
        if not column.first:
            return self.results.value(column.metric, key)
        return min(self.curve(column.metric, key, "loss"), default=(0.0, None))[1]

    def table(self) -> list[tuple[Method, list[Cell]]]:
        """Return the scores of all methods, column by column."""
        by_column = [self._column(column) for column in self.columns]
        return [(method, [cells[i] for cells in by_column]) for i, method in enumerate(self.methods)]

    def _column(self, column: Column) -> list[Cell]:
        values = self.values[column]
        competing = [m.key for m in self.methods if m.competes and m.key in values]
        tied = self._tied(column, competing)
        best = (max if column.rising else min)((values[key] for key in competing), default=None)
        cells = []
        for method in self.methods:
            value = values.get(method.key)
            failed = self.results.select(self._owners[column], method.key, ERROR)
            scores = self.results.select(column.metric, method.key, "score")
            note = (failed or scores)[0].note if failed or scores else ""
            is_best = method.competes and value is not None and value == best
            cells.append(Cell(value, is_best, method.key in tied and not is_best, note, bool(failed)))
        return cells

    def _tied(self, column: Column, present: list[str]) -> set[str]:
        """Return the methods that are tied with the best one."""
        if column.ties == "given":
            return {key for key in present if self.results.value(column.metric, key, "tied_with_best")}
        values = self._each(column, present)
        if values is None or column.ties == "none":
            return set()
        n = values.shape[1]
        # Larger losses have a larger spread; the spread of their logarithms is about equal.
        same = ties_of_runs(np.log(values)) if column.ties == "runs" else ties(values, np.arange(n))
        means = values.mean(axis=1)
        best = int(np.argmax(means if column.rising else -means))
        return {key for key, tied in zip(present, same[best], strict=True) if tied}

    def _each(self, column: Column, present: list[str]) -> Doubles | None:
        """Return values (method, n) whose means are the scores: of tests, wrong labels, or training seeds.

        None if there are fewer than two, or if methods have different numbers of them.
        """
        values = [self._values_of(column, key) for key in present]
        counts = {len(row) for row in values}
        return np.array(values, dtype=np.float64) if len(counts) == 1 and min(counts) > 1 else None

    def _values_of(self, column: Column, key: str) -> list[float | None]:
        if not column.first:
            return [row.value for row in self.results.select(column.metric, key, "each")]
        curves = [self.curve(column.metric, key, loss_of(seed)) for seed in range(self.seeds(column.metric))]
        return [min(curve)[1] for curve in curves if curve]

    def judged(self) -> list[tuple[str, list[str]]]:
        """Return how ties are tested, with the columns for each test."""
        titles: dict[str, list[str]] = {}
        for column in self.columns:
            titles.setdefault(self._how(column), []).append(column.title)
        return list(titles.items())

    def seeds(self, metric: str) -> int:
        """Return the number of training seeds of a metric that retrains models, else 0."""
        return int(self._options.get(metric, {}).get("seeds", 0))

    def _how(self, column: Column) -> str:
        if column.ties in ("given", "none"):
            return column.how
        if column.ties == "runs" and self.seeds(column.metric) == 1:
            return "one training seed: differences cannot be tested"
        if self._each(column, list(self.values[column])) is None:
            return "the results have no single values: differences cannot be tested"
        return column.how.format(seeds=self.seeds(column.metric))

    def interval(self, column: Column, key: str) -> tuple[float, float] | None:
        """Return the 95 % interval of a score over subsets for LDS, else over tests; None for losses."""
        low, high = (self.results.value(column.metric, key, end) for end in ("low", "high"))
        if low is not None and high is not None:
            return low, high
        values = None if column.ties == "runs" else self._each(column, [key])
        if values is None:
            return None
        half = 1.96 * float(standard_error(values, np.arange(values.shape[1]))[0])
        return float(values.mean()) - half, float(values.mean()) + half

    @cached_property
    def ranks(self) -> dict[str, tuple[float, int]]:
        """Average rank of each method over the columns with a score, and their number."""
        by_method: dict[str, list[float]] = {}
        for column, scores in self.values.items():
            values = np.array(list(scores.values()))
            for key, rank in zip(scores, rankdata(-values if column.rising else values), strict=True):
                by_method.setdefault(key, []).append(float(rank))
        return {key: (float(np.mean(ranks)), len(ranks)) for key, ranks in by_method.items()}

    @property
    def on_cpu(self) -> bool:
        """Whether the work ran on the CPU: CPU-seconds are not lengthened by other jobs."""
        return bool(self.results.protocol["model"]["device"] == "cpu")

    def seconds(self, method: Method) -> float:
        """Return the seconds of fitting and of explaining all tests; 0 if unknown."""
        return self._cost(method, ["cpu_seconds"] if self.on_cpu else ["fit_seconds", "explain_seconds"])

    def cost(self, method: Method, name: str) -> float | None:
        """Return a cost of a method in the first scene that needed its scores."""
        return self.results.value(COSTS, method.key, name)

    def by_model(self, column: Column) -> list[tuple[Method, list[float]]]:
        """Return the scores of methods for each explained model; empty if there is only one model."""
        scored = [(m, [v for _, v in self.curve(column.metric, m.key, "model")]) for m in self.methods]
        return [(method, values) for method, values in scored if values]

    def curve(self, metric: str, key: str, quantity: str) -> list[tuple[float, float]]:
        """Return the points of a method's curve."""
        rows = self.results.select(metric, key, quantity)
        return [(row.x, row.value) for row in rows if row.x is not None and row.value is not None]

    def sections(self, kind: type[Section]) -> list[tuple[str, Section]]:
        """Return the sections of one kind, with the names of their metrics."""
        return [(m.name, one) for m in self.metrics for one in m.sections if isinstance(one, kind)]

    def retrained(self) -> list[tuple[str, Accuracies, Retrained]]:
        """Return accuracies of retrained models, with the paper's, by metric."""
        tables = []
        for metric, section in self.sections(Accuracies):
            table = paper().get(metric, {}).get(self.results.protocol["data"]["name"], {})
            curves = [(m, dict(sorted(self.curve(metric, m.key, "accuracy")))) for m in self.methods]
            shares = sorted({share for _, curve in curves for share in curve})
            kept = {share: share if section.what == "Kept" else 1 - share for share in shares}
            rows = []
            for method, ours in curves:
                theirs = {share: printed(table, method, kept[share]) for share in shares}
                known = {share: value for share, value in theirs.items() if value is not None}
                rows += [(method, ours, known)] if ours else []
            spreads = {m.key: dict(self.curve(metric, m.key, SPREAD)) for m in self.methods}
            tables += (
                [(metric, section, Retrained(shares, rows, spreads, table.get("place")))] if rows else []
            )
        return tables

    def statements(self) -> list[dict[str, Any]]:
        """Return the paper's statements about the data set, with our measurements of the same quantities."""
        key, data = paper()["method"]["key"], self.results.protocol["data"]["name"]
        paper_method = next((m for m in self.methods if m.key == key and key in self.ranks), None)
        rows = []
        for statement in paper()["statements"]:
            theirs, ours = (
                statement["values"].get(data),
                paper_method and self._measured(statement, paper_method),
            )
            if ours or theirs is not None:
                rows.append({**statement, "theirs": theirs, "ours": ours or None})
        return rows

    def _measured(self, statement: Mapping[str, Any], paper_method: Method) -> float | None:
        """Return our measurement for a statement of the paper about its method, or None."""
        others = [m for m in self.methods if m.name not in (paper_method.name, RANDOM)]
        if "costs" in statement:
            theirs = [self._cost(m, statement["costs"]) for m in others if m.name in statement["of"]]
            mine, least = self._cost(paper_method, statement["costs"]), min(filter(None, theirs), default=0.0)
            return least / mine if mine else None
        if statement["id"] == "rank":
            ranks = [self.ranks[m.key][0] for m in others if m.key in self.ranks]
            return 1 + sum(rank < self.ranks[paper_method.key][0] for rank in ranks)
        if statement["id"] == "top_three":
            return sum(self._among_three(column, paper_method.name, others) for column in self.columns)
        return None

    def _cost(self, method: Method, names: list[str]) -> float:
        return sum(self.cost(method, name) or 0.0 for name in names)

    def _among_three(self, column: Column, name: str, others: list[Method]) -> bool:
        """Return whether a method, with its best options, is among the best three of a column."""
        sign = 1 if column.rising else -1
        scores = {key: sign * value for key, value in self.values[column].items()}
        of_method = [scores[m.key] for m in self.methods if m.name == name and m.key in scores]
        return bool(of_method) and sum(scores.get(m.key, -math.inf) > max(of_method) for m in others) < 3


@cache
def paper() -> dict[str, Any]:
    """Return the numbers that the paper prints."""
    return tomllib.loads(files("whence_studies.report").joinpath("paper.toml").read_text(encoding="utf-8"))


def kind(method: Method) -> str:
    """Return the style of a method: the paper's method, chance, or any other."""
    return {paper()["method"]["name"]: "dual", RANDOM: "chance"}.get(method.name, "")


def printed(table: Mapping[str, Any], method: Method, share: float) -> float | None:
    """Return the accuracy that the paper prints for a method and a kept share, or None."""
    accuracies = table.get(method.key) or table.get(method.name)
    kept = 10 * share  # it prints them at 10, 20, … 90 %
    return accuracies[round(kept) - 1] / 100 if accuracies and math.isclose(kept, round(kept)) else None
