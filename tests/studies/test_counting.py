"""Mean ranks, counted in several ways, against ranks by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from whence_studies.comparison import critical_difference
from whence_studies.report.counting import Count, Entrant, counts, paper_counts, placed
from whence_studies.report.nine import paper_columns
from whence_studies.suite.metric import Column
from whence_studies.suite.protocol import Method

OTHERS = ("lissa", "arnoldi", "ekfac", "tracin", "graddot", "gradcos")


def method(name: str, label: str = "", **options: Any) -> Method:
    return Method.model_construct(name=name, label=label or name, options=options)


def summary(methods: list[Method], *columns: dict[str, float], rising: bool = True) -> Any:
    """What counting reads of a summary: scores by column, and one second per method."""
    values = {Column(f"column {i}", str(i), rising): scores for i, scores in enumerate(columns)}
    return SimpleNamespace(values=values, columns=list(values), methods=methods, seconds=lambda m: 1.0)


def results_of(count: Count) -> dict[str, tuple[float, int, int]]:
    return {place.label: (place.rank, place.three, place.columns) for place in count.places}


@pytest.mark.parametrize("rising", [True, False])
def test_ranks_are_means_and_equal_scores_share_them(rising: bool) -> None:
    sign = 1 if rising else -1
    methods = [method(name) for name in "abcd"]
    first = {"a": 4.0, "b": 3.0, "c": 3.0, "d": 1.0}
    second = {"a": 1.0, "b": 2.0, "c": 3.0}  # d has no score
    columns = [{key: sign * value for key, value in some.items()} for some in (first, second)]
    found = placed(summary(methods, *columns, rising=rising), [Entrant(m.label, (m,)) for m in methods])
    ranks = {place.label: (place.rank, place.columns, place.three) for place in found}
    assert ranks == {"a": (2.0, 2, 2), "b": (2.25, 2, 2), "c": (1.75, 2, 2), "d": (4.0, 1, 0)}
    assert [place.label for place in found] == ["c", "a", "b", "d"]


def test_only_means_over_the_same_columns_are_compared() -> None:
    methods = [method(name) for name in "abcd"]
    whole = {"a": 4.0, "b": 3.0, "c": 2.0}
    of_two = {"a": 1.0, "c": 2.0}  # one that is counted, b, has no score
    of_one = {"a": 1.0}  # two have none: the column is not counted
    d_once = whole | {"d": 9.0}  # d has a score in one of four columns: it is not counted
    found = placed(summary(methods, d_once, whole, of_two, of_one), [Entrant(m.label, (m,)) for m in methods])
    assert {place.label: (place.rank, place.columns) for place in found} == {
        "a": (pytest.approx(4 / 3), 3),
        "b": (2.0, 2),
        "c": (pytest.approx(7 / 3), 3),
    }


def test_one_that_chooses_has_its_best_option_in_every_column_and_the_seconds_of_all() -> None:
    small, large, other = method("dualda", C=1e-5), method("dualda", C=1e-3), method("ekfac")
    columns = (
        {small.key: 3.0, large.key: 1.0, other.key: 2.0},
        {small.key: 1.0, large.key: 3.0, other.key: 2.0},
    )
    made = summary([small, large, other], *columns)
    alone = {p.label: p.rank for p in placed(made, [Entrant(m.key, (m,)) for m in made.methods])}
    assert alone == {small.key: 2.0, large.key: 2.0, other.key: 2.0}
    chosen = placed(made, [Entrant("either", (small, large)), Entrant("other", (other,))])
    assert [(p.label, p.rank, p.options, p.seconds) for p in chosen] == [
        ("either", 1.0, 2, 2.0),
        ("other", 2.0, 1, 1.0),
    ]


def test_the_papers_count_gives_a_choice_to_dualda_only() -> None:
    own = [method("dualda", f"DualDA C={C:g}", C=C) for C in (1e-5, 1e-3, 1e-1)]
    ruled = method("dualda", "DualDA tuned")
    others = [method(name, name.upper()) for name in OTHERS]
    methods = [method("random"), *own, ruled, method("similarity"), *others]
    keys = [m.key for m in methods]
    # By columns: the best is another C each time; the rule is always behind all of the paper's others.
    columns = []
    for best in own:
        scores = dict.fromkeys(keys, 0.0) | {other.key: 1.0 + i for i, other in enumerate(others)}
        columns.append(scores | {best.key: 10.0, ruled.key: 0.5})
    found = {count.title: count for count in counts(summary(methods, *columns))}
    assert list(found) == [
        "All columns: best of three C",
        "All columns: one C",
        "All columns: C by a rule",
        "A choice for all",
        "Every row by itself",
    ]
    assert results_of(found["All columns: best of three C"])["DualDA, best of 3"] == (1.0, 3, 3)
    # C = 1e-3 is first once, and twice last of seven.
    assert results_of(found["All columns: one C"])["DualDA C=0.001"] == (5.0, 1, 3)
    assert results_of(found["All columns: C by a rule"])["DualDA tuned"] == (7.0, 0, 3)
    assert results_of(found["A choice for all"])["DualDA, best of 4"] == (1.0, 3, 3)
    assert "SIMILARITY" not in results_of(found["All columns: best of three C"])
    assert not any("random" in results_of(count) for count in found.values())


def test_methods_as_the_authors_ran_them_are_counted_too() -> None:
    own = [method("dualda", f"DualDA C={C:g}", C=C) for C in (1e-5, 1e-3, 1e-1)]
    unit = method("dualda", "unit length", C=1e-3, metric="unit")  # the paper has none
    others = [method(name, name.upper()) for name in ("representer", *OTHERS)]
    theirs = [
        method("representer", "of outputs", targets="outputs", bias=False),
        method("graddot", "of logits", loss="logit", projection=128),
    ]
    methods = [method("random"), *own, unit, *others, *theirs]
    scores = dict.fromkeys((m.key for m in methods), 0.0) | {m.key: 2.0 for m in others}
    scores |= {own[1].key: 3.0, unit.key: 9.0, theirs[0].key: 4.0}
    found = {count.title: results_of(count) for count in counts(summary(methods, scores))}
    assert found["All columns: best of three C"]["DualDA, best of 3"][0] == 1.0
    # Only the one of outputs is before it then, under the method's own name.
    assert found["All columns: as the authors ran it"]["DualDA, best of 3"][0] == 2.0
    assert found["All columns: as the authors ran it"]["REPRESENTER"][0] == 1.0
    assert found["All columns: as the authors ran it"]["GRADDOT"][0] == len(others) + 1


def test_without_the_papers_methods_rows_count_by_themselves() -> None:
    methods = [method("dualda", C=1e-3), method("ekfac")]
    found = counts(summary(methods, {m.key: float(i) for i, m in enumerate(methods)}))
    assert [count.title for count in found] == ["Every row by itself"]


NINE = ("identical_class", "identical_subclass", "shortcut", "mislabeling", "lds", "coreset", "pruning")


def nine(scores: dict[str, float], loss: dict[str, float], accuracy: dict[str, float]) -> Any:
    """A summary with the paper's columns: every score is the same, retraining has two shares, .1 and .3."""
    made = summary([method(key) for key in scores], {})
    made.columns = [Column(name, "", metric=name) for name in NINE]
    made.results = SimpleNamespace(value=lambda metric, key: scores[key])
    curves = {"loss": loss, "accuracy": accuracy}
    made.curve = lambda metric, key, quantity: [
        (0.3, curves[quantity][key] / 2),
        (0.1, curves[quantity][key]),
    ]
    return made


