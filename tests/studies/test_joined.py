"""Results of several protocols as one: what each has, and the first of what several have."""

from __future__ import annotations

from typing import Any

import pytest

from whence.errors import InvalidInputError
from whence_studies.report.counting import counts
from whence_studies.report.page import render_page
from whence_studies.report.summary import ResultSummary
from whence_studies.suite import protocol
from whence_studies.suite.merging import join_protocols
from whence_studies.suite.results import Results, Row


def results(name: str, metrics: list[str], scores: dict[str, list[float]], data: str = "sample") -> Results:
    """Results of methods in some metrics, and a second of each."""
    tables: dict[str, Any] = {
        "name": name,
        "data": {"name": data, "train": 100},
        "model": {"name": "narrow-cnn", "steps": 5},
        "methods": [{"name": method} for method in scores],
        "metrics": {metric: {} for metric in metrics},
    }
    rows = [Row("scene", "clean", "n_train", None, 100.0)]
    for method, values in scores.items():
        rows.append(Row("resources", method, "cpu_seconds", None, float(len(name))))
        rows += [
            Row(metric, method, "score", None, value) for metric, value in zip(metrics, values, strict=True)
        ]
    return Results(tuple(rows), protocol.parse(tables).as_dict(), {"whence": "1"})


A = results("a", ["identical_class", "shortcut"], {"similarity": [1.0, 0.2], "graddot": [0.5, 0.4]})
B = results("bb", ["identical_class", "mislabeling"], {"similarity": [0.1, 0.3], "graddot": [0.2, 0.6]})


def test_methods_are_ranked_over_the_columns_of_all() -> None:
    found = join_protocols([A, B], "both", "A and B")
    assert (found.protocol["name"], found.protocol["title"]) == ("both", "A and B")
    assert list(found.protocol["metrics"]) == ["identical_class", "shortcut", "mislabeling"]
    summary = ResultSummary(found)
    assert [list(scores.values()) for scores in summary.values.values()] == [
        [1.0, 0.5],
        [0.2, 0.4],
        [0.3, 0.6],
    ]
    every = counts(summary)[-1]
    # Graddot is second, first and first.
    assert [(p.label, p.rank, p.columns) for p in every.places] == [
        ("GradDot", pytest.approx(4 / 3), 3),
        ("Similarity", pytest.approx(5 / 3), 3),
    ]


def test_costs_are_of_the_first_and_facts_of_each() -> None:
    found = join_protocols([A, B], "both", "A and B")
    assert found.value("resources", "graddot", "cpu_seconds") == 1.0
    assert [row.method for row in found.select("scene")] == ["clean, a", "clean, bb"]
    assert [one["name"] for one in found.protocol["joined"]] == ["a", "bb"]
    assert "clean, bb" in render_page(found).lower()


def test_results_on_other_data_and_none_are_refused() -> None:
    other = results("c", ["shortcut"], {"similarity": [1.0]}, data="mnist")
    with pytest.raises(InvalidInputError, match=r"same data\. Got sample, mnist"):
        join_protocols([A, other], "both", "")
    with pytest.raises(InvalidInputError, match="Got none"):
        join_protocols([], "both", "")
