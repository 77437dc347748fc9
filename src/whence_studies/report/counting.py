"""Mean ranks for several choices of the counted methods and of those that may choose options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from whence_studies.comparison import critical_difference
from whence_studies.report.nine import Ranked, Retraining, paper_columns
from whence_studies.report.summary import ResultSummary, kind, paper
from whence_studies.suite.protocol import RANDOM, Method

_FEWEST = 6  # minimum number of the paper's eight other methods for its count


class Entrant(NamedTuple):
    """A method with one or several options; in each column the best option counts.

    Attributes
    ----------
    label : name in tables
    methods : the method with each of its options
    """

    label: str
    methods: tuple[Method, ...]


class Place(NamedTuple):
    """The result of an entrant.

    Attributes
    ----------
    label : label of the entrant
    options : number of options it could choose from in each column
    rank : mean rank; ties share their ranks
    columns, three : number of columns with a score, and of those in which it is among the best three
    seconds : seconds of fitting with all options, and of explaining all tests
    kind : its style in charts
    """

    label: str
    options: int
    rank: float
    columns: int
    three: int
    seconds: float
    kind: str


class Count(NamedTuple):
    """One way to count: title, description, and the entrants, the best first."""

    title: str
    text: str
    places: list[Place]

    @property
    def difference(self) -> float:
        """The critical difference of two mean ranks, for the fewest columns that an entrant has."""
        return critical_difference(len(self.places), min(place.columns for place in self.places))

    def apart(self, place: Place) -> list[Place]:
        """Return the entrants whose mean rank differs from that of one by the critical difference."""
        return [one for one in self.places if abs(one.rank - place.rank) >= self.difference]


class _Way(NamedTuple):
    """One choice of the entrants: its title, description, and the entrants."""

    title: str
    text: str
    entrants: list[Entrant]


def counts(summary: ResultSummary) -> list[Count]:
    """Return all counts that the results allow, the paper's first."""
    rows = [Entrant(m.label, (m,)) for m in summary.methods if m.name != RANDOM and m.competes]
    text = "All rows of the table above, but for Random and methods that see the tests’ true classes."
    every = Count("Every row by itself", text, placed(summary, rows))
    every_count = [*paper_counts(summary), *_over_all(summary), *_with_choices(summary), every]
    return [count for count in every_count if len(count.places) > 1]


def paper_counts(summary: ResultSummary, wrong: str = "") -> Iterator[Count]:
    """Yield counts over the paper's nine columns, by loss as there and by accuracy; none if one is missing.

    Parameters
    ----------
    summary
        The results of all protocols of a data set.
    wrong
        The metric of wrong labels, if not the paper's.
    """
    every: tuple[Retraining, ...] = ("loss", "accuracy")
    for by in every:
        columns = paper_columns(summary, by, wrong)
        for way in _ways(summary) if columns else ():
            title = f"The paper’s nine columns, by {by}: {way.title}"
            text = (
                f"Identical class and subclass, shortcuts, wrong labels (without GradCos), LDS, and the {by} "
                f"of coresets and of pruning, at the smallest share and on average. {way.text}"
            )
            yield Count(title, text, placed(summary, way.entrants, columns))


def _over_all(summary: ResultSummary) -> Iterator[Count]:
    """Yield counts of the paper's methods over all columns of the results, which are more or others."""
    for way in _ways(summary):
        text = f"All columns of the table above, which are not the paper’s nine. {way.text}"
        yield Count(f"All columns: {way.title}", text, placed(summary, way.entrants))


