"""Feature metrics, against their formulas in numpy and scikit-learn's covariance."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.covariance import empirical_covariance

from whence.errors import InvalidInputError, StoreError
from whence.features import METRICS, FeatureMap, Metric
from whence.features.metric import MapFacts, check_metric, learn_map, moments, saved_metric

ALL = [Metric(c, s, u) for c in (False, True) for s in (None, 0.1, 2.0) for u in (False, True)]


def features(n: int = 300, d: int = 7, dtype: type = np.float64) -> np.ndarray:
    """Features with a large mean, unequal directions, and a row of zeros."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) @ np.diag(np.geomspace(0.1, 3, d)) @ rng.normal(size=(d, d)) + 5.0
    X[3] = 0.0
    return X.astype(dtype)


def formula(metric: Metric, X: np.ndarray, f: np.ndarray) -> np.ndarray:
    """φ(f), written out."""
    if metric.centre:
        f = f - X.mean(axis=0)
    if metric.shrinkage is not None:
        cov = empirical_covariance(X)
        values, vectors = np.linalg.eigh(cov + metric.shrinkage * np.trace(cov) / len(cov) * np.eye(len(cov)))
        f = f @ (vectors / np.sqrt(values)) @ vectors.T
    if metric.unit:
        length = np.linalg.norm(f, axis=1, keepdims=True)
        f = f / np.where(length > 0, length, 1.0)
    return f


@pytest.mark.parametrize("metric", ALL, ids=str)
def test_maps_are_their_formula(metric: Metric) -> None:
    X, new = features(), features(20)[::-1].copy()
    learned = learn_map(metric, X)
    np.testing.assert_allclose(learned(torch.from_numpy(new)).numpy(), formula(metric, X, new), atol=1e-10)
    np.testing.assert_allclose(learned.rows(X), formula(metric, X, X), atol=1e-10)
    narrow = learned(torch.from_numpy(new.astype(np.float32)))
    assert narrow.dtype == torch.float32
    np.testing.assert_allclose(narrow.numpy(), formula(metric, X, new), atol=1e-4)


@pytest.mark.parametrize("metric", ALL, ids=str)
def test_pulls_are_the_inner_products_as_linear_forms(metric: Metric) -> None:
    X = features()
    learned, f = learn_map(metric, X), torch.from_numpy(X[5:9])
    v = torch.from_numpy(np.random.default_rng(1).normal(size=(4, X.shape[1])))
    e, rest = learned.pull(v, f)
    np.testing.assert_allclose((e * f).sum(1) + rest, (v * learned(f)).sum(1), atol=1e-10)
    e, rest = learned.pull(v, f[:1])
    np.testing.assert_allclose(e @ f[0] + rest, v @ learned(f[:1])[0], atol=1e-10)


def test_raw_features_are_not_copied() -> None:
    X = features()
    learned = learn_map("raw", X)
    assert learned.is_raw
    assert learned.rows(X) is X
    f = torch.from_numpy(X)
    assert learned(f) is f


def test_wide_features_share_a_factor_beyond_the_directions_of_the_samples() -> None:
    rng = np.random.default_rng(0)
    d, r = 2_500, 3
    basis = np.linalg.qr(rng.normal(size=(d, r)))[0]
    X = (rng.normal(size=(60, r)) * [9.0, 3.0, 1.0]) @ basis.T + 1.0  # of rank r about its mean
    learned = learn_map(Metric(centre=True, shrinkage=0.5), X)
    centred = X - X.mean(axis=0)
    cov = centred.T @ centred / len(X)
    values, vectors = np.linalg.eigh(cov + 0.5 * np.trace(cov) / d * np.eye(d))
    expected = centred[:5] @ (vectors / np.sqrt(values)) @ vectors.T
    assert learned.directions is not None
    assert learned.directions.shape == (d, r)
    np.testing.assert_allclose(learned(torch.from_numpy(X[:5])).numpy(), expected, rtol=1e-6, atol=1e-8)
    v = torch.from_numpy(rng.normal(size=(2, d)))
    e, rest = learned.pull(v, torch.from_numpy(X[:1]))
    f = torch.from_numpy(X[:1])
    np.testing.assert_allclose(e @ f[0] + rest, v @ learned(f)[0], rtol=1e-8)


def test_moments_keep_digits_at_a_large_offset() -> None:
    X = features() + 1e6
    mean, scatter = moments(X)
    np.testing.assert_allclose(mean, X.mean(axis=0))
    np.testing.assert_allclose(scatter / len(X), empirical_covariance(X), rtol=1e-6, atol=1e-6)


def test_constant_features_stay_finite() -> None:
    X = np.ones((5, 3))
    for metric in ALL:
        assert np.isfinite(learn_map(metric, X).rows(X)).all()


def test_files_keep_a_map() -> None:
    X = features()
    learned = learn_map("whitened", X)
    again = FeatureMap.restored(learned.arrays, MapFacts(**learned.facts), X.shape[1])
    np.testing.assert_array_equal(again.rows(X), learned.rows(X))
    broken = {name: array for name, array in learned.arrays.items() if name != "metric_gains"}
    with pytest.raises(StoreError, match="must come together"):
        FeatureMap.restored(broken, MapFacts(), X.shape[1])
    with pytest.raises(StoreError, match="'mean' must have shape"):
        FeatureMap.restored({"metric_mean": np.zeros(3)}, MapFacts(), X.shape[1])
    with pytest.raises(StoreError, match="above 0"):
        FeatureMap.restored(learned.arrays | {"metric_gains": -learned.gains}, MapFacts(), X.shape[1])


class Halved:
    """A metric of a user's own: the first feature counts half."""

    def fit(self, features: np.ndarray) -> FeatureMap:
        return FeatureMap(directions=np.eye(features.shape[1])[:, :1], gains=np.array([0.5]))


def test_what_a_metric_may_be() -> None:
    assert check_metric("metric", "unit") == "unit"
    assert check_metric("metric", {"centre": True, "shrinkage": 0.5}) == Metric(True, 0.5)
    own = check_metric("metric", Halved())
    np.testing.assert_allclose(learn_map(own, np.ones((2, 3))).rows(np.ones((2, 3))), [[0.5, 1, 1]] * 2)
    assert saved_metric(own) is None
    assert saved_metric(Metric(unit=True)) == {"centre": False, "shrinkage": None, "unit": True}
    assert set(METRICS) == {"raw", "unit", "centred", "whitened"}
    with pytest.raises(InvalidInputError, match='\'metric\' must be one of "auto", "raw"'):
        check_metric("metric", "cosine")
    with pytest.raises(InvalidInputError, match="an object whose fit"):
        check_metric("metric", 3)
    with pytest.raises(InvalidInputError, match="fields of Metric"):
        check_metric("metric", {"center": True})
    with pytest.raises(InvalidInputError, match="'shrinkage' must be a finite number above 0"):
        Metric(shrinkage=-1.0)
