"""Signed similarity against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import fractional_matrix_power
from sklearn.metrics.pairwise import cosine_similarity
from torch import Tensor, nn

from tests.helpers.metrics import SHRINKAGE
from whence.errors import InvalidInputError
from whence.methods import Similarity

K, N, B = 3, 30, 5
QUIET: dict[str, Any] = {"show_progress": False}


def problem() -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, K))
    return model, torch.randn(N, 2, 4), torch.arange(N) % K, torch.randn(B, 2, 4)


def similarity(metric: str, u: np.ndarray, v: np.ndarray, train: np.ndarray) -> float:
    if metric == "dot":
        return float(u @ v)
    if metric == "cosine":
        return float(u @ v / np.linalg.norm(u) / np.linalg.norm(v))
    if metric in ("centred", "whitened"):
        a, b = u - train.mean(0), v - train.mean(0)
        if metric == "centred":
            return float(a @ b)
        covariance = np.cov(train.T, bias=True)
        shrunk = covariance + SHRINKAGE * np.trace(covariance) / len(u) * np.eye(len(u))
        S = fractional_matrix_power(shrunk, -0.5)
        return float((S @ a) @ (S @ b) / np.linalg.norm(S @ a) / np.linalg.norm(S @ b))
    radius = np.sqrt(np.mean([np.sum((t - train.mean(0)) ** 2) for t in train]))
    return float(1 / (1 + np.linalg.norm(u - v) / radius))


@pytest.mark.parametrize("metric", ["dot", "cosine", "centred", "whitened", "l2"])
@pytest.mark.parametrize("space", ["features", "input"])
def test_scores_are_similarities_with_the_sign_of_the_label(metric: Any, space: Any) -> None:
    model, x, y, tests = problem()
    explainer = Similarity(metric, space, batch_size=4, **QUIET).fit(model, (x, y))
    map_ = model[:3] if space == "features" else model[:1]
    with torch.no_grad():
        train, new = (map_(t).double().numpy() for t in (x, tests))
    classes = [0, 1, 2, 0, 1]
    expected = np.empty((B, N))
    for b in range(B):
        for i in range(N):
            s = similarity(metric, new[b], train[i], train)
            expected[b, i] = s if y[i] == classes[b] else -s
    np.testing.assert_allclose(explainer.attribute(tests, classes), expected, rtol=2e-4, atol=3e-6)
    own = [similarity(metric, t, t, train) for t in train]
    np.testing.assert_allclose(explainer.self_influence(), own, rtol=1e-5)


def test_a_vector_without_direction_is_like_none() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, K))
    with torch.no_grad():
        model[0].weight.abs_()
    x, y = torch.randn(12, 4).abs() + 0.1, torch.arange(12) % K
    x[7] *= -1
    explainer = Similarity("cosine", **QUIET).fit(model, (x, y))
    tests = torch.stack([x[0], -x[0]])
    with torch.no_grad():
        features, own = (model[:2](part).numpy() for part in (x, tests))
    expected = cosine_similarity(own, features)  # which has 0 there too
    np.testing.assert_allclose(explainer.attribute(tests, 0), np.where(y == 0, 1, -1) * expected, atol=1e-6)
    assert not expected[1].any()
    assert explainer.self_influence().tolist() == pytest.approx([float(i != 7) for i in range(12)])


def test_tokens_have_no_distance() -> None:
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, K))
    x, y = torch.randint(9, (12, 2)), torch.arange(12) % K
    with pytest.raises(
        InvalidInputError, match=r"'space' must be \"features\".*Got inputs of dtype torch.int64"
    ):
        Similarity(space="input", **QUIET).fit(model, (x, y))
