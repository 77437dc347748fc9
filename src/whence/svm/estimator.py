"""The multiclass machine as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from whence.core.arrays import Array, Doubles, Ints
from whence.svm.solver import solve


class CrammerSingerSVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier by the support vector machine of Crammer and Singer, to a certified duality gap.

    It solves min_W ½‖W‖² + C Σ_i max_c (1 − δ_{c,y_i} − w_{y_i}·x_i + w_c·x_i), as
    ``LinearSVC(multi_class="crammer_singer")`` of scikit-learn does, and returns the dual solution too.

    Parameters
    ----------
    C
        Weight of the losses.
    fit_intercept
        Append a constant to the features; its weight is penalised like the others.
    intercept_scaling
        The constant.
    tol
        Relative duality gap to reach.
    max_seconds
        Time limit, after which the best solution so far is used, with a warning; None for no limit.
    n_jobs
        Threads; None for all cores.
    random_state
        Seed of the solver; equal seeds repeat a fit to the bit.

    Attributes
    ----------
    classes_ : (K,) the labels, sorted
    coef_ : (K, d) float64; of two classes (1, d), those of the second less those of the first
    intercept_ : (K,), or (1,) of two classes; 0 without an intercept
    dual_coef_ : (N, K) csr_array, λ: positive for a sample's own class, rows sum to zero, and
        W = ``dual_coef_.T @ X``
    support_ : (S,) int64, samples with λ_i ≠ 0, ascending
    gap_ : float, relative duality gap of ``coef_`` and ``dual_coef_``
    n_iter_ : int, rounds of the solver
    n_features_in_ : int, d

    Examples
    --------
    >>> import numpy as np
    >>> from whence.svm import CrammerSingerSVC
    >>> rng = np.random.default_rng(0)
    >>> y = np.array(["ant", "bee", "cow"])[rng.integers(0, 3, 200)]
    >>> X = (y[:, None] == ["ant", "bee", "cow"]) + 0.1 * rng.normal(size=(200, 3))
    >>> machine = CrammerSingerSVC(C=1.0).fit(X, y)
    >>> machine.score(X, y), bool(np.allclose(machine.dual_coef_.T @ X, machine.coef_))
    (1.0, True)
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        tol: float = 1e-5,
        max_seconds: float | None = None,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.tol = tol
        self.max_seconds = max_seconds
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to features (N, d) and labels (N,) of any kind that numpy sorts."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C")
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"'y' must have at least two classes. Got one class, {self.classes_[0]!r}.")
        bias = float(self.intercept_scaling) if self.fit_intercept else False
        solution = solve(
            X, labels, n_classes=len(self.classes_), C=self.C, bias=bias, tol=self.tol,
            max_seconds=self.max_seconds, n_threads=self.n_jobs, seed=self.random_state,
        )  # fmt: skip
        weight: Doubles = solution.weight
        if len(self.classes_) == 2:
            weight = weight[1:] - weight[:1]
        d = X.shape[1]
        self.coef_, self.intercept_ = weight[:, :d], weight[:, d:].sum(axis=1)
        self.dual_coef_: csr_array = solution.lam
        self.support_: Ints = np.flatnonzero(np.diff(solution.lam.indptr))
        self.gap_, self.n_iter_ = solution.gap, max(1, solution.n_iter)
        return self

    def decision_function(self, X: Any) -> Doubles:
        """Compute scores (N, K) of the classes; for two classes (N,), positive for the second."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        scores: Doubles = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Return the class (N,) with the largest score."""
        scores = self.decision_function(X)
        chosen: Array = self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
        return chosen
