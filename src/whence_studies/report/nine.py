"""The nine columns that the paper's mean ranks are of, by loss as there or by accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from whence_studies.report.summary import ResultSummary, paper

Retraining = Literal["loss", "accuracy"]
"""The quantity of retrained models that coresets and pruning are judged by."""


class Ranked(NamedTuple):
    """A column that counts in mean ranks.

    Attributes
    ----------
    title : its title
    rising : whether higher is better
    scores : scores by key of the method
    without : names of methods that do not compete in it
    """

    title: str
    rising: bool
    scores: Mapping[str, float]
    without: frozenset[str] = frozenset()


def paper_columns(summary: ResultSummary, by: Retraining = "loss", wrong: str = "") -> list[Ranked]:
    """Return the paper's nine columns, or none if the results lack one.

    Parameters
    ----------
    summary
        The results of all protocols of a data set.
    by
        Whether coresets and pruning are judged by the loss, as in the paper, or by the accuracy.
    wrong
        The metric of wrong labels, if not the first of the paper's that there are results of.
    """
    columns = [_column(summary, given, by, wrong) for given in paper()["columns"]]
    return columns if all(column.scores for column in columns) else []


def _column(summary: ResultSummary, given: Mapping[str, Any], by: Retraining, wrong: str) -> Ranked:
    names = {column.metric for column in summary.columns}
    known = [wrong] if wrong and "without" in given else given["metrics"]
    metric = next((name for name in known if name in names), "")
    scores = {}
    for method in summary.methods if metric else ():
        value = _value(summary, metric, method.key, given.get("retrained"), by)
        if value is not None:
            scores[method.key] = value
    rising = given.get("rising", True) != ("retrained" in given and by == "accuracy")
    return Ranked(given["title"], rising, scores, frozenset(given.get("without", ())))


def _value(
    summary: ResultSummary, metric: str, key: str, retrained: str | None, by: Retraining
) -> float | None:
    """Return a score, or the loss or accuracy of retrained models: at the first share, or mean by 1/share."""
    if retrained is None:
        return summary.results.value(metric, key)
    curve = sorted(summary.curve(metric, key, by))
    if not curve or retrained == "first":
        return curve[0][1] if curve else None
    return sum(value / share for share, value in curve) / sum(1 / share for share, _ in curve)
