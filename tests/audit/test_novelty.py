"""Novel inputs against scikit-learn's neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from tests.audit.cases import dualda
from whence import DualDA, Ensemble, OneClass, audit
from whence.errors import InvalidInputError, UnsupportedError


def problem() -> tuple[DualDA, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    X = (np.eye(3, 8)[y] * 2 + 0.2 * rng.random((120, 8))).astype(np.float32)
    return dualda(X, y), X


def unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def test_distances_and_threshold_are_those_of_neighbours() -> None:
    explainer, X = problem()
    tests = np.concatenate([X[:4] + 0.01, np.eye(8, dtype=np.float32)[5:]])
    found = audit.novel_inputs(explainer, features=tests, training=X, k=3, quantile=0.9)
    known = NearestNeighbors(n_neighbors=4).fit(unit(X.astype(np.float64)))
    distances, places = known.kneighbors(unit(tests.astype(np.float64)))
    np.testing.assert_allclose(found.distances, distances[:, 2], atol=1e-3)
    np.testing.assert_array_equal(found.neighbours, places[:, :3])
    own = known.kneighbors(unit(X.astype(np.float64)))[0][:, 3]  # the first is the sample itself
    assert found.threshold == pytest.approx(np.quantile(own, 0.9), abs=1e-3)
    assert found.novel.tolist() == [False] * 4 + [True] * 3
    assert "unlike the training set" in str(found)
    assert found.to_dict()["tests"][6]["novel"] is True


def test_samples_that_were_removed_are_no_neighbours() -> None:
    explainer, X = problem()
    before = audit.novel_inputs(explainer, features=X[:1], training=X, k=1)
    assert before.neighbours[0, 0] == 0
    explainer.update(remove=[0], features=X)
    after = audit.novel_inputs(explainer, features=X[:1], training=X, k=1)
    assert after.neighbours[0, 0] != 0


def test_bad_input_is_named() -> None:
    explainer, X = problem()
    for options, message in (
        ({"features": X, "k": 120}, "'k' must"),
        ({"features": X, "quantile": 2}, "'quantile' must"),
        ({}, "Either 'x' or 'features'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            audit.novel_inputs(explainer, training=X, **options)
    for other in (OneClass(show_progress=False), Ensemble(), DualDA, "x.whence"):
        with pytest.raises(UnsupportedError, match="another that explains by features"):
            audit.novel_inputs(other, features=X)
