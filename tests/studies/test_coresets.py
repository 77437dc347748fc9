"""Coresets and pruning: balanced by class, drawn anew where all are equal, and by what samples are worth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.studies.test_page import made
from tests.studies.test_protocol import changed
from tests.studies.test_study import small, workshop
from whence import Effects
from whence.errors import InvalidInputError
from whence.metrics.coreset import order_by
from whence_studies import coreset, pruned
from whence_studies.report.summary import ResultSummary
from whence_studies.scenes.workshop import Scene
from whence_studies.suite import costs, protocol
from whence_studies.suite.case import Case
from whence_studies.suite.results import SPREAD

EFFECTS = {"name": "effects", "label": "Effects, values", "options": {"layers": "last"}, "by_value": True}
BALANCED = {"coreset_balanced": {"fractions": [0.2], "seeds": 2}}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], int]]:
    """Parts and seeds that models would be trained on; none is."""
    found: list[tuple[list[int], int]] = []

    def record(scene: Scene, parts: list[tuple[np.ndarray, int]]) -> Iterator[nn.Module]:
        found.extend((rows.tolist(), seed) for rows, seed in parts)
        return iter([scene.trained.model] * len(parts))

    monkeypatch.setattr(Scene, "retrained", record)
    return found


# Classes of 5, 3 and 2 samples, called 7, 1 and 4; the most important first.
LABELS = np.array([7, 7, 7, 7, 7, 1, 1, 1, 4, 4])
ORDER = np.array([9, 0, 8, 1, 7, 2, 6, 3, 5, 4])


@pytest.mark.parametrize(
    ("fraction", "kept"),
    [
        # 5 of 10: 2.5, 1.5 and 1; the halves are equal, and class 1 comes before class 7.
        (0.5, [9, 0, 1, 7, 6]),
        # 3 of 10: 1.5, 0.9 and 0.6, so that the two rarer classes are rounded up.
        (0.3, [9, 0, 7]),
        # 2 of 10: 1, 0.6 and 0.4.
        (0.2, [0, 7]),
        # 9 of 10: 4.5, 2.7 and 1.8.
        (0.9, [9, 0, 8, 1, 7, 2, 6, 3, 5]),
    ],
)
def test_classes_are_kept_in_proportion_by_largest_remainders(fraction: float, kept: list[int]) -> None:
    assert coreset(ORDER, fraction, LABELS).tolist() == kept
    left = [i for i in ORDER.tolist() if i not in kept]
    assert pruned(ORDER, fraction, LABELS).tolist() == left


def test_of_classes_of_one_size_as_many_are_kept() -> None:
    rng = np.random.default_rng(0)
    labels, order = rng.permutation(np.repeat(np.arange(10), 30)), rng.permutation(300)
    kept = coreset(order, 0.1, labels)
    assert np.bincount(labels[kept]).tolist() == [3] * 10
    for c in range(10):  # in each class the first of the order
        assert kept[labels[kept] == c].tolist() == order[labels[order] == c][:3].tolist()


def test_an_order_by_worth_is_signed_and_draws_lots_among_equals() -> None:
    assert order_by([-3.0, 0.5, 2.0]).tolist() == [2, 1, 0]
    one, other = (order_by(np.zeros(50), seed).tolist() for seed in (0, 1))
    assert one != other
    assert sorted(one) == sorted(other) == list(range(50))


def test_random_is_drawn_anew_for_every_seed_and_others_are_not(
    tmp_path: Path, asked: list[tuple[list[int], int]]
) -> None:
    shop = workshop(tmp_path, metrics=BALANCED)
    scene, metric = shop.scene("coreset_balanced"), shop.protocol.metrics["coreset_balanced"]
    rows = {}
    for method in shop.protocol.methods:  # random, and a DualDA without equals among its first
        rows[method.name] = metric.measure(Case(scene, method, {**method.options, "C": 1e-6}))
    assert [seed for _, seed in asked] == [0, 1, 0, 1]
    (first, _), (second, _), *dual = asked
    assert first != second
    assert dual[0][0] == dual[1][0]
    for part, _ in asked:
        assert np.bincount(scene.train.labels[part], minlength=10).tolist() == _proportional(scene)
    spread = [row for row in rows["random"] if row.quantity == SPREAD]
    assert [(row.x, row.value) for row in spread] == [(0.2, 0.0)]  # the same model stands for both


def _proportional(scene: Scene) -> list[int]:
    """A fifth of every class; drawn evenly, so that there is no remainder."""
    sizes = np.bincount(scene.train.labels, minlength=10)
    assert set(sizes.tolist()) == {8}
    # 1.6 of each of ten classes: one of each, and six more for the classes that come first.
    return [2] * 6 + [1] * 4


def test_effects_order_by_what_samples_are_worth(tmp_path: Path, asked: list[tuple[list[int], int]]) -> None:
    shop = workshop(tmp_path, metrics={"coreset": {"fractions": [0.25], "seeds": 1}}, methods=[EFFECTS])
    scene, method = shop.scene("coreset"), shop.protocol.methods[1]
    case = Case(scene, method, method.options)
    shop.protocol.metrics["coreset"].measure(case)
    # Values sum derivatives first; here every test is explained by itself, for its true class.
    fitted = case.attributor
    assert isinstance(fitted, Effects)
    truth = torch.from_numpy(scene.test.labels)
    worth = fitted.attribute(scene.tests, target=truth).mean(0).cpu().numpy()
    assert asked == [(sorted(np.argsort(-worth)[:20].tolist()), 0)]
    assert (worth < 0).any()  # signed: what harms comes last


def test_values_are_in_coresets_alone_and_of_effects_alone() -> None:
    given = small(methods=[EFFECTS], metrics={**changed()["metrics"], **BALANCED})
    method = given.methods[1]
    assert method.key == "effects(layers=last, by value)"
    taking = [name for name in given.metrics if given.takes_part(name, method)]
    assert taking == ["coreset", "pruning", "coreset_balanced"]
    with pytest.raises(InvalidInputError, match=r"'by_value' must be false for graddot.*such as effects"):
        small(methods=[{"name": "graddot", "by_value": True}])


def test_a_sweep_leaves_out_metrics() -> None:
    sweep = {**changed()["sweep"], "metrics": ["lds"]}
    given = protocol.parse(changed(sweep=sweep))
    swept = next(m for m in given.methods if m.sweep)
    assert [name for name in given.metrics if given.takes_part(name, swept)] == ["lds"]
    assert all(given.takes_part("coreset", m) for m in given.methods if not m.sweep)
    whole = protocol.parse(changed())
    assert sum(i.seconds for i in costs.plan(given)) < sum(i.seconds for i in costs.plan(whole))
    with pytest.raises(InvalidInputError, match=r"'sweep.metrics' must be a list of some of .* Got 'magic'"):
        protocol.parse(changed(sweep={**sweep, "metrics": ["magic"]}))


def test_each_way_to_choose_counts_once_where_there_are_few_shares() -> None:
    names = ("coreset", "coreset_balanced", "pruning", "pruning_balanced")

    def titles(**options: Any) -> list[str]:
        return [column.title for column in ResultSummary(made(dict.fromkeys(names, options))).columns]

    means = ["Coreset, mean", "Coreset balanced, mean", "Pruning, mean", "Pruning balanced, mean"]
    assert titles(fractions=[0.1, 0.3], seeds=3) == means
    # As the paper counts: of plain choices the smallest share has a column too.
    smallest = [title for title in titles(seeds=2) if "smallest" in title]
    assert smallest == ["Coreset, smallest", "Pruning, smallest"]


def test_protocols_without_orders_have_no_methods_by_value() -> None:
    assert any(method.by_value for method in protocol.load("study-mnist-coresets").methods)
    assert not any(method.by_value for method in protocol.load("study-mnist").methods)
