"""Merging of results of several runs of one protocol, or of several protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whence.errors import InvalidInputError
from whence_studies.suite.protocol import Protocol
from whence_studies.suite.results import COSTS, Results, Row

_Blocks = dict[tuple[str, str], list[Row]]


def join_protocols(several: Sequence[Results], name: str, title: str) -> Results:
    """Join results of protocols that share their methods: rows and metrics of all, sizes of the first.

    Rows that two protocols have, such as costs, or one metric in scenes of two sizes, are those of the first.
    Facts of scenes are named with their protocol.

    Parameters
    ----------
    several
        Results of different protocols by one version of whence.
    name, title
        Name and title of the joint protocol.
    """
    if not several:
        raise InvalidInputError("'several' must hold results of a protocol. Got none.")
    first = several[0]
    data = [results.protocol["data"]["name"] for results in several]
    if len(set(data)) > 1:
        raise InvalidInputError(f"'several' must be results on the same data. Got {', '.join(data)}.")
    rows: list[Row] = []
    seen: set[str] = set()
    for results in several:
        rows += [
            _with_protocol(row, results.protocol["name"]) for row in results.rows if row.metric not in seen
        ]
        seen |= {row.metric for row in results.rows} - {"scene"}
    return Results(
        tuple(rows), _protocol([results.protocol for results in several], name, title), first.versions
    )


def _with_protocol(row: Row, protocol: str) -> Row:
    return row._replace(method=f"{row.method}, {protocol}") if row.metric == "scene" else row


def _protocol(several: Sequence[dict[str, Any]], name: str, title: str) -> dict[str, Any]:
    """Return the first protocol with the methods and metrics of all, and the protocols themselves."""
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
    """Return the union of some tables; the first entry of a name counts."""
    first: dict[str, Any] = {}
    for table in tables:
        first |= {name: value for name, value in table.items() if name not in first}
    return first


def merge_runs(wanted: Protocol, several: Sequence[Results]) -> Results:
    """Merge results of a protocol's methods from several runs, for example on several machines.

    The runs must explain the same networks. Every run has the random method and facts of its scenes; if
    these, or other rows that two runs have in common, differ in a single number, an error is raised. Costs
    may differ; those of the first run count.

    Parameters
    ----------
    wanted
        The protocol, with all methods in their order.
    several
        Results of it, as ``whence evaluate --methods`` makes them.
    """
    if not several:
        raise InvalidInputError("'several' must hold results of the protocol. Got none.")
    comparing = [name for name, metric in wanted.metrics.items() if metric.compares]
    if comparing and len(several) > 1:
        raise InvalidInputError(
            f"'several' must be one run if a metric compares the scores of methods, as {comparing[0]} does. "
            f"Got {len(several)} runs. Run all methods in one folder."
        )
    blocks: _Blocks = {}
    for results in several:
        _check_protocol(wanted, results)
        for key, rows in _blocks(results).items():
            if key[0] != COSTS and blocks.setdefault(key, rows) != rows:
                raise InvalidInputError(_difference(key, blocks[key], rows))
            blocks.setdefault(key, rows)
    order = {method.key: place for place, method in enumerate(wanted.methods)}
    rows = [row for block in blocks.values() for row in block]
    rows.sort(key=lambda row: (row.metric, order.get(row.method, len(order))))
    here = {method.key for method in wanted.methods} & {method for _, method in blocks}
    kept = [method for method in wanted.methods if method.key in here]
    protocol = wanted.model_copy(update={"methods": kept}).as_dict()
    return Results(tuple(rows), protocol, _merged_versions([results.versions for results in several]))


def _blocks(results: Results) -> _Blocks:
    """Group rows by metric and method."""
    blocks: _Blocks = {}
    for row in results.rows:
        blocks.setdefault((row.metric, row.method), []).append(row)
    return blocks


def _check_protocol(wanted: Protocol, results: Results) -> None:
    """Raise if results are of another protocol, or of a method with other options."""
    asked, given = wanted.as_dict(), dict(results.protocol)
    known, methods = asked.pop("methods"), given.pop("methods")
    for name in sorted({*asked, *given}):
        if asked.get(name) != given.get(name):
            raise InvalidInputError(
                f"'several' must be results of {wanted.name}. Got {name!r} = {given.get(name)!r}; the "
                f"protocol has {asked.get(name)!r}."
            )
    for method in methods:
        if method not in known:
            raise InvalidInputError(
                f"'several' must be results of methods of {wanted.name}. Got {method['label']!r} with "
                f"{method.get('options', {})!r}, which is not in the protocol."
            )


def _difference(key: tuple[str, str], one: list[Row], other: list[Row]) -> str:
    """Return the error message for two runs that differ."""
    pairs = ((a, b) for a, b in zip(one, other, strict=False) if a != b)
    a, b = next(pairs, (None, None))
    what = f"{len(one)} and {len(other)} rows" if a is None or b is None else f"{a.value!r} and {b.value!r}"
    where = "" if a is None else f", {a.quantity}"
    return (
        "'several' must be of the same networks, with equal rows where they overlap. Got different rows for "
        f"{key[0]}, {key[1]}{where}: {what}. Run all methods on one machine, or on "
        "processors with the same instructions."
    )


def _merged_versions(several: list[dict[str, Any]]) -> dict[str, str]:
    """Return the versions of all runs; a name has several if they differ."""
    merged: dict[str, dict[str, None]] = {}
    for versions in several:
        for name, text in versions.items():  # which may have been merged before
            merged.setdefault(name, {}).update(dict.fromkeys(text.split(", ")))
    return {name: ", ".join(texts) for name, texts in merged.items()}
