"""Gradients that several methods share: what they keep is what a pass of their own gives."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.gradients.test_gradients import classifier, trained
from whence.core.projection import add_blocks, add_blocks_on_device
from whence.errors import InvalidInputError
from whence.features import extract
from whence.gradients import gradients as module
from whence.gradients.gradients import Gradients
from whence.methods import EKFAC, TRAK, GradCos, GradDot, TracIn


def bank() -> Any:
    model, x, y, _, _ = trained()
    return extract(model, (x, y), batch_size=8, show_progress=False)


@pytest.mark.parametrize(
    ("first", "others"),
    [
        (GradDot(projection=16), [GradCos(projection=16), GradDot(projection=16, memory=4000)]),
        (GradCos(projection=16, loss="logit", seed=3), [GradDot(projection=16, loss="logit", seed=3)]),
        (TRAK(projection=16), [TRAK(projection=16, ridge=0.1), TRAK(projection=16, ridge=10.0)]),
        (GradDot(), [GradCos()]),  # fewer parameters than projections: whole
    ],
)
def test_methods_share_one_pass(first: Any, others: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y, tests, _ = trained()
    alone = [type(m)(**m.get_params(deep=False) | {"show_progress": False}) for m in (first, *others)]
    for method in (*alone, first, *others):
        method.show_progress = False
    for method in alone:
        method.fit(model, (x, y), class_names=None)
    features = bank()
    shared = first.collect(features)
    assert shared.nbytes == sum(t.nbytes for t in shared.collected)
    seen: list[int] = []
    monkeypatch.setattr(
        Gradients, "with_values", lambda self, inputs, classes, weights=None: seen.append(len(classes))
    )
    for method in (first, *others):
        method.fit(features=features, gradients=shared)
    assert seen == []
    monkeypatch.undo()
    for method, expected in zip((first, *others), alone, strict=True):
        torch.testing.assert_close(method.attribute(tests), expected.attribute(tests))
        torch.testing.assert_close(method.self_influence(), expected.self_influence())


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        (GradCos(projection=16), 3, "'gradients' must be a result of 'collect'. Got 3"),
        (GradCos(projection=8), None, "'gradients' must be those that GradCos(projection=8"),
        (GradCos(projection=16, seed=1), None, "Collect them by a method of the same loss"),
        (GradCos(projection=16, loss="logit"), None, "Collect them by a method of the same loss"),
        (TRAK(projection=16), None, "Collect them by a method of the same loss"),
        (GradCos(params="last"), None, "'gradients' must be those that GradCos(params='last'"),
    ],
)
def test_gradients_of_another_kind_are_refused(method: Any, given: Any, message: str) -> None:
    features = bank()
    shared = GradDot(projection=16, show_progress=False).collect(features)
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        method.fit(features=features, gradients=shared if given is None else given)


def test_gradients_of_another_training_set_are_refused() -> None:
    model, x, y, _, checkpoints = trained()
    method = GradDot(projection=16, show_progress=False)
    shared = method.collect(bank())
    for fit in ({"features": bank()}, {"model": model, "data": (x, y)}):
        with pytest.raises(InvalidInputError, match="must come with the bank that they were collected of"):
            method.fit(**fit, gradients=shared)
    trak = TRAK(projection=16, show_progress=False)
    with pytest.raises(InvalidInputError, match="'gradients' must be None with 'checkpoints'"):
        trak.fit(model, (x, y), checkpoints=checkpoints, gradients=trak.collect(bank()))
    with pytest.raises(
        TypeError, match=r"'gradients'\. It takes those of every method, and checkpoints, learning_rates"
    ):
        TracIn(projection=16).fit(model, (x, y), checkpoints=checkpoints, gradients=shared)


@pytest.mark.parametrize("method", [GradDot(params="last"), GradCos(projection=None), TRAK("last")])
def test_what_cannot_be_shared_is_not_collected(method: Any) -> None:
    assert method.kind is None
    with pytest.raises(
        InvalidInputError, match=r"keeps no gradients that other methods could share.*fit alone"
    ):
        method.collect(bank())


def test_blocks_are_added_alike_on_every_device() -> None:
    rng = np.random.default_rng(0)
    for k, P in ((1, 3), (7, 30), (16, 16), (128, 1000)):
        for dtype in (np.float32, np.float64):
            rows = (rng.normal(size=(3, P)) * 10.0 ** rng.integers(-3, 4, size=P)).astype(dtype)
            signs, places = rng.choice(np.array([-1, 1], np.int8), P), rng.integers(0, k, -(-P // k))
            compiled, by_torch = (
                np.zeros((3, k), dtype),
                torch.zeros(3, k, dtype=torch.from_numpy(rows).dtype),
            )
            add_blocks(compiled, rows, signs, places)
            given = torch.from_numpy(rows), torch.from_numpy(signs).to(by_torch), places.tolist()
            add_blocks_on_device(by_torch, *given)
            np.testing.assert_array_equal(compiled, by_torch.numpy())


def test_rows_of_a_pass_are_small_enough_to_be_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y, _, _ = trained()
    gradients = Gradients(classifier(model))
    row = 8 * sum(p.numel() for p in model.parameters())
    monkeypatch.setattr(module, "_REUSED", 5 * row)
    found = list(gradients(x, y))
    assert {rows.nbytes for rows in found[:-1]} == {4 * row}
    monkeypatch.setattr(module, "_REUSED", 1)  # a row that is larger is taken alone
    assert [len(rows) for rows in Gradients(classifier(model))(x, y)] == [1] * len(x)


@pytest.mark.parametrize("params", ["all", "last"])
@pytest.mark.parametrize("labels", ["exact", "sampled"])
def test_ekfac_of_some_samples_has_the_curvature_of_these(params: str, labels: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    x, y, n = torch.randn(40, 1, 6, 6), torch.arange(40) % 3, 25
    options = {"params": params, "labels": labels, "show_progress": False, "seed": 2}
    some = EKFAC(n_samples=n, **options).fit(model, (x, y))
    rows = torch.from_numpy(np.sort(np.random.default_rng(2).choice(40, size=n, replace=False)))
    alone = EKFAC(n_samples=None, **options).fit(model, (x[rows], y[rows]))
    tests = torch.randn(5, 1, 6, 6)
    # Scores are divided by the number of training samples, which is all of them.
    torch.testing.assert_close(some.attribute(tests)[:, rows] * 40, alone.attribute(tests) * n)
    torch.testing.assert_close(some.self_influence()[rows] * 40, alone.self_influence() * n)
    whole = EKFAC(n_samples=40, **options).fit(model, (x, y)).attribute(tests)
    assert torch.equal(whole, EKFAC(n_samples=None, **options).fit(model, (x, y)).attribute(tests))
    assert not torch.allclose(some.attribute(tests), whole)
    assert repr(some).endswith("samples of curvature=25")
