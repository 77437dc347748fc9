"""The one-class machine against scikit-learn's with a linear kernel, at the ν that belongs to C."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import OneClassSVM

from whence.svm import OneClass, solve


@pytest.mark.parametrize("C", [1e-3, 1e-2, 0.1])
def test_it_is_the_nu_machine_with_its_threshold_scaled_to_one(C: float) -> None:
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(size=(200, 6))) + 0.3
    found = solve(X, np.ones(200), problem=OneClass, n_classes=1, C=C, bias=False, tol=1e-10)
    lam = found.lam.toarray()[:, 0]
    assert (lam >= 0).all()
    assert (lam <= C).all()
    nu = lam.sum() / (C * 200)
    theirs = OneClassSVM(kernel="linear", nu=nu, tol=1e-10).fit(X)
    rho = theirs.offset_[0]
    np.testing.assert_allclose(found.weight[0], theirs.coef_[0] / rho, rtol=1e-4, atol=1e-6)
    alpha = np.zeros(200)
    alpha[theirs.support_] = theirs.dual_coef_[0]
    np.testing.assert_allclose(X.T @ lam, X.T @ alpha / rho, rtol=1e-4, atol=1e-6)
    assert 1 / rho == pytest.approx(C, rel=1e-4)  # of α that are at most 1
    # The sum over samples is the score, and the share outside is at most ν.
    np.testing.assert_allclose((X @ X.T) @ lam, X @ found.weight[0], rtol=1e-9)
    assert (X @ found.weight[0] < 1 - 1e-6).mean() <= nu
