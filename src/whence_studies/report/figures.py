"""Figures of the page of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from markupsafe import Markup

from whence_studies.report import charts
from whence_studies.report.charts import Axis, Dot, Line, line_chart, linear, powers
from whence_studies.report.counting import Count
from whence_studies.report.summary import ResultSummary, Retrained, kind
from whence_studies.report.sweep import Points, SweptColumn, SweptResults
from whence_studies.suite.metric import Accuracies, Column, Curves
from whence_studies.suite.protocol import RANDOM, Method

_UNIT = Axis(0.0, 1.0, (0.0, 0.5, 1.0))
_SHARES = Axis(1e-3, 1.0, (1e-3, 1e-2, 1e-1, 1.0), log=True)
Panels = list[tuple[str, Markup]]
_NONE: Mapping[str, Points] = {}


class Figures:
    """Charts of results; a figure without results is empty."""

    def __init__(self, summary: ResultSummary, sweep: SweptResults) -> None:
        self.summary, self.sweep, self.results = summary, sweep, summary.results

    def scores(self) -> list[tuple[Column, Markup]]:
        """Return one chart per column: all methods, the best first."""
        return [(column, self._score_chart(column, v)) for column, v in self.summary.values.items() if v]

    def _score_chart(self, column: Column, scores: Mapping[str, float]) -> Markup:
        scored = [(m, scores[m.key]) for m in self.summary.methods if m.key in scores]
        present = sorted(scored, key=lambda pair: pair[1], reverse=column.rising)
        rows = [Dot(m.label, v, self.summary.interval(column, m.key), _style(m)) for m, v in present]
        ends = [end for row in rows if row.interval for end in row.interval]
        title = f"{column.unit} ({'→' if column.rising else '←'} better)"
        axis = linear([v for _, v in present] + ends, title, zero=True)
        chance = next((v for m, v in present if m.name == RANDOM), None)
        return charts.dot_chart(rows, axis, f"{column.title}, by method", chance)

    def ranks(self, count: Count) -> Markup | None:
        """Draw mean rank against time for one count; the best are at the lower left."""
        points = [
            (place.label, place.seconds, place.rank, f"dot {place.kind}".strip())
            for place in count.places
            if place.seconds
        ]
        if not points:
            return None
        unit = "CPU-seconds" if self.summary.on_cpu else "seconds"
        x = powers([p[1] for p in points], f"{unit} of fitting and of explaining all tests (← faster)")
        y = linear([p[2] for p in points], "mean rank (↓ better)")
        return charts.scatter_chart(points, x, y, f"{count.title}: mean rank against seconds")

    def differences(self, count: Count) -> Markup:
        """Draw mean ranks with half the critical difference to either side; those that overlap are tied."""
        half = count.difference / 2
        rows = [
            Dot(place.label, place.rank, (place.rank - half, place.rank + half), f"dot {place.kind}".strip())
            for place in count.places
        ]
        axis = linear([end for row in rows if row.interval for end in row.interval], "mean rank (← better)")
        return charts.dot_chart(rows, axis, f"{count.title}: mean ranks with critical difference", None)

    def curves(self, scored: bool) -> list[tuple[str, Curves, list[tuple[str, Panels]]]]:
        """Return the curves of metrics with a score, or without: the text and panels of each quantity."""
        drawn_curves = []
        names = {column.metric for column in self.summary.columns}
        for metric, section in self.summary.sections(Curves):
            drawn = [
                (text, self._curves(metric, section, name, text)) for name, text in section.quantities.items()
            ]
            if (metric in names) == scored and drawn[0][1]:
                drawn_curves.append((metric, section, drawn))
        return drawn_curves

    def _curves(self, metric: str, section: Curves, quantity: str, text: str) -> Panels:
        x = replace(_SHARES if section.log else _UNIT, title=section.x)
        curves = {
            m.key: [(max(a, x.low), b) for a, b in self.summary.curve(metric, m.key, quantity)]
            for m in self.summary.methods
        }
        return self._panels(text, curves, x, replace(_UNIT, title=section.y))

    def retrained(self, metric: str, section: Accuracies, accuracies: Retrained) -> Panels:
        """Draw accuracies of retrained models against the share kept or removed, with the paper's."""
        if len(accuracies.shares) < 2:
            return []
        ours = {m.key: list(values.items()) for m, values, _ in accuracies.rows}
        theirs = {m.key: list(values.items()) for m, _, values in accuracies.rows}
        x = replace(_UNIT, title=f"share of the training samples {section.what.lower()}")
        values = [b for curves in (ours, theirs) for curve in curves.values() for _, b in curve]
        y = linear(values, f"accuracy ({'↑' if section.rising else '↓'} better)")
        return self._panels(f"Accuracy, {metric}", ours, x, y, theirs)

    def _panels(
        self, text: str, curves: Mapping[str, Points], x: Axis, y: Axis, theirs: Mapping[str, Points] = _NONE
    ) -> Panels:
        """Draw one panel per method: its curve, the random one, and the paper's if there is one."""
        chance = Line(curves.get(RANDOM, []), "line chance")
        panels = []
        for method in self.summary.methods:
            if curves.get(method.key) and method.name != RANDOM:
                lines = [chance, Line(theirs.get(method.key, []), "line paper")]
                lines.append(Line(curves[method.key], _style(method, "line")))
                panels.append((method.label, line_chart(lines, x, y, f"{text}: {method.label}")))
        return panels

    def swept(self) -> Panels:
        """Draw every metric, and properties of the surrogate, against the option of the sweep."""
        if not self.sweep.methods:
            return []
        x = powers(
            [self.sweep.at(method) for method in self.sweep.methods], f"{self.sweep.option} (→ sparser)"
        )
        panels = [(swept.column.title, _swept_chart(swept, x)) for swept in self.sweep.columns()]
        for metric in self.summary.metrics:
            for quantity, (title, unit) in metric.swept.items():
                lines = [Line(points, "line dual") for points in self.sweep.lines(metric.name, quantity)]
                if lines:
                    y = linear([value for line in lines for _, value in line.points], unit, zero=True)
                    panels.append((title, line_chart(lines, x, y, title)))
        return panels

    def swept_by_kappa(self) -> Panels:
        """Draw every metric against κ, which makes C comparable across data sets, scenes and features."""
        columns = self.sweep.by_kappa()
        if not columns:
            return []
        x = powers([kappa for one in columns for kappa, _ in one.points], "κ = C·N·mean‖f‖² (→ sparser)")
        return [(one.column.title, _swept_chart(one, x)) for one in columns]


def _swept_chart(swept: SweptColumn, x: Axis) -> Markup:
    """Draw a metric over the sweep, with the levels of chance and of the best other method."""
    column = swept.column
    levels = [] if swept.chance is None else [Line(_level(swept.chance, x), "line chance")]
    if swept.other is not None:
        levels.append(Line(_level(swept.other[1], x), "line level", swept.other[0]))
    values = [value for line in levels for _, value in line.points] + [value for _, value in swept.points]
    y = linear(values, f"{column.unit} ({'↑' if column.rising else '↓'} better)", zero=True)
    line = Line(swept.points, "line dual", marked=swept.best)
    return line_chart([*levels, line], x, y, f"{column.title} over the sweep")


def _level(value: float, x: Axis) -> list[tuple[float, float]]:
    return [(x.low, value), (x.high, value)]


def _style(method: Method, shape: str = "dot") -> str:
    return f"{shape} {kind(method)}".strip()
