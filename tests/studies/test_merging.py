"""Results of several protocols, or of several runs of one, as one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from whence.errors import InvalidInputError
from whence_studies.report.counting import counts
from whence_studies.report.page import render_page
from whence_studies.report.summary import ResultSummary
from whence_studies.suite import protocol
from whence_studies.suite.merging import join_protocols, merge_runs
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


# Runs of one protocol

TABLES: dict[str, Any] = {
    "name": "mine",
    "data": {"name": "sample", "train": 100},
    "model": {"name": "narrow-cnn", "steps": 5},
    "methods": [{"name": "similarity"}, {"name": "trak"}, {"name": "graddot"}],
    "metrics": {"identical_class": {}},
}
WANTED = protocol.parse(TABLES)


def run(*methods: str, accuracy: float = 0.5, code: str = "1") -> Results:
    """Results of some methods, the random one first; the n-th has a score of n."""
    kept = WANTED.only(list(methods))
    rows = [Row("scene", "clean", "test_accuracy", None, accuracy)]
    for place, method in enumerate(kept.methods):
        score = float(WANTED.methods.index(method))
        rows.append(Row("identical_class", method.key, "score", None, score))
        rows.append(Row("resources", method.key, "cpu_seconds", None, float(place + len(methods))))
    return Results(tuple(rows), kept.as_dict(), {"whence": "1", "code": code})


def test_methods_of_both_runs_come_in_the_order_of_the_protocol() -> None:
    found = merge_runs(WANTED, [run("similarity", "graddot"), run("trak", code="2")])
    summary = ResultSummary(found)
    assert [method.label for method in summary.methods] == ["Random", "Similarity", "TRAK", "GradDot"]
    assert [cells[0].value for _, cells in summary.table()] == [0.0, 1.0, 2.0, 3.0]
    assert len(found.select("scene")) == 1
    # What two runs both have costs what the first says.
    assert found.value("resources", "random", "cpu_seconds") == 2.0
    assert found.versions == {"whence": "1", "code": "1, 2"}
    # What was merged can be merged again with a part of it.
    assert merge_runs(WANTED, [found, run("trak", code="2")]) == found


def test_a_single_run_stays_as_it_is() -> None:
    one = run("similarity", "trak", "graddot")
    found = merge_runs(WANTED, [one])
    assert (sorted(found.rows), found.protocol, found.versions) == (
        sorted(one.rows),
        one.protocol,
        one.versions,
    )


WHOLE = run("similarity")
LONGER = replace(WHOLE, rows=(*WHOLE.rows, Row("identical_class", "random", "each", 0.0, 1.0)))


@pytest.mark.parametrize(
    ("changes", "runs", "message"),
    [
        ({}, [], "Got none"),
        ({}, [WHOLE, run("trak", accuracy=0.75)], r"scene, clean, test_accuracy: 0\.5 and 0\.75"),
        ({}, [LONGER, run("trak")], "identical_class, random: 2 and 1 rows"),
        ({"seed": 7}, [WHOLE], "Got 'seed' = 0; the protocol has 7"),
        (
            {"methods": TABLES["methods"][:1]},
            [run("trak")],
            r"Got 'TRAK' with \{\}, which is not in the protocol",
        ),
        ({"metrics": {"lds": {}}}, [WHOLE, run("trak")], r"as lds does\. Got 2 runs"),
    ],
)
def test_runs_that_cannot_be_merged_are_refused(changes: Any, runs: list[Results], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        merge_runs(protocol.parse({**TABLES, **changes}), runs)


@pytest.mark.parametrize(
    ("several", "message"),
    [
        ([A, results("c", ["shortcut"], {"similarity": [1.0]}, "mnist")], r"same data\. Got sample, mnist"),
        ([], "Got none"),
    ],
)
def test_protocols_that_cannot_be_joined_are_refused(several: list[Results], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        join_protocols(several, "both", "")