def _ways(summary: ResultSummary) -> Iterator[_Way]:
    """Yield the paper's methods, with DualDA at its best C, one C, or a C by rule."""
    known = paper()["method"]
    firsts = [m for m in _firsts(summary) if m.name in known["others"]]
    paper_method = [m for m in summary.methods if m.name == known["name"]]
    if len(firsts) < _FEWEST:
        return
    others = [Entrant(m.label, (m,)) for m in firsts]
    values = ", ".join(f"{value:g}" for value in known["counted"])
    best = [m for m in paper_method if set(m.options) == {"C"} and m.options["C"] in known["counted"]]
    ways = (
        (
            "best of three C",
            f"The paper’s methods. DualDA has the best of C = {values} in every column, an advantage over "
            "the others, which have one option each.",
            best,
        ),
        (
            "one C",
            "The paper’s methods, DualDA with the C that the paper recommends.",
            [m for m in paper_method if m.key == known["key"]],
        ),
        (
            "C by a rule",
            "The paper’s methods, DualDA with a C chosen by a rule, independently of the scores.",
            [m for m in paper_method if m.tune or not m.options][:1],
        ),
    )
    for title, text, methods in ways:
        if methods:
            yield _Way(title, text, [_entrant(methods), *others])
    as_run = {m.name: m for m in summary.methods if m.key in known["as_run"]}
    if best and as_run:
        theirs = [Entrant(m.label, (as_run.get(m.name, m),)) for m in firsts]
        text = (
            f"The paper’s methods, DualDA with the best of C = {values}, Representer Points of the model’s "
            "outputs and gradients of logits with 128 projections, as in the authors’ code."
        )
        yield _Way("as the authors ran it", text, [_entrant(best), *theirs])


def _with_choices(summary: ResultSummary) -> Iterator[Count]:
    """Yield the count of all methods, each with the best of its options, if some have several."""
    families: dict[str, list[Method]] = {}
    for method in summary.methods:
        if method.name != RANDOM and method.competes:
            families.setdefault(method.name, []).append(method)
    if any(len(methods) > 1 for methods in families.values()):
        entrants = [_entrant(methods) for methods in families.values()]
        text = "All methods, each with the best of its options in every column."
        yield Count("A choice for all", text, placed(summary, entrants))


def _entrant(methods: Sequence[Method]) -> Entrant:
    """Return the entrant of a method with one or several options."""
    return Entrant(methods[0].label if len(methods) == 1 else _best_of(methods), tuple(methods))


def _best_of(methods: Sequence[Method]) -> str:
    """Return the label of a method with several options, from the common first words of their labels."""
    several = zip(*(m.label.replace(",", "").split() for m in methods), strict=False)
    common = [words[0] for words in takewhile(lambda words: len({*words}) == 1, several)]
    return f"{' '.join(common) or methods[0].name}, best of {len(methods)}"


def placed(
    summary: ResultSummary, entrants: Sequence[Entrant], columns: Sequence[Ranked] | None = None
) -> list[Place]:
    """Rank entrants in every column that counts, and return their mean ranks, the best first.

    Means over different columns are not comparable. Entrants without a score in more than half of the columns
    are left out, and so are columns in which more than one of the others has no score.

    Parameters
    ----------
    summary
        The results.
    entrants
        Who is ranked.
    columns
        What they are ranked by; None takes all columns of the results.
    """
    if columns is None:
        columns = [Ranked(c.title, c.rising, scores) for c, scores in summary.values.items()]
    scored = [(column, best) for column in columns if (best := _best(column, entrants))]
    entrants = [e for e in entrants if 2 * sum(e.label in best for _, best in scored) >= len(scored)]
    ranks: dict[str, list[float]] = {entrant.label: [] for entrant in entrants}
    for column, best in scored:
        counted = {label: value for label, value in best.items() if label in ranks}
        competing = [entrant for entrant in entrants if not _left_out(column, entrant)]
        if len(competing) - len(counted) <= 1:
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


def _best(column: Ranked, entrants: Sequence[Entrant]) -> dict[str, float]:
    """Return the best score of every entrant that has one, signed so that lower is better."""
    sign = -1 if column.rising else 1
    return {
        entrant.label: min(sign * column.scores[m.key] for m in entrant.methods if m.key in column.scores)
        for entrant in entrants
        if any(m.key in column.scores for m in entrant.methods) and not _left_out(column, entrant)
    }


def _left_out(column: Ranked, entrant: Entrant) -> bool:
    return entrant.methods[0].name in column.without


def _firsts(summary: ResultSummary) -> list[Method]:
    """Return each method once, with its first options."""
    first: dict[str, Method] = {}
    for method in summary.methods:
        first.setdefault(method.name, method)
    return list(first.values())
