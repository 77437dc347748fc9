"""Bounds on weights and logits by the duality gap, against solutions at a much smaller gap."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import whence
from whence.features import FeatureBank
from whence.surrogate.bounds import logit_bound, typical_bound, weight_bound
from whence.surrogate.scores import Contrast


def data(seed: int = 0) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(seed)
    y = random.integers(0, 4, 300)
    X = (np.eye(4, 12)[y] * 1.5 + random.normal(size=(300, 12))).astype(np.float32)
    return X, y, random.normal(size=(50, 12)).astype(np.float32)


def fitted(X: Any, y: Any, tol: float, metric: str = "raw", bias: bool = True) -> whence.DualDA:
    method = whence.DualDA(C=0.3, metric=metric, tol=tol, bias=bias, show_progress=False)
    return method.fit(features=FeatureBank.of(X, y))


@pytest.mark.filterwarnings("ignore::whence.errors.ConvergenceWarning")
@pytest.mark.parametrize(("metric", "bias"), [("raw", True), ("raw", False), ("whitened", True)])
@pytest.mark.parametrize("tol", [3e-2, 1e-4])
def test_weights_and_logits_are_within_the_bound_of_those_at_a_much_smaller_gap(
    metric: str, bias: bool, tol: float
) -> None:
    X, y, tests = data()
    rough, fine = (fitted(X, y, one, metric, bias).surrogate_ for one in (tol, 1e-11))
    # P(W) by its definition, as the loss is written in the paper.
    Z = rough.metric.rows(X).astype(np.float64)
    scores = Z @ rough.coef[:, :12].T + (rough.coef[:, 12] if bias else 0.0)
    own = scores[np.arange(len(y)), y]
    loss = (1 - np.eye(4)[y] - own[:, None] + scores).max(axis=1).sum()
    norm = (rough.coef[:, :12] ** 2).sum()
    norm += (rough.coef[:, 12] ** 2).sum() / rough.constant**2 if bias else 0.0
    primal = 0.5 * norm + 0.3 * loss
    far = weight_bound(rough)
    assert far == pytest.approx(math.sqrt(2 * rough.gap * primal), rel=1e-4)
    apart = (rough.coef - fine.coef) / np.array([1.0] * 12 + [rough.constant] * bias)
    assert 0 < np.linalg.norm(apart) <= far + weight_bound(fine)
    x = torch.from_numpy(tests)
    moved = (rough.logits(x) - fine.logits(x)).numpy()
    for contrast, change in (
        (Contrast(1, None, False), moved[:, 1]),
        (Contrast(1, 2, False), moved[:, 1] - moved[:, 2]),
    ):
        bounds = np.array([logit_bound(rough, x[i : i + 1], contrast) for i in range(len(x))])
        assert (np.abs(change) <= bounds + 1e-5).all()
    if tol > 1e-3:  # the gap itself is no bound: a logit moves by more than that share of its size
        assert (np.abs(moved / fine.logits(x).numpy()) > rough.gap).any()


def test_the_bound_is_shown_next_to_the_gap() -> None:
    X, y, _ = data()
    explainer = fitted(X, y, 1e-6)
    bound = typical_bound(explainer.surrogate_)
    assert bound == pytest.approx(
        math.sqrt(2) * explainer.surrogate_.constant * weight_bound(explainer.surrogate_)
    )
    assert f"logit_bound={bound:.3g}"[:17] in repr(explainer)


def test_regressions_have_no_bound() -> None:
    X, y, _ = data()
    bank = FeatureBank.of(X, y.astype(np.float32))
    explainer = whence.DualDA(C=0.3, show_progress=False).fit(features=bank)
    assert weight_bound(explainer.surrogate_) is None
    assert typical_bound(explainer.surrogate_) is None
