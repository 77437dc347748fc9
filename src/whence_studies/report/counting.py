"""Mean ranks, counted in several ways, by the methods that are counted and those that may choose options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from whence_studies.report.summary import ResultSummary, kind, paper
from whence_studies.suite.metric import Column
from whence_studies.suite.protocol import RANDOM, Method

_FEWEST = 6  # of the paper's eight other methods, without which its count is another


class Entrant(NamedTuple):
    """An entrant: a method with one option or several, of which the best counts in each column.

    Attributes
    ----------
    label : how tables call it
    methods : the method with each of its options
    """

    label: str
    methods: tuple[Method, ...]


class Place(NamedTuple):
    """What an entrant comes to.

    Attributes
    ----------
    label : of the entrant
    options : how many it could choose among in each column
    rank : the mean of its ranks; equal scores share theirs
    columns, three : how many columns it has a score in, and in how many it is among the best three
    seconds : of fitting with all of its options, and of explaining all tests
    kind : how it is drawn
    """

    label: str
    options: int
    rank: float
    columns: int
    three: int
    seconds: float
    kind: str


class Count(NamedTuple):
    """One way to count: its title, who is counted and how, and the entrants, the best first."""

    title: str
    text: str
    places: list[Place]


def counts(summary: ResultSummary) -> list[Count]:
    """Count the methods in every way that the results allow, the paper's first."""
    rows = [Entrant(m.label, (m,)) for m in summary.methods if m.name != RANDOM]
    every = Count("Every row by itself", "All rows of the table above but Random.", placed(summary, rows))
    every_count = [*_as_the_paper(summary), *_with_choices(summary), every]
    return [count for count in every_count if len(count.places) > 1]


def _as_the_paper(summary: ResultSummary) -> Iterator[Count]:
    """Count the paper's methods, DualDA with its best C, one C, or a C by rule."""
    known = paper()["method"]
    others = [Entrant(m.label, (m,)) for m in _firsts(summary) if m.name in known["others"]]
    paper_method = [m for m in summary.methods if m.name == known["name"]]
    if len(others) < _FEWEST:
        return
    values = ", ".join(f"{value:g}" for value in known["counted"])
    best = [m for m in paper_method if set(m.options) == {"C"} and m.options["C"] in known["counted"]]
    ways = (
        (
            "As the paper counts",
            f"The paper’s methods. DualDA has the best of C = {values} in every column, the others have one "
            "option each: to choose is an advantage.",
            best,
        ),
        (
            "One C for all columns",
            "The same methods, DualDA with the C that the paper recommends.",
            [m for m in paper_method if m.key == known["key"]],
        ),
        (
            "C by a rule",
            "The same methods, DualDA with a C that was chosen without a look at the scores.",
            [m for m in paper_method if m.tune or not m.options][:1],
        ),
    )
    for title, text, methods in ways:
        if methods:
            yield Count(title, text, placed(summary, [_entrant(methods), *others]))
    as_run = {m.name: m for m in summary.methods if m.key in known["as_run"]}
    if best and as_run:
        theirs = [
            Entrant(m.label, (as_run.get(m.name, m),)) for m in _firsts(summary) if m.name in known["others"]
        ]
        text = (
            "As the first, with Representer Points of the model’s outputs and with gradients of logits by "
            "128 projections, as the authors’ code has them."
        )
        yield Count("As the authors ran it", text, placed(summary, [_entrant(best), *theirs]))


def _with_choices(summary: ResultSummary) -> Iterator[Count]:
    """Count all methods, each with the best of its options, where some have several."""
    families: dict[str, list[Method]] = {}
    for method in summary.methods:
        if method.name != RANDOM:
            families.setdefault(method.name, []).append(method)
    if any(len(methods) > 1 for methods in families.values()):
        entrants = [_entrant(methods) for methods in families.values()]
        text = "All methods, each with the best of its options in every column, where it has several."
        yield Count("A choice for all", text, placed(summary, entrants))


def _entrant(methods: Sequence[Method]) -> Entrant:
    """Return an entrant that may choose among options, or has one."""
    return Entrant(methods[0].label if len(methods) == 1 else _best_of(methods), tuple(methods))


def _best_of(methods: Sequence[Method]) -> str:
    """Name a method that may choose, by the words that all its labels begin with."""
    several = zip(*(m.label.replace(",", "").split() for m in methods), strict=False)
    common = [words[0] for words in takewhile(lambda words: len({*words}) == 1, several)]
    return f"{' '.join(common) or methods[0].name}, best of {len(methods)}"


def placed(summary: ResultSummary, entrants: Sequence[Entrant]) -> list[Place]:
    """Rank entrants in every column that counts, and give their means, the best first.

    Means over different columns do not compare. An entrant without a score in over half of the columns is not
    counted, nor is a column in which more than one of the others lacks one.
    """
    every = [_best(column, scores, entrants) for column, scores in summary.values.items()]
    columns = [best for best in every if best]
    entrants = [e for e in entrants if 2 * sum(e.label in best for best in columns) >= len(columns)]
    ranks: dict[str, list[float]] = {entrant.label: [] for entrant in entrants}
    for best in columns:
        counted = {label: value for label, value in best.items() if label in ranks}
        if len(ranks) - len(counted) <= 1:
            for label, rank in zip(counted, rankdata(list(counted.values())), strict=True):
                ranks[label].append(float(rank))
    places = [
        Place(
            entrant.label,
            len(entrant.methods),
            float(np.mean(ranks[entrant.label])),
            len(ranks[entrant.label]),
            sum(rank <= 3 for rank in ranks[entrant.label]),
            sum(summary.seconds(m) for m in entrant.methods),
            kind(entrant.methods[0]),
        )
        for entrant in entrants
        if ranks[entrant.label]
    ]
    return sorted(places, key=lambda place: place.rank)


def _best(column: Column, scores: Mapping[str, float], entrants: Sequence[Entrant]) -> dict[str, float]:
    """Return the best score of every entrant that has one, with less for better."""
    sign = -1 if column.rising else 1
    return {
        entrant.label: min(sign * scores[m.key] for m in entrant.methods if m.key in scores)
        for entrant in entrants
        if any(m.key in scores for m in entrant.methods)
    }


def _firsts(summary: ResultSummary) -> list[Method]:
    """Return each method once, with the option that comes first."""
    first: dict[str, Method] = {}
    for method in summary.methods:
        first.setdefault(method.name, method)
    return list(first.values())
