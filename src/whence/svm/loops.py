"""Compiled loops for any problem.

They release the GIL, so that blocks of rows can run side by side in threads. ``bias`` is the constant that
follows the features, 0 without one.
"""

from __future__ import annotations

import numba
import numpy as np

# Reassociation allows vectorised sums; NaN and infinity keep their meaning.
jit = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})


@jit
def dot(w, f, d):
    """Return w · f over the first d entries, in w's precision."""
    a = w.dtype.type(0)
    for j in range(d):
        a += w[j] * f[j]
    return a


@jit
def dot_pair(w0, w1, f, d):
    """Return two products at once: f is read once, a third faster with wide registers."""
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
    """Return a pseudo-random integer in [0, n), by a 64-bit xorshift step on state, one uint64."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.int64(x % np.uint64(n))


@jit
def squared_norms(X, out):
    """Return ‖f_i‖² of every row, in float64."""
    for i in range(X.shape[0]):
        f = X[i]
        total = 0.0
        for j in range(X.shape[1]):
            x = np.float64(f[j])
            total += x * x
        out[i] = total


@jit
def inner(A, B):
    """Return Σ A_cj B_cj in float64."""
    total = 0.0
    for c in range(A.shape[0]):
        a, b = A[c], B[c]
        for j in range(len(a)):
            total += np.float64(a[j]) * np.float64(b[j])
    return total


@jit
def add_weight(X, rows, ptr, outputs, data, bias, first, last, out):
    """out[:, first:last] += Σ_i λ_i f_iᵀ in these columns, with λ of some rows in compressed rows.

    Every number is summed in the order of the rows, independently of who sums the other columns.
    """
    d = X.shape[1]
    stop = min(last, d)
    for o in range(len(rows)):
        if ptr[o] == ptr[o + 1]:
            continue
        f = X[rows[o]][first:stop]
        for p in range(ptr[o], ptr[o + 1]):
            if data[p] != 0.0:
                axpy(data[p], f, out[outputs[p]][first:stop], stop - first)
                if last > d:
                    out[outputs[p], d] += bias * data[p]


@jit
def gather_all(X, rows, ptr, outputs, bias, W, out):
    """out[p] = w_k · f_i of every listed output k of some rows i."""
    d = X.shape[1]
    for o in range(len(rows)):
        start = ptr[o]
        m = ptr[o + 1] - start
        gather_scores(W, outputs[start:], m, X[rows[o]], d, bias, out[start:])


@jit
def carry(ptr, outputs, alpha, rows, new_ptr, new_outputs, out):
    """out = α of listed outputs of some rows: 0 for outputs that were not kept."""
    for o in range(len(rows)):
        i = rows[o]
        for p in range(new_ptr[o], new_ptr[o + 1]):
            out[p] = 0.0
            for q in range(ptr[i], ptr[i + 1]):
                if outputs[q] == new_outputs[p]:
                    out[p] = alpha[q]
                    break


@jit
def trim(ptr, outputs, alpha, new_ptr, new_outputs, new_alpha, fill):
    """Copy the entries with α ≠ 0 and the first one of each row; only count them unless ``fill``."""
    q = 0
    for i in range(len(ptr) - 1):
        for p in range(ptr[i], ptr[i + 1]):
            if p == ptr[i] or alpha[p] != 0.0:
                if fill:
                    new_outputs[q] = outputs[p]
                    new_alpha[q] = alpha[p]
                q += 1
        new_ptr[i + 1] = q


@jit
def place(here, ptr, there, outputs, alpha, new_ptr, new_outputs, new_alpha):
    """Copy the entries of rows ``here`` to rows ``there`` of other arrays, which have room for them."""
    for o in range(len(here)):
        p = new_ptr[there[o]]
        for q in range(ptr[here[o]], ptr[here[o] + 1]):
            new_outputs[p] = outputs[q]
            new_alpha[p] = alpha[q]
            p += 1
