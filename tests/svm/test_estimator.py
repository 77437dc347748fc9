"""The estimator of scikit-learn, against scikit-learn's own checks and its own machine."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from whence.errors import InvalidInputError
from whence.svm import CrammerSingerSVC, solve


@parametrize_with_checks([CrammerSingerSVC()])
def test_it_is_an_estimator(estimator, check) -> None:
    check(estimator)


def blobs(n_classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_blobs(150, 5, centers=n_classes, cluster_std=4.0, random_state=0)
    return X / 10, np.array(["ant", "bee", "cow", "doe"])[y]


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_it_is_scikit_learns_machine(n_classes: int, fit_intercept: bool) -> None:
    X, y = blobs(n_classes)
    ours = CrammerSingerSVC(C=0.5, tol=1e-9, fit_intercept=fit_intercept, intercept_scaling=2.0).fit(X, y)
    theirs = LinearSVC(
        multi_class="crammer_singer", C=0.5, tol=1e-9, max_iter=100_000, fit_intercept=fit_intercept,
        intercept_scaling=2.0,
    ).fit(X, y)  # fmt: skip
    assert ours.coef_.shape == theirs.coef_.shape
    # liblinear finds the classes' weights; of two classes scikit-learn gives their difference too.
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=2e-3)
    assert (ours.predict(X) == theirs.predict(X)).mean() > 0.99
    assert ours.classes_.tolist() == theirs.classes_.tolist()


def test_the_dual_solution_is_exposed() -> None:
    X, y = blobs()
    machine = CrammerSingerSVC(C=0.1).fit(X, y)
    lam = machine.dual_coef_
    np.testing.assert_allclose(lam.T @ X, machine.coef_, atol=1e-10)
    np.testing.assert_allclose(lam.sum(axis=1), 0, atol=1e-12)
    labels = np.searchsorted(machine.classes_, y)
    own = lam.toarray()[np.arange(len(y)), labels]
    assert (own >= 0).all()
    assert own.max() <= 0.1 + 1e-12
    assert machine.support_.tolist() == np.flatnonzero(own).tolist()
    assert machine.gap_ == solve(X, labels, C=0.1).gap <= 1e-5


def test_it_goes_through_pipelines_and_searches() -> None:
    X, y = blobs()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), CrammerSingerSVC()), {"crammersingersvc__C": [1e-6, 1e-1]}, cv=3
    ).fit(X, y)
    assert search.best_params_ == {"crammersingersvc__C": 1e-1}
    assert clone(search.best_estimator_[-1]).C == 1e-1


def test_bad_values_are_named() -> None:
    X, y = blobs()
    with pytest.raises(InvalidInputError, match="'C' must be"):
        CrammerSingerSVC(C=-1).fit(X, y)
    with pytest.raises(ValueError, match="at least two classes"):
        CrammerSingerSVC().fit(X, np.zeros(len(X)))
