"""The page of an evaluation: tables and figures of its results, without network and without scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from os import PathLike
from typing import Any

from markupsafe import Markup

from whence import store
from whence.evaluate.charts import (
    Axis,
    Dot,
    Line,
    dot_chart,
    line_chart,
    linear,
    number,
    powers,
    scatter_chart,
)
from whence.evaluate.protocol import RANDOM, Method
from whence.evaluate.results import ERROR, Results
from whence.evaluate.summary import COLUMNS, Cell, Column, Summary, paper, printed
from whence.explanation.page import render
from whence.features.resources import in_words

_UNIT = Axis(0.0, 1.0, (0.0, 0.5, 1.0))
_SHARES = {"coreset": "kept", "pruning": "removed"}
_FAITHFUL = ("agreement", "mcc", "weight_cosine", "logit_cosine")
_FACTS = {
    "n_train": "training samples",
    "n_test": "tests",
    "train_accuracy": "right on training samples",
    "test_accuracy": "right on tests",
    "clean_accuracy": "right on tests without the shortcut",
    "fooled": "share of other classes' tests that the shortcut fools",
    "n_fooled": "tests that it fools, on which it is measured",
    "needed": "share wanted",
    "poisoned": "share of the class with the shortcut, the score of knowing the class alone",
}
_COSTS = ("fit_seconds", "explain_seconds", "cpu_seconds", "cache_bytes", "peak_bytes")
_SURROGATE = {
    "train_accuracy": "Accuracy of the surrogate, training samples",
    "test_accuracy": "Accuracy of the surrogate, tests",
    "test_agreement": "Agreement with the model, tests",
    "solve_seconds": "Seconds to solve",
    "support_vectors": "Support vectors",
}


def write(path: str | PathLike[str], results: Results) -> None:
    """Render the page and write it."""
    store.write_text(path, render_page(results))


def render_page(results: Results) -> str:
    """Render the page of results as HTML; every text that comes from outside is escaped."""
    page = _Page(results)
    return render(
        "evaluation.html",
        packages=("whence.evaluate", "whence.explanation"),
        styles=("explanation.css", "evaluation.css"),
        protocol=results.protocol,
        versions=results.versions,
        page=page,
        number=number,
        citation=" ".join(paper()["citation"].split()),
    )


class _Page:
    """What the template shows, part by part; a part without results is empty."""

    def __init__(self, results: Results) -> None:
        self.results, self.summary = results, Summary(results)
        self.labels = {method.key: method.label for method in self.summary.everyone}
        self.columns = self.summary.columns
        self.notes: list[str] = []

    def facts(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Facts of each scene."""
        found: dict[str, list[tuple[str, str]]] = {}
        for row in self.results.select("scene"):
            found.setdefault(row.method, []).append(
                (row.quantity.replace("_", " "), number(row.value or 0.0))
            )
        return list(found.items())

    def table(self) -> list[tuple[Method, list[tuple[Cell, int]], str]]:
        """Scores of all methods, each with the number of its note, and the average rank."""
        rows = []
        for method, cells in self.summary.table():
            rank = self.summary.ranks.get(method.key)
            shown = (
                "–" if rank is None else f"{rank[0]:.1f}" + f" ({rank[1]})" * (rank[1] < len(self.columns))
            )
            rows.append((method, [(cell, self._note(cell.note)) for cell in cells], shown))
        return rows

    def _note(self, text: str) -> int:
        """Number a note; 0 for none."""
        if not text:
            return 0
        if text not in self.notes:
            self.notes.append(text)
        return self.notes.index(text) + 1

    def score_charts(self) -> list[tuple[Column, Markup]]:
        """One chart a column: all methods, the best first."""
        return [(column, self._score_chart(column)) for column in self.columns if self._present(column)]

    def _present(self, column: Column) -> list[tuple[Method, float]]:
        values = self.summary.values
        return [(m, values[m.key, column]) for m in self.summary.methods if (m.key, column) in values]

    def _score_chart(self, column: Column) -> Markup:
        present = sorted(self._present(column), key=lambda pair: pair[1], reverse=column.rising)
        rows = [Dot(m.label, v, self._interval(column, m), _style(m)) for m, v in present]
        ends = [end for row in rows if row.interval for end in row.interval]
        axis = linear([v for _, v in present] + ends, zero=True)
        chance = next((v for m, v in present if m.name == RANDOM), None)
        return dot_chart(rows, axis, f"{column.title}, by method", chance)

    def _interval(self, column: Column, method: Method) -> tuple[float, float] | None:
        low, high = (self.results.value(column.metric, method.key, end) for end in ("low", "high"))
        return None if low is None or high is None else (low, high)

    def rank_chart(self) -> Markup | None:
        """Average rank against time; the best are at the lower left."""
        points = []
        for method in self.summary.methods:
            seconds, rank = self.summary.seconds(method.key), self.summary.ranks.get(method.key)
            if seconds and rank and method.name != RANDOM:
                points.append((method.label, seconds, rank[0], _style(method)))
        if not points:
            return None
        axes = powers([p[1] for p in points]), linear([p[2] for p in points])
        return scatter_chart(points, *axes, "Average rank against seconds of fitting and explaining")

    def reliability(self) -> dict[str, float | None]:
        """How reliable the target of LDS is."""
        return {row.quantity: row.value for row in self.results.select("lds", "target")}

    def mislabeling_charts(self) -> list[tuple[str, Markup]]:
        """Share of wrong labels found, against the share inspected."""
        return self._panels("mislabeling", "curve", lambda x: x, _UNIT)

    def sparsity_charts(self, kind: str) -> list[tuple[str, Markup]]:
        """Share of the attribution held, against the share of training samples."""
        axis = Axis(1e-3, 1.0, (1e-3, 1e-2, 1e-1, 1.0), log=True)
        return self._panels("sparsity", kind, lambda x: max(x, 1e-3), axis)

    def _panels(
        self, metric: str, quantity: str, clip: Callable[[float], float], axis: Axis
    ) -> list[tuple[str, Markup]]:
        curves = {m.key: self._curve(metric, m.key, quantity, clip) for m in self.summary.methods}
        chance = Line(curves.get(RANDOM, []), "chance")
        return [
            (
                m.label,
                line_chart(
                    [chance, Line(curves[m.key], _style(m, "line"))], axis, _UNIT, f"{metric}: {m.label}"
                ),
            )
            for m in self.summary.methods
            if curves[m.key] and m.name != RANDOM
        ]

    def _curve(
        self, metric: str, key: str, quantity: str, clip: Callable[[float], float] = lambda x: x
    ) -> list[tuple[float, float]]:
        rows = self.results.select(metric, key, quantity)
        return [(clip(row.x), row.value) for row in rows if row.x is not None and row.value is not None]

    def sweep_charts(self) -> list[tuple[str, Markup]]:
        """Every metric and what the surrogate is like, against the option that was varied."""
        option = self.results.protocol["sweep_option"]
        swept = [m for m in self.summary.everyone if m.name == "dualda" and set(m.options) == {option}]
        swept.sort(key=lambda m: float(m.options[option]))
        if len(swept) < 3:
            return []
        at = [float(m.options[option]) for m in swept]
        axis = powers(at)
        found = []
        for column in (c for c in COLUMNS if c.metric not in ("coreset", "pruning")):
            pairs = [(x, self.results.value(column.metric, m.key)) for x, m in zip(at, swept, strict=True)]
            found += self._sweep_chart(column.title, [pairs], axis, self.results.value(column.metric, RANDOM))
        for quantity, title in _SURROGATE.items():
            pairs = [
                (float(m.options[option]), self.results.value("surrogate", m.key, quantity)) for m in swept
            ]
            found += self._sweep_chart(title, [pairs], axis, None)
        lines: dict[float, list[tuple[float, float | None]]] = {}
        for x, m in zip(at, swept, strict=True):
            for row in self.results.select("surrogate", m.key, "support_vectors_a_class"):
                lines.setdefault(row.x or 0.0, []).append((x, row.value))
        return found + self._sweep_chart("Support vectors of each class", list(lines.values()), axis, None)

    def _sweep_chart(
        self, title: str, several: list[list[tuple[float, float | None]]], x: Axis, chance: float | None
    ) -> list[tuple[str, Markup]]:
        lines = [[(a, b) for a, b in pairs if b is not None] for pairs in several]
        values = [b for line in lines for _, b in line]
        if not values:
            return []
        y = linear([*values, *([] if chance is None else [chance])], zero=True)
        level = [] if chance is None else [Line([(x.low, chance), (x.high, chance)], "chance")]
        return [(title, line_chart([*level, *(Line(line, "line dual") for line in lines)], x, y, title))]

    def retrained(self, metric: str) -> dict[str, Any] | None:
        """Accuracies of retrained models by the share kept or removed, and the paper's own."""
        shares = sorted({row.x for row in self.results.select(metric, None, "accuracy") if row.x is not None})
        if not shares:
            return None
        rows = []
        for method in self.summary.methods:
            ours = dict(self._curve(metric, method.key, "accuracy"))
            theirs = printed(metric, self.results.protocol["data"], method)
            if ours:
                rows.append((method.label, [ours.get(s) for s in shares], _at(theirs, shares, metric)))
        place = paper()[metric].get(self.results.protocol["data"], {}).get("place")
        return {"shares": shares, "rows": rows, "what": _SHARES[metric], "place": place}

    def faithfulness(self) -> list[tuple[str, list[float | None]]]:
        """Weight cosine and so on of the surrogates, sparsified ones too."""
        keys = dict.fromkeys(row.method for row in self.results.select("faithfulness"))
        return [
            (self._named(key), [self.results.value("faithfulness", key, name) for name in _FAITHFUL])
            for key in keys
            if not self.results.select("faithfulness", key, ERROR)
        ]

    def _named(self, key: str) -> str:
        """Put labels in the place of keys, also inside a longer name."""
        for method in sorted(self.summary.everyone, key=lambda m: -len(m.key)):
            key = key.replace(method.key, method.label)
        return key

    def costs(self) -> list[tuple[str, list[str]]]:
        """What each method cost, in words."""
        rows = []
        for m in self.summary.methods:
            values = [(name, self.results.value("resources", m.key, name)) for name in _COSTS]
            shown = [
                "–" if v is None else in_words(v) if "bytes" in name else number(v) for name, v in values
            ]
            rows.append((m.label, shown))
        return rows

    def choices(self) -> list[tuple[str, str, float | None]]:
        """Options that were chosen, and how they did on the subsets for tuning."""
        rows = self.results.select("tuning", None, "chosen")
        return [(self.labels[row.method], _in_words(row.note), row.value) for row in rows]

    def troubles(self) -> list[tuple[str, str, str]]:
        """What failed, and what was warned of."""
        return [
            (row.metric, self.labels.get(row.method, row.method), row.note)
            for row in self.results.rows
            if row.quantity in (ERROR, "warning")
        ]


def _cost(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    return in_words(value) if name.endswith("bytes") else number(value)


def _style(method: Method, kind: str = "dot") -> str:
    return f"{kind} dual" if method.name == "dualda" else f"{kind} chance" if method.name == RANDOM else kind


def _at(theirs: list[float] | None, shares: list[float], metric: str) -> list[float] | None:
    """Give the paper's accuracies at these shares; it prints what is kept, pruning counts what is removed."""
    if theirs is None:
        return None
    kept = [s if metric == "coreset" else 1 - s for s in shares]
    return [theirs[round(10 * k) - 1] / 100 for k in kept]


def _in_words(options: str) -> str:
    return ", ".join(f"{name} = {value}" for name, value in json.loads(options).items())
