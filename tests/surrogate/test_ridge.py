"""Effects of regressions against ridge regression in closed form, and against leaving samples out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whence
from whence.errors import InvalidInputError
from whence.features import FeatureBank
from whence.tasks import Regression


def problem(n: int, d: int, K: int) -> tuple[np.ndarray, np.ndarray, FeatureBank]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = (X @ rng.normal(size=(d, K)) * 3 + rng.normal(size=(n, K)) + 7).astype(np.float32)
    y = y[:, 0] if K == 1 else y
    return X, y, FeatureBank.of(X, y, task=Regression())


def ridge(X: np.ndarray, y: np.ndarray, C: float, b: float, T: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Predictions (B, K) of ½‖W‖² + C/2 Σ‖t − W f‖², t by the mean and the deviation of ``like``."""
    F, G = (np.c_[A.astype(np.float64), np.full(len(A), b)] for A in (X, T))
    known = like.reshape(len(like), -1).astype(np.float64)
    centre, scale = known.mean(0), known.std(0)
    t = (y.reshape(len(y), -1) - centre) / scale
    W = np.linalg.solve(np.eye(F.shape[1]) + C * F.T @ F, C * F.T @ t)
    return centre + scale * (G @ W)


@pytest.mark.parametrize(("n", "d", "K"), [(40, 5, 1), (40, 5, 3), (12, 20, 2)])
def test_scores_are_leave_one_out_but_for_the_leverage(n: int, d: int, K: int) -> None:
    X, y, bank = problem(n, d, K)
    C = 0.05
    explainer = whence.Effects(C=C, layers="last", show_progress=False).fit(features=bank)
    T = np.random.default_rng(1).normal(size=(4, d)).astype(np.float32)
    b = explainer.constant_
    whole = ridge(X, y, C, b, T, y)
    np.testing.assert_allclose(explainer.surrogate_.logits(torch.from_numpy(T)), whole, rtol=1e-5)
    assert abs(explainer.gap_) < 1e-10
    F = np.c_[X.astype(np.float64), np.full(n, b)]
    leverage = C * np.einsum("nd,nd->n", F, np.linalg.solve(np.eye(d + 1) + C * F.T @ F, F.T).T)
    scores = explainer.attribute(features=T, target=K - 1).numpy()
    for i in (0, 7, n - 1):
        rest = np.arange(n) != i
        without = ridge(X[rest], y[rest], C, b, T, y)
        lost = (whole - without)[:, K - 1]
        np.testing.assert_allclose(scores[:, i] / (1 - leverage[i]), lost, rtol=2e-3, atol=1e-4)
        found = explainer.effect_of(features=T, target=K - 1, remove=[i], training_features=X)
        np.testing.assert_allclose(found.exact, -lost, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found.first_order, -scores[:, i], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found.corrected, -lost, rtol=1e-3, atol=1e-4)
    gone = [0, 3, 5, 7]
    rest = np.setdiff1d(np.arange(n), gone)
    changed = (ridge(X[rest], y[rest], C, b, T, y) - whole)[:, K - 1]
    found = explainer.effect_of(features=T, target=K - 1, remove=gone, training_features=X)
    np.testing.assert_allclose(found.corrected, changed, rtol=1e-3, atol=1e-4)


def test_another_number_changes_predictions_in_a_straight_line() -> None:
    X, y, bank = problem(40, 5, 1)
    explainer = whence.Effects(C=0.05, layers="last", show_progress=False).fit(features=bank)
    other = y.copy()
    other[3] += 2
    T = X[:4]
    b = explainer.constant_
    expected = ridge(X, other, 0.05, b, T, y) - ridge(X, y, 0.05, b, T, y)
    found = explainer.effect_of(features=T, relabel={3: float(other[3])}, training_features=X)
    np.testing.assert_allclose(found.exact, expected[:, 0], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found.first_order, expected[:, 0], rtol=1e-3, atol=1e-5)


def test_a_network_is_fitted_saved_and_explained(tmp_path: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(50, 4)
    y = x[:, 0] * 5 + 10
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    explainer = whence.Effects(show_progress=False).fit(model, (x, y))
    (why,) = explainer.explain(x[:1], k=2, truth=y[:1])
    assert why.question == "would change"
    assert "raises" in why.words.side[0]
    assert "ridge regression" in why.effect.description
    for pair in why.pairs:  # relevance of an affine map is all of the effect, but biases
        assert pair.score == pytest.approx(float(explainer.attribute(x[:1])[0, pair.index]), rel=1e-3)
    assert "the prediction would be lower" in whence.explanation.Explanations([why]).to_html()
    explainer.save(tmp_path / "x.whence")
    again = whence.load(tmp_path / "x.whence", model)
    assert torch.equal(again.attribute(x[:2]), explainer.attribute(x[:2]))


def test_what_has_no_prediction_is_refused() -> None:
    x, y = torch.randn(20, 3), torch.linspace(0, 1, 20)
    with pytest.raises(InvalidInputError, match="'output' must be \"logit\", the prediction itself, for"):
        whence.Effects(output="margin", show_progress=False).fit(nn.Linear(3, 1), (x, y))
    labels = (torch.arange(20)[:, None] % torch.tensor([2, 3]) == 0).float()
    with pytest.raises(InvalidInputError, match="The model of Effects must have classes"):
        whence.Effects(show_progress=False).fit(nn.Linear(3, 2), (x, labels))
