"""The solver."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from whence.errors import ConvergenceWarning
from whence.svm import kernels
from whence.svm.problem import Doubles, make_problem


@dataclass(frozen=True)
class Solution:
    """A feasible point with its certificate."""

    lam: csr_array
    weight: Doubles
    primal: float
    dual: float
    gap: float
    status: str
    n_iter: int
    seconds: float
    C: float
    bias: bool
    history: list[tuple[float, float]] = field(default_factory=list)


def solve(
    features: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    n_classes: int | None = None,
    C: float,
    bias: bool = True,
    tol: float = 1e-5,
    max_seconds: float | None = None,
    warm_start: csr_array | None = None,
    seed: int = 0,
    n_threads: int | None = None,
    callback: Callable[[float, float], object] | None = None,
) -> Solution:
    """Provisional: plain coordinate descent."""
    start = time.perf_counter()
    p = make_problem(features, labels, n_classes, C, bias)
    N, K = len(p.labels), p.n_classes
    alpha = np.zeros((N, K))
    alpha[np.arange(N), p.labels] = p.C
    W = np.zeros(p.shape)
    rng = np.random.default_rng(seed)
    history = []
    limit = np.inf if max_seconds is None else max_seconds
    n_iter = 0
    while True:
        for _ in range(5):
            kernels.sweep(p.features, p.labels, p.squared_norms, rng.permutation(N), W, alpha, p.C, p.bias)
            n_iter += 1
        lam_dense = -alpha
        lam_dense[np.arange(N), p.labels] = 0.0
        lam_dense[np.arange(N), p.labels] = -lam_dense.sum(axis=1)
        lam = csr_array(lam_dense)
        lam.eliminate_zeros()
        W = p.weight(lam)
        primal, dual = p.primal(W), p.dual(lam, W)
        gap = (primal - dual) / primal
        history.append((time.perf_counter() - start, gap))
        if callback is not None:
            callback(history[-1][0], gap)
        if gap <= tol or history[-1][0] > limit or n_iter > 2000:
            break
    status = "converged" if gap <= tol else "stopped"
    if gap > tol:
        warnings.warn(ConvergenceWarning(f"gap {gap:.1e} > tol {tol:.1e}"), stacklevel=2)
    return Solution(lam, W, primal, dual, gap, status, n_iter, history[-1][0], p.C, p.bias, history)
