"""Two methods side by side: who is better by more than a tie."""

from __future__ import annotations

import pytest
from tools.versus import Compared, compared

from whence_studies.suite import protocol
from whence_studies.suite.results import Results, Row


def results(metric: str, rows: dict[str, list[Row]]) -> Results:
    tables = {
        "name": "a",
        "data": {"name": "sample", "train": 100},
        "model": {"name": "narrow-cnn", "steps": 5},
        "methods": [
            {"name": "dualda", "label": "old"},
            {"name": "similarity", "label": "new"},
            {"name": "graddot"},
        ],
        "metrics": {metric: {}},
    }
    flat = tuple(row for those in rows.values() for row in those)
    return Results(flat, protocol.parse(tables).as_dict(), {"whence": "1"})


def each(method: str, values: list[float], metric: str) -> list[Row]:
    found = [Row(metric, method, "each", float(i), value) for i, value in enumerate(values)]
    return [Row(metric, method, "score", None, sum(values) / len(values)), *found]


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ([0.0, 0.2] * 50, [0.9, 1.0] * 50, "better"),
        ([0.9, 1.0] * 50, [0.0, 0.2] * 50, "worse"),
        ([1.0, 0.0] * 50, [1.0, 0.0] * 50, "level"),
        ([1.0, 0.0] * 50, [0.0, 1.0] * 49 + [1.0, 1.0], "level"),  # apart by one test of a hundred
        ([0.500] * 100, [0.505] * 100, "level"),  # for certain, but by less than .01
        ([0.50] * 100, [0.52] * 100, "better"),
    ],
)
def test_the_second_is_judged_beside_the_first_alone(
    old: list[float], new: list[float], verdict: str
) -> None:
    metric = "identical_class"
    methods = {"dualda": old, "similarity": new, "graddot": [1.0] * 100}  # the best of all does not count
    found = results(metric, {name: each(name, values, metric) for name, values in methods.items()})
    assert list(compared(found, "old", "new")) == [
        Compared("a", "Identical class", sum(old) / 100, sum(new) / 100, verdict)
    ]
    assert list(compared(found, "old", "nobody")) == []


@pytest.mark.parametrize(
    ("half", "new", "verdict"),
    [
        (0.06, 0.15, "level"),  # in the old one's interval
        (0.06, 0.17, "level"),  # the old one in the new one's
        (0.06, 0.25, "better"),
        (0.06, 0.01, "worse"),
        (0.1, 0.19, "level"),
    ],
)
def test_intervals_tell_of_lds(half: float, new: float, verdict: str) -> None:
    def lds(method: str, value: float, half: float) -> list[Row]:
        ends = {"score": value, "low": value - half, "high": value + half, "tied_with_best": 1.0}
        return [Row("lds", method, quantity, None, number) for quantity, number in ends.items()]

    rows = {"dualda": lds("dualda", 0.1, half), "similarity": lds("similarity", new, 0.08)}
    found = next(one for one in compared(results("lds", rows), "old", "new") if one.title == "LDS")
    assert (found.second, found.verdict) == (new, verdict)


def test_a_method_without_a_score_is_not_compared() -> None:
    metric = "identical_class"
    found = results(metric, {"dualda": each("dualda", [0.0, 1.0], metric)})
    assert list(compared(found, "old", "new")) == []
