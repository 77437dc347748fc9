"""Two methods of the study, column by column: where the second is better than the first, worse, or level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from whence_studies.report.summary import ResultSummary
from whence_studies.suite.metric import Column
from whence_studies.suite.results import Results

BETTER, WORSE, LEVEL = VERDICTS = "better", "worse", "level"
LEAST = 0.01  # of a score, and as a share of a loss: smaller differences are level, however certain they are


class Compared(NamedTuple):
    """A column that both methods have a score in.

    Attributes
    ----------
    protocol, title : what the column is of, and its title
    first, second : the scores
    verdict : of the second method
    """

    protocol: str
    title: str
    first: float
    second: float
    verdict: str


def compared(results: Results, first: str, second: str) -> Iterator[Compared]:
    """Compare two methods, by their labels, in every column of a protocol.

    Ties are those of the two alone, as the page judges them. Of LDS, whose ties are of all methods, scores
    are level where the 95 % interval of one holds the other. Differences below ``LEAST`` are level too.
    """
    both = [given for given in results.protocol["methods"] if given["label"] in (first, second)]
    summary = ResultSummary(replace(results, protocol={**results.protocol, "methods": both}))
    keys = {method.label: method.key for method in summary.methods}
    if keys.keys() != {first, second}:
        return
    cells = dict(zip(keys, ([*cells] for _, cells in summary.table()), strict=True))
    for i, column in enumerate(summary.columns):
        ours, theirs = cells[first][i], cells[second][i]
        if ours.value is None or theirs.value is None:
            continue
        verdict = BETTER if theirs.best else WORSE
        level = ours.tied or theirs.tied or ours.value == theirs.value
        if column.ties == "given":
            level = _overlap(summary, column, *keys.values())
        scale = abs(ours.value) if column.ties == "runs" else 1.0
        level = level or abs(theirs.value - ours.value) < LEAST * scale
        yield Compared(
            results.protocol["name"], column.title, ours.value, theirs.value, LEVEL if level else verdict
        )


def _overlap(summary: ResultSummary, column: Column, *keys: str) -> bool:
    """Return whether the interval of one of two scores holds the other one."""
    values, ends = summary.values[column], [summary.interval(column, key) for key in keys]
    pairs = zip(ends, (values[key] for key in reversed(keys)), strict=True)
    return any(end is not None and end[0] <= other <= end[1] for end, other in pairs)
