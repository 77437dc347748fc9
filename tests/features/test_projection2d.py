"""Samples in the plane, against scikit-learn's principal components."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA

from whence.errors import InvalidInputError
from whence.features import project_2d
from whence.features.projection2d import available


def samples(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Correlated features with an offset, as float32."""
    rng = np.random.default_rng(seed)
    scales = np.concatenate([[9.0, 5.0], np.ones(d - 2)])
    turned, _ = np.linalg.qr(rng.normal(size=(d, min(d, 64))))
    return ((rng.normal(size=(n, min(d, 64))) * scales[: min(d, 64)]) @ turned.T + 40).astype(np.float32)


@pytest.mark.parametrize(("n", "d"), [(300, 7), (40, 2500)])
def test_places_are_the_first_two_principal_components(n: int, d: int) -> None:
    X, T = samples(n, d), samples(20, d, seed=1)
    theirs = PCA(2, svd_solver="full").fit(X.astype(np.float64))
    shown = project_2d(X, T)
    signs = np.sign(theirs.components_[[0, 1], np.abs(theirs.components_).argmax(1)])
    np.testing.assert_allclose(shown.training, theirs.transform(X) * signs, atol=2e-3)
    np.testing.assert_allclose(shown.tests, theirs.transform(T) * signs, atol=2e-3)
    np.testing.assert_allclose(shown.shares, theirs.explained_variance_ratio_, rtol=1e-4)


def test_directions_of_many_samples_are_those_of_some_evenly_spread() -> None:
    X = samples(12_000, 5)
    shown, theirs = project_2d(X).training, PCA(2, svd_solver="full").fit_transform(X.astype(np.float64))
    for ours, whole in zip(shown.T, theirs.T, strict=True):
        assert abs(np.corrcoef(ours, whole)[0, 1]) > 0.999


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_features_in_any_units_have_the_same_map(size: float) -> None:
    X = samples(50, 4).astype(np.float64)
    plain, scaled = project_2d(X), project_2d(X * size)
    np.testing.assert_allclose(scaled.training / size, plain.training, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(scaled.shares, plain.shares)


@pytest.mark.parametrize("X", [np.ones((5, 3)), np.arange(4.0)[:, None], np.ones((1, 2)), np.ones((1, 2100))])
def test_features_without_two_directions_have_a_place_too(X: np.ndarray) -> None:
    shown = project_2d(X)
    assert np.isfinite(shown.training).all()
    np.testing.assert_allclose(shown.training[:, 0], X[:, 0] - X[:, 0].mean(), atol=1e-6)
    np.testing.assert_allclose(shown.training[:, 1], 0, atol=1e-6)
    assert shown.tests.shape == (0, 2)


def test_umap_is_learned_from_the_training_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    class Umap:  # stands for umap-learn
        def __init__(self, n_components: int, random_state: int) -> None:
            self.n, self.seed = n_components, random_state

        def fit_transform(self, X: Any) -> Any:
            self.first = X[0]
            return X[:, : self.n] + self.seed

        def transform(self, X: Any) -> Any:
            return X[:, : self.n] - self.first[: self.n]

    module = ModuleType("umap")
    module.UMAP = Umap  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "umap", module)
    X = samples(5, 3)
    shown = project_2d(X, X[:2], method="umap", seed=3)
    np.testing.assert_array_equal(shown.training, X[:, :2] + 3)
    np.testing.assert_array_equal(shown.tests, X[:2, :2] - X[0, :2])
    assert shown.shares is None


@pytest.mark.skipif("umap" in available(), reason="umap-learn is installed")
def test_without_umap_the_message_names_what_to_install() -> None:
    with pytest.raises(InvalidInputError, match=r"Install whence\[umap\]"):
        project_2d(np.eye(3), method="umap")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"training": np.ones(3)}, r"'training' must have shape \(n, d\), .* Got \(3,\)"),
        ({"training": np.full((2, 2), np.nan)}, "'training' must be finite"),
        (
            {"training": np.eye(3), "tests": np.eye(2)},
            "'tests' must have the features of 'training', 3 of them",
        ),
        ({"training": np.eye(3), "method": "tsne"}, "'method' must be"),
    ],
)
def test_wrong_calls_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        project_2d(**given)
