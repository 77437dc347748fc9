"""Shortcuts against a closed form and planted marks; every audit reads features by the explainer's metric."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import whence
from tests.audit.cases import dualda
from tests.helpers.metrics import SHRINKAGE
from whence import audit
from whence.features import FeatureBank

TESTS = np.eye(3, 5)[[1, 2, 1]] + 4.0 * np.eye(5)[4]  # of other classes, with the mark


def with_shortcut() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features whose last direction marks a third of class 0, and nothing else."""
    rng = np.random.default_rng(2)
    y = np.arange(300) % 3
    X = 2.0 * np.eye(3, 5)[y] + 0.3 * rng.normal(size=(300, 5))
    marked = np.flatnonzero(y == 0)[::3]
    X[marked] = 4.0 * np.eye(5)[4] + 0.3 * rng.normal(size=(len(marked), 5))
    return X, y, marked


def whitened(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean (d,) and (Σ + tr Σ/d·I)^(−½) (d, d), by numpy."""
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    return X.mean(0), (vectors / np.sqrt(values + values.mean())) @ vectors.T


@pytest.mark.parametrize("options", [{"C": 1.0}, {"C": 1e-3, "metric": "unit"}, {"metric": "whitened"}])
def test_marked_samples_come_first_whatever_the_explainer(options: Any) -> None:
    X, y, marked = with_shortcut()
    explainer = dualda(X, y, **options)
    before = explainer.coef_.copy(), explainer.C_, explainer.metric
    found = audit.shortcuts(
        explainer, test_features=TESTS, target=0, features=X, k=len(marked), n_directions=2
    )
    assert (found.target, found.class_name, found.n_tests) == (0, "0", 3)
    assert set(found.samples) == set(marked)
    np.testing.assert_array_equal(found.scores, found.mean[found.samples])
    assert abs(found.directions[0].vector[4]) > 0.8
    assert set(found.directions[0].samples) == set(marked)
    # The explainer stays unchanged.
    np.testing.assert_array_equal(explainer.coef_, before[0])
    assert (explainer.C_, explainer.metric) == before[1:]


def test_scores_are_products_of_whitened_features() -> None:
    X, y, _ = with_shortcut()
    found = audit.shortcuts(dualda(X, y), test_features=TESTS, target=0, features=X)
    mean, S = whitened(X)
    Z = (X - mean) @ S
    square = (Z**2).sum(1).mean()  # of what carries the bias
    # Every sample is at its bound C = 1/Σ‖z‖², so that λ_i0 = C for class 0.
    expected = (Z[y == 0] @ ((TESTS - mean) @ S).mean(0) + square) / (Z**2).sum()
    np.testing.assert_allclose(found.mean[y == 0], expected, rtol=1e-6)
    assert found.explainer.kappa_ == pytest.approx(1.0)
    # All classes together, and test by test.
    assert found.logit == pytest.approx(found.explainer.decision_function(features=TESTS)[:, 0].mean().item())
    each = found.explainer.attribute(features=TESTS, target=0).numpy()
    np.testing.assert_allclose(each.mean(0), found.mean, atol=1e-9)
    assert found.mean.sum() == pytest.approx(found.logit)
    assert "explainer" not in json.loads(json.dumps(found.to_dict()))


def test_a_class_is_asked_by_its_own_samples() -> None:
    X, y, _ = with_shortcut()
    explainer = dualda(X, y, bias=False)
    found = audit.shortcuts(explainer, target=0, features=X, n_directions=5)
    assert found.n_tests == (y == 0).sum()
    assert set(y[found.samples]) == {0}
    assert sum(part.evidence for part in found.directions) == pytest.approx(found.logit, rel=1e-5)
    given = audit.shortcuts(explainer, test_features=X[y == 0], target=0, features=X)
    np.testing.assert_allclose(given.mean, found.mean, rtol=1e-6)


# The metric

Columns = list[np.ndarray]
AUDITS: dict[str, Callable[[Any, np.ndarray, np.ndarray], Columns]] = {
    "odds": lambda e, X, T: _labels(audit.wrong_labels(e, features=X)),
    "slack": lambda e, X, T: _labels(audit.wrong_labels(e, ranking="slack")),
    "self_influence": lambda e, X, T: _labels(audit.wrong_labels(e, ranking="self_influence", features=X)),
    "group": lambda e, X, T: [(g := audit.group_attribution(e, features=T, target=1)).mean, g.mean_absolute],
    "coreset": lambda e, X, T: [audit.coreset(e, features=T, target=2).scores],
    "classes": lambda e, X, T: [
        part for c in audit.class_view(e).classes for part in (c.margins, np.sort(c.shares), c.coefficients)
    ],
    "values": lambda e, X, T: [audit.values(e, features=T, y=np.arange(len(T)) % 3).values],
}


def _labels(found: audit.WrongLabels) -> Columns:
    order = np.argsort(found.indices)  # whatever comes first of those that tie
    return [found.scores[order], found.suggested[order], found.neighbours[order]]


@pytest.mark.parametrize("name", AUDITS)
def test_audits_read_features_by_the_metric(name: str) -> None:
    rng = np.random.default_rng(3)
    X, y, _ = with_shortcut()
    y[::10] = rng.integers(0, 3, len(y[::10]))  # wrong labels, without which probabilities have no scale
    X = X * np.exp(rng.normal(size=(len(X), 1))) + 3.0
    T = X[::29] + 0.1 * rng.normal(size=X[::29].shape)
    method = whence.Effects if name == "values" else whence.DualDA
    options = {"C": 0.02, "show_progress": False} | ({} if name == "values" else {"tol": 1e-10})
    ours = method(metric="whitened", **options).fit(features=FeatureBank.of(X, y))
    mean, values, S = X.mean(0), *np.linalg.eigh(np.cov(X.T, bias=True))
    S = (S / np.sqrt(values + SHRINKAGE * values.mean())) @ S.T
    Z, tests = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in ((X - mean) @ S, (T - mean) @ S)
    )
    plain = method(metric="raw", **options).fit(features=FeatureBank.of(Z, y))
    found, expected = AUDITS[name](ours, X, T), AUDITS[name](plain, Z, tests)
    near = 0.1 if name == "odds" else 1e-4  # whose surrogates are solved to a gap of 1e-3
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=near, atol=0.01 * near)
