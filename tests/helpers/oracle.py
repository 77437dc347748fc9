"""The Crammer–Singer problem written a second time, plainly, and solved by a generic QP solver."""

from __future__ import annotations

import clarabel
import numpy as np
from scipy import sparse


def with_bias(X: np.ndarray, bias: bool) -> np.ndarray:
    X = np.asarray(X, dtype=np.float64)
    return np.hstack([X, np.ones((len(X), 1))]) if bias else X


def primal(X: np.ndarray, y: np.ndarray, W: np.ndarray, C: float, bias: bool) -> float:
    scores = with_bias(X, bias) @ W.T
    own = scores[np.arange(len(y)), y][:, None]
    margins = scores - own + (np.arange(len(W)) != np.asarray(y)[:, None])
    return 0.5 * float((W**2).sum()) + C * float(margins.max(axis=1).sum())


def dual(X: np.ndarray, y: np.ndarray, lam: np.ndarray, bias: bool) -> float:
    W = lam.T @ with_bias(X, bias)
    return float(lam[np.arange(len(y)), y].sum()) - 0.5 * float((W**2).sum())


def qp(X: np.ndarray, y: np.ndarray, K: int, C: float, bias: bool) -> tuple[float, np.ndarray]:
    """Optimal value and optimal W (which is unique) from the dual as a generic quadratic programme."""
    F = with_bias(X, bias)
    N = len(F)
    quadratic = sparse.csc_array(np.triu(np.kron(F @ F.T, np.eye(K))))
    linear = np.zeros((N, K))
    linear[np.arange(N), y] = -1.0
    upper = np.zeros((N, K))
    upper[np.arange(N), y] = C
    rows_sum = sparse.kron(sparse.eye_array(N), np.ones((1, K)))
    constraints = sparse.csc_array(sparse.vstack([rows_sum, sparse.eye_array(N * K)]))
    bounds = np.concatenate([np.zeros(N), upper.ravel()])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    cones = [clarabel.ZeroConeT(N), clarabel.NonnegativeConeT(N * K)]
    found = clarabel.DefaultSolver(quadratic, linear.ravel(), constraints, bounds, cones, settings).solve()
    lam = np.array(found.x).reshape(N, K)
    return -found.obj_val, lam.T @ F
