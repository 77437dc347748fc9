"""How usual tests are by one-class machines: scikit-learn's machine on the centred features is the oracle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.svm import OneClassSVM

import whence
from whence.errors import StoreError
from whence.features import FeatureBank


def problem(n: int = 150) -> tuple[np.ndarray, np.ndarray, FeatureBank]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = (np.eye(3, 6)[y] * 2 + 0.5 * rng.random((n, 6))).astype(np.float32)
    return X, y, FeatureBank.of(X, y, head=(np.eye(3, 6, dtype=np.float32), None))


def oracle(G: np.ndarray, T: np.ndarray, nu: float) -> np.ndarray:
    """w·g(x) of the ν-machine with its threshold scaled to 1."""
    theirs = OneClassSVM(kernel="linear", nu=nu, tol=1e-10).fit(G)
    return theirs.decision_function(T) / theirs.offset_[0] + 1


def test_usualness_is_scikit_learns_by_class_and_sums_are_exact() -> None:
    X, y, bank = problem()
    # At a ν where ν·n is whole, nothing is at the boundary and its threshold is not unique.
    explainer = whence.OneClass(nu=0.19, tol=1e-9, show_progress=False).fit(features=bank)
    tests = np.random.default_rng(1).random((12, 6)).astype(np.float32) * 2
    centre = X.astype(np.float64).mean(0)
    assert explainer.nu_.numpy() == pytest.approx([0.19] * 3, abs=0.02)
    for c in range(3):
        wanted = oracle(X[y == c] - centre, tests - centre, float(explainer.nu_[c]))
        np.testing.assert_allclose(explainer.typicality(features=tests, target=c), wanted, atol=2e-4)
    scores = explainer.attribute(features=tests)
    assert scores.shape == (12, 150)
    np.testing.assert_allclose(scores.sum(1), explainer.typicality(features=tests), atol=1e-4)
    said = (tests[:, :3]).argmax(1)
    np.testing.assert_allclose(
        explainer.typicality(features=tests), explainer.typicality(features=tests, target=said)
    )
    assert not scores[torch.as_tensor(y)[None] != torch.as_tensor(said)[:, None]].any()


def test_the_boundary_is_at_one_and_few_samples_lie_outside() -> None:
    X, y, bank = problem()
    explainer = whence.OneClass(nu=0.2, tol=1e-9, show_progress=False).fit(features=bank)
    own = explainer.typicality(features=X, target=y).numpy()
    inner = np.setdiff1d(np.arange(len(X)), explainer.support_)
    np.testing.assert_allclose(own[explainer.boundary_], 1, atol=1e-3)
    assert (own[explainer.outside_] <= 1 + 1e-3).all()
    assert (own[inner] >= 1 - 1e-3).all()
    assert 0 < len(explainer.outside_) <= 0.22 * len(X)
    assert sorted([*explainer.boundary_, *explainer.outside_]) == explainer.support_.tolist()
    assert (own > 1 - 1e-3).mean() >= 0.78
    norms = ((X - X.mean(0)) ** 2).sum(1)
    lam = explainer.self_influence().numpy() / norms
    assert (np.flatnonzero(lam) == explainer.support_).all()


def test_one_machine_of_the_whole_and_one_per_label() -> None:
    X, y, bank = problem()
    whole = whence.OneClass(by="whole", tol=1e-9, show_progress=False).fit(features=bank)
    G = X - X.astype(np.float64).mean(0)
    wanted = oracle(X, X[:9], float(whole.nu_[0]))
    np.testing.assert_allclose(whole.typicality(features=X[:9]), wanted, atol=1e-3)
    labels = np.stack([y == 0, y != 1], axis=1).astype(np.float32)
    head = np.eye(2, 6, dtype=np.float32), None
    many = whence.OneClass(tol=1e-9, show_progress=False).fit(features=FeatureBank.of(X, labels, head=head))
    wanted = oracle(G[y != 1], G[:9], float(many.nu_[1]))
    np.testing.assert_allclose(many.typicality(features=X[:9], target=1), wanted, atol=1e-3)
    np.testing.assert_allclose(many.attribute(features=X[:9], target=1).sum(1), wanted, atol=1e-3)


def test_it_is_saved_and_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    X, _, bank = problem()
    explainer = whence.OneClass(show_progress=False).fit(features=bank)
    explainer.save(tmp_path / "usual.whence")
    again = whence.load(tmp_path / "usual.whence")
    assert torch.equal(again.attribute(features=X[:5]), explainer.attribute(features=X[:5]))
    assert again.boundary_.tolist() == explainer.boundary_.tolist()
    arrays, manifest = explainer.packed()
    arrays["vectors"] = arrays["vectors"][1:]
    with pytest.raises(StoreError, match="'vectors' must have one row per sample"):
        whence.OneClass.restored(arrays, manifest, None)
