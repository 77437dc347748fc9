"""Results of several protocols as one, so that methods are ranked over the columns of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whence.errors import InvalidInputError
from whence_studies.suite.results import Results, Row


def joined(several: Sequence[Results], name: str, title: str) -> Results:
    """Join results of protocols that share their methods: rows and metrics of all, sizes of the first.

    What two protocols both have, such as costs, or the same metric in scenes of two sizes, is taken from the
    first. Facts of scenes are told with the protocol that they are of.

    Parameters
    ----------
    several
        Results by one version of whence, each of its own protocol.
    name, title
        Of the protocol that the result has.
    """
    if not several:
        raise InvalidInputError("'several' must hold results of a protocol. Got none.")
    first = several[0]
    data = [found.protocol["data"]["name"] for found in several]
    if len(set(data)) > 1:
        raise InvalidInputError(f"'several' must be results on the same data. Got {', '.join(data)}.")
    rows: list[Row] = []
    seen: set[str] = set()
    for found in several:
        rows += [_told(row, found.protocol["name"]) for row in found.rows if row.metric not in seen]
        seen |= {row.metric for row in found.rows} - {"scene"}
    return Results(tuple(rows), _protocol([found.protocol for found in several], name, title), first.versions)


def _told(row: Row, protocol: str) -> Row:
    return row._replace(method=f"{row.method}, {protocol}") if row.metric == "scene" else row


def _protocol(several: Sequence[dict[str, Any]], name: str, title: str) -> dict[str, Any]:
    """Return the first protocol with the methods and metrics of all, and all of them in full."""
    methods = _firsts([{method["label"]: method for method in one["methods"]} for one in several])
    metrics = _firsts([one["metrics"] for one in several])
    return {
        **several[0],
        "name": name,
        "title": title,
        "methods": list(methods.values()),
        "metrics": metrics,
        "joined": list(several),
    }


def _firsts(tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return all entries of some tables, of equal names the first."""
    found: dict[str, Any] = {}
    for table in tables:
        found |= {name: value for name, value in table.items() if name not in found}
    return found
