"""Compiled loops of the solver. Each releases the GIL, so that blocks of rows can run side by side."""

from __future__ import annotations

import numba
import numpy as np

jit = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})


@jit
def project_simplex(v, C, out):
    """Project v onto {a ≥ 0, Σ a = C}."""
    K = len(v)
    theta = -np.inf
    for c in range(K):
        theta = max(theta, v[c])
    theta -= C
    for _ in range(K):
        total = 0.0
        m = 0
        for c in range(K):
            if v[c] > theta:
                total += v[c]
                m += 1
        new = (total - C) / m
        if new <= theta:
            break
        theta = new
    for c in range(K):
        out[c] = max(v[c] - theta, 0.0)


@jit
def sweep(X, y, norms, order, W, alpha, C, bias):
    """One pass of dual coordinate descent over the samples in ``order``."""
    K, D = W.shape
    d = X.shape[1]
    v = np.empty(K)
    new = np.empty(K)
    for i in order:
        if norms[i] == 0.0:
            continue
        for c in range(K):
            s = 0.0
            for j in range(d):
                s += W[c, j] * X[i, j]
            if bias:
                s += W[c, d]
            if c != y[i]:
                s += 1.0
            v[c] = alpha[i, c] + s / norms[i]
        project_simplex(v, C, new)
        for c in range(K):
            step = alpha[i, c] - new[c]
            if step != 0.0:
                alpha[i, c] = new[c]
                for j in range(d):
                    W[c, j] += step * X[i, j]
                if bias:
                    W[c, d] += step
