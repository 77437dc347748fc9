"""The page of an evaluation: tables and figures in one HTML file without scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from os import PathLike
from typing import Any

from whence.core import store
from whence.core.display import in_words
from whence.errors import StoreError
from whence.explanation.page import style
from whence.pages.render import Look, read, render
from whence_studies.report.charts import legend, number
from whence_studies.report.counting import Count, counts
from whence_studies.report.figures import Figures
from whence_studies.report.summary import ResultSummary, kind, paper
from whence_studies.report.sweep import SweptColumn, SweptResults
from whence_studies.suite.metric import Column, Numbers
from whence_studies.suite.protocol import Method
from whence_studies.suite.results import ERROR, Results, Row


def write(path: str | PathLike[str], results: Results) -> None:
    """Render the page and write it."""
    store.write_text(path, render_page(results))


def render_page(results: Results) -> str:
    """Render the page of results as HTML; all texts from outside are escaped."""
    page = _Page(results)
    return render(
        "evaluation.html",
        [__package__],
        Look(f"{style()}\n{read(__package__, 'templates/evaluation.css')}"),
        protocol=results.protocol,
        versions=results.versions,
        page=page,
        number=number,
        kind=kind,
        recommended=paper()["method"]["choices"],
        legend=legend,
        in_words=in_words,
    )


class _Page:
    """The parts of the page for the template; a part without results is empty."""

    def __init__(self, results: Results) -> None:
        self.results, self.summary = results, ResultSummary(results)
        self.sweep = SweptResults(self.summary)
        self.figures = Figures(self.summary, self.sweep)
        self.labels = {method.key: method.label for method in self.summary.everyone}
        self.columns = self.summary.columns
        self.notes: dict[str, int] = {}

    def facts(self) -> dict[str, list[Row]]:
        """Return the facts of each scene."""
        by_scene: dict[str, list[Row]] = {}
        for row in self.results.select("scene"):
            by_scene.setdefault(row.method, []).append(row)
        return by_scene

    def counts(self) -> list[Count]:
        """Return mean ranks, in every way to count them."""
        return counts(self.summary)

    def note(self, text: str) -> int:
        """Return the number of a footnote; 0 for none."""
        return self.notes.setdefault(text, len(self.notes) + 1) if text else 0

    def sweep_table(self) -> list[tuple[SweptColumn, str]]:
        """Return each metric over the sweep, with the values of the option at which DualDA is best."""
        everything = [self.sweep.at(method) for method in self.sweep.methods]
        return [(one, _ranges([x for x, _ in one.best], everything)) for one in self.sweep.columns()]

    def caught(self) -> list[tuple[Column, list[Method], list[dict[str, Any]]]]:
        """Return columns of shortcuts, the methods that caught some, and explained pairs of texts."""
        tables = []
        for column in {column.metric: column for column in self.columns}.values():
            caught = self.results.select(column.metric, quantity="caught")
            methods = [m for m in self.summary.methods if m.key in {row.method for row in caught}]
            examples = [
                {"label": method.label, "score": row.value, **_example(row.note)}
                for method in methods
                for row in self.results.select(column.metric, method.key, "example")[:2]
            ]
            tables += [(column, methods, examples)] if methods else []
        return tables

    def numbers(self) -> list[tuple[str, Numbers, list[tuple[str, list[float | None]]]]]:
        """Return tables of other numbers by metric; rows may be of variants of methods."""
        tables = []
        for metric, section in self.summary.sections(Numbers):
            keys = dict.fromkeys(row.method for row in self.results.select(metric))
            rows = [
                (self._named(key), [self.results.value(metric, key, name) for name in section.quantities])
                for key in keys
                if not self.results.select(metric, key, ERROR)
            ]
            if rows := [row for row in rows if any(value is not None for value in row[1])]:
                tables.append((metric, section, rows))
        return tables

    def _named(self, key: str) -> str:
        """Replace keys by labels, also inside a longer name."""
        for method in sorted(self.summary.everyone, key=lambda m: -len(m.key)):
            key = key.replace(method.key, method.label)
        return key

    def choices(self) -> list[tuple[str, str, float | None]]:
        """Return tuned options, and their scores on the subsets for tuning."""
        rows = self.results.select("tuning", None, "chosen")
        return [(self.labels[row.method], _in_words(row.note), row.value) for row in rows]

    def troubles(self) -> list[tuple[str, str, str]]:
        """Return failures and warnings."""
        return [
            (row.metric, self.labels.get(row.method, row.method), row.note)
            for row in self.results.rows
            if row.quantity in (ERROR, "warning")
        ]


def _example(note: str) -> dict[str, Any]:
    """Read a pair of texts, word by word, with the largest relevance of each text."""
    with _noted(note):
        pair = json.loads(note)
        for side in ("test", "train"):
            one = pair[side]
            words = [
                {"word": word, "relevance": float(relevance), "inside": bool(inside)}
                for word, relevance, inside in zip(one["words"], one["relevance"], one["inside"], strict=True)
            ]
            pair[side] = {"words": words, "most": max(map(abs, one["relevance"]), default=0.0) or 1.0}
        return {name: pair[name] for name in ("predicted", "true", "test", "train")}


@contextmanager
def _noted(note: str) -> Iterator[None]:
    """Raise StoreError for a note that cannot be read."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"The results have a note that cannot be read, {note[:60]!r} ({error}).") from error


def _ranges(values: list[float], everything: list[float]) -> str:
    """Format values; neighbours among all values become a range."""
    runs = [list(run) for inside, run in groupby(everything, values.__contains__) if inside]
    return ", ".join(number(r[0]) if len(r) == 1 else f"{number(r[0])} to {number(r[-1])}" for r in runs)


def _in_words(options: str) -> str:
    with _noted(options):
        return ", ".join(f"{name} = {value}" for name, value in json.loads(options).items())
