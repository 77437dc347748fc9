"""One protocol's results of several runs: what is united, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from whence.errors import InvalidInputError
from whence_studies.report.summary import ResultSummary
from whence_studies.suite import protocol
from whence_studies.suite.merging import merge_runs
from whence_studies.suite.results import Results, Row

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
    # What was united can be united again with a part of it.
    assert merge_runs(WANTED, [found, run("trak", code="2")]) == found


def test_a_single_run_stays_as_it_is() -> None:
    one = run("similarity", "trak", "graddot")
    found = merge_runs(WANTED, [one])
    assert (sorted(found.rows), found.protocol, found.versions) == (
        sorted(one.rows),
        one.protocol,
        one.versions,
    )


def test_runs_of_other_networks_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"scene, clean, test_accuracy differ: 0\.5 and 0\.75"):
        merge_runs(WANTED, [run("similarity"), run("trak", accuracy=0.75)])


def test_a_run_that_lacks_rows_of_another_is_refused() -> None:
    more = Row("identical_class", "random", "each", 0.0, 1.0)
    whole = run("similarity")
    with pytest.raises(InvalidInputError, match="identical_class, random differ: 2 and 1 rows"):
        merge_runs(WANTED, [replace(whole, rows=(*whole.rows, more)), run("trak")])


def test_results_of_another_protocol_are_refused() -> None:
    other = protocol.parse({**TABLES, "seed": 7})
    with pytest.raises(InvalidInputError, match="'seed' is 0, in the protocol 7"):
        merge_runs(other, [run("similarity")])
    fewer = protocol.parse({**TABLES, "methods": TABLES["methods"][:1]})
    with pytest.raises(InvalidInputError, match=r"Got 'TRAK' with \{\}, which is none of them"):
        merge_runs(fewer, [run("trak")])
    with pytest.raises(InvalidInputError, match="Got none"):
        merge_runs(WANTED, [])


def test_scores_that_are_compared_cannot_be_united() -> None:
    compared = protocol.parse({**TABLES, "metrics": {"lds": {}}})
    with pytest.raises(InvalidInputError, match=r"as lds does\. Got 2 runs"):
        merge_runs(compared, [run("similarity"), run("trak")])