def test_the_papers_columns_are_nine_with_retraining_at_the_smallest_share_and_on_average() -> None:
    made = nine(
        {"ekfac": 0.4, "gradcos": 0.5}, {"ekfac": 2.0, "gradcos": 1.0}, {"ekfac": 0.6, "gradcos": 0.8}
    )
    by_loss, by_accuracy = (
        {column.title: column for column in paper_columns(made, by)} for by in ("loss", "accuracy")
    )
    assert len(by_loss) == len(by_accuracy) == 9
    # (2 / .1 + 1 / .3) / (1 / .1 + 1 / .3)
    assert by_loss["Coreset, mean"].scores == pytest.approx({"ekfac": 1.75, "gradcos": 0.875})
    assert by_accuracy["Coreset, smallest share"].scores == {"ekfac": 0.6, "gradcos": 0.8}
    falling = [{title for title, column in by.items() if not column.rising} for by in (by_loss, by_accuracy)]
    assert falling == [
        {"Coreset, smallest share", "Coreset, mean"},  # a coreset should lose little, pruning much
        {"Pruning, smallest share", "Pruning, mean"},
    ]
    made.columns = made.columns[1:]
    assert paper_columns(made) == []


def test_the_papers_count_leaves_gradcos_out_of_wrong_labels() -> None:
    keys = ["dualda(C=0.001)", *OTHERS]
    scores = {key: float(i) for i, key in enumerate(keys)}
    made = nine(scores, scores, scores)
    made.methods = [method("dualda", "DualDA", C=1e-3), *(method(name) for name in OTHERS)]
    first = next(paper_counts(made))
    found = {place.label: (place.rank, place.columns) for place in first.places}
    # GradCos is best of seven in all but the two coresets: (6 · 1 + 2 · 7) / 8.
    assert found["gradcos"] == (20 / 8, 8)
    # DualDA is last of seven, of six in wrong labels, and first in coresets: (6 · 7 + 6 + 2 · 1) / 9.
    assert found["DualDA"] == (50 / 9, 9)


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (5, 2.728), (9, 3.102), (10, 3.164)])
def test_the_critical_difference_is_nemenyis(methods: int, q: float) -> None:
    """Against the table of q at .05 in Demšar (2006), Statistical comparisons of classifiers."""
    expected = q * np.sqrt(methods * (methods + 1) / (6 * 14))
    assert critical_difference(methods, 14) == pytest.approx(expected, abs=1e-3)


def test_methods_are_apart_by_the_critical_difference() -> None:
    methods = [method(name) for name in "abc"]
    scores = {"a": 3.0, "b": 2.0, "c": 1.0}
    for columns, apart in ((2, []), (3, ["c"])):  # 2.343 √(12 / 6n) is 2.34, then 1.91, and c is 2 behind
        made = summary(methods, *[scores] * columns)
        count = counts(made)[-1]
        assert [place.label for place in count.apart(count.places[0])] == apart
