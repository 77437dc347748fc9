"""Compiled loops that any problem can use.

They release the GIL, so that blocks of rows can run side by side in threads. ``bias`` is the constant that
follows the features, 0 without one.
"""

from __future__ import annotations

import numba
import numpy as np

# Reassociation lets sums vectorise; NaN and infinity keep their meaning.
jit = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})


@jit
def dot(w, f, d):
    """w · f over the first d entries, in w's precision."""
    a = w.dtype.type(0)
    for j in range(d):
        a += w[j] * f[j]
    return a


@jit
def dot_pair(w0, w1, f, d):
    """Two products at once: f is read once, which is worth a third on wide registers."""
    a0 = w0.dtype.type(0)
    a1 = w0.dtype.type(0)
    for j in range(d):
        x = f[j]
        a0 += w0[j] * x
        a1 += w1[j] * x
    return a0, a1


@jit
def axpy(step, f, w, d):
    """w += step · f over the first d entries."""
    s = w.dtype.type(step)
    for j in range(d):
        w[j] += s * f[j]


@jit
def gather_scores(W, classes, m, f, d, bias, out):
    """out[c] = w_k · f for the m listed classes k."""
    c = 0
    while c + 2 <= m:
        s0, s1 = dot_pair(W[classes[c]], W[classes[c + 1]], f, d)
        out[c] = s0
        out[c + 1] = s1
        c += 2
    if c < m:
        out[c] = dot(W[classes[c]], f, d)
    if bias != 0.0:
        for c in range(m):
            out[c] += bias * W[classes[c], d]


@jit
def random_below(state, n):
    """A pseudo-random integer in [0, n), by a 64-bit xorshift step on state, an array of one uint64."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.int64(x % np.uint64(n))


@jit
def squared_norms(X, out):
    """‖f_i‖² of every row, in float64."""
    for i in range(X.shape[0]):
        f = X[i]
        total = 0.0
        for j in range(X.shape[1]):
            x = np.float64(f[j])
            total += x * x
        out[i] = total


@jit
def weight_of_lam(X, indptr, indices, data, bias, out):
    """out += Σ_i λ_i f_iᵀ with λ in compressed rows."""
    d = X.shape[1]
    for i in range(X.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            axpy(data[p], X[i], out[indices[p]], d)
            if bias != 0.0:
                out[indices[p], d] += bias * data[p]
