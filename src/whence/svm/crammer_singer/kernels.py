"""Compiled loops of the Crammer–Singer problem.

``alpha`` is α = C·e_y − λ, on the simplex {α ≥ 0, Σ_c α_c = C}; g is the gradient of the dual in α,
g_c = w_c·f + [c ≠ y]. A sample is optimal where all its classes with α_c > 0 share the largest g_c. ``times``
tells how many classes each one stands for: sums over classes count it so often.
"""

from __future__ import annotations

import numpy as np

from whence.svm.loops import axpy, gather_scores, jit, random_below


@jit
def shift_to_simplex(v, times, m, C):
    """θ with Σ_c max(v_c − θ, 0) = C over the first m entries of v (Michelot's iteration)."""
    theta = v[0]
    for c in range(1, m):
        theta = max(theta, v[c])
    theta -= C
    for _ in range(m):
        total = 0.0
        count = 0.0
        for c in range(m):
            if v[c] > theta:
                total += times[c] * v[c]
                count += times[c]
        new = (total - C) / max(count, 1.0)
        if new <= theta:
            break
        theta = new
    return theta


@jit
def own_of_alpha(a, label, times):
    """λ_y = Σ_{c ≠ y} α_c, not C − α_y: that would lose the digits of a small λ under a large C."""
    own = 0.0
    for c in range(len(a)):
        if c != label:
            own += times[c] * a[c]
    return own


@jit
def total_own(alpha, y, times):
    """Σ_i λ_{i,y_i} and the largest λ_{i,y_i}."""
    total = 0.0
    most = 0.0
    for i in range(alpha.shape[0]):
        own = own_of_alpha(alpha[i], y[i], times)
        total += own
        most = max(most, own)
    return total, most


@jit
def weight_of_alpha(X, y, alpha, times, bias, out):
    """out += Σ_i λ_i f_iᵀ with λ_i = C·e_{y_i} − α_i."""
    d = X.shape[1]
    for i in range(X.shape[0]):
        own = own_of_alpha(alpha[i], y[i], times)
        for c in range(alpha.shape[1]):
            lam = own if c == y[i] else -alpha[i, c]
            if lam != 0.0:
                axpy(lam, X[i], out[c], d)
                if bias != 0.0:
                    out[c, d] += bias * lam


@jit
def quantise(alpha, y, times, C, grid, indptr, indices, data, fill):
    """λ = C·e_y − α on a grid, in compressed rows; only counts unless ``fill``.

    Entries are multiples of ``grid`` small enough to add without rounding, so that rows sum to exactly zero;
    a sample wholly on one other class is at its bound, exactly (C, −C).
    """
    K = alpha.shape[1]
    steps = np.empty(K)
    most = np.floor(C / grid)
    p = 0
    for i in range(alpha.shape[0]):
        count = 0
        total = 0.0
        largest = -1
        for c in range(K):
            k = np.floor(alpha[i, c] / grid) if c != y[i] else 0.0
            steps[c] = k
            if k > 0.0:
                count += 1
                total += times[c] * k
                if largest < 0 or k > steps[largest]:
                    largest = c
        # Rounding in α can leave the sum a few steps above C.
        if total > most:
            less = np.ceil((total - most) / times[largest])
            steps[largest] -= less
            total -= times[largest] * less
        bound = count == 1 and times[largest] == 1.0 and total >= most - 1.0
        if count > 0:
            if fill:
                for c in range(K):
                    if c == y[i]:
                        indices[p] = c
                        data[p] = C if bound else total * grid
                        p += 1
                    elif steps[c] > 0.0:
                        indices[p] = c
                        data[p] = -C if bound else -steps[c] * grid
                        p += 1
            else:
                p += count + 1
        indptr[i + 1] = p
    return p


@jit
def digest(scores, y, stored):
    """Losses of a block of score rows, which replace the stored ones.

    Returns Σ loss, Σ d loss/d scale of W, Σ |change| against the stored scores, and the smallest margin
    s_y − s_c.
    """
    loss = 0.0
    slope = 0.0
    change = 0.0
    smallest = np.inf
    for i in range(scores.shape[0]):
        own = scores[i, y[i]]
        worst = 0.0
        margin = 0.0
        for c in range(scores.shape[1]):
            s = scores[i, c]
            if c != y[i]:
                smallest = min(smallest, own - s)
                if 1.0 + s - own > worst:
                    worst = 1.0 + s - own
                    margin = s - own
            change += abs(s - stored[i, c])
            stored[i, c] = s
        loss += worst
        slope += margin
    return loss, slope, change, smallest


@jit
def scaled_loss(stored, y, a):
    """Σ loss and Σ d loss/da of the stored scores times a."""
    loss = 0.0
    slope = 0.0
    for i in range(stored.shape[0]):
        own = stored[i, y[i]]
        worst = 0.0
        margin = 0.0
        for c in range(stored.shape[1]):
            m = stored[i, c] - own
            if c != y[i] and 1.0 + a * m > worst:
                worst = 1.0 + a * m
                margin = m
        loss += worst
        slope += margin
    return loss, slope


@jit
def select(stored, y, alpha, slack, rows, ptr, classes):
    """List the samples and classes that may move; samples with fewer than two such classes are left out.

    A class may move when α_c > 0, or when its gradient is above the smallest one of those, less ``slack``.
    Returns how many samples and classes are listed, how many samples are split between classes with
    α_c > 0, and Σ (classes − 1) over those.
    """
    K = stored.shape[1]
    n = 0
    used = 0
    free = 0
    pairs = 0
    ptr[0] = 0
    for i in range(stored.shape[0]):
        lowest = np.inf
        count = 0
        for c in range(K):
            if alpha[i, c] > 0.0:
                count += 1
                lowest = min(lowest, stored[i, c] + (1.0 if c != y[i] else 0.0))
        if count > 1:
            free += 1
            pairs += count - 1
        start = used
        for c in range(K):
            if alpha[i, c] > 0.0 or stored[i, c] + (1.0 if c != y[i] else 0.0) > lowest - slack:
                classes[used] = c
                used += 1
        if used - start < 2:
            used = start
        else:
            rows[n] = i
            n += 1
            ptr[n] = used
    return n, used, free, pairs


@jit
def kink_distance(stored, y, alpha, out):
    """How far each sample is from changing: g of its class less the largest other; −inf where it is split."""
    K = stored.shape[1]
    for i in range(stored.shape[0]):
        count = 0
        at = 0.0
        best = -np.inf
        for c in range(K):
            g = stored[i, c] + (1.0 if c != y[i] else 0.0)
            if alpha[i, c] > 0.0:
                count += 1
                at = g
            else:
                best = max(best, g)
        out[i] = at - best if count == 1 else -np.inf


@jit
def descend(X, y, norms, rows, ptr, classes, n, W, alpha, times, C, bias, epochs, slack, rng):
    """Dual coordinate descent over the listed samples and classes, which keeps W = Σ λ_i f_iᵀ.

    Samples that stay at a corner by more than ``slack`` drop out; it ends when an epoch gains little.
    Returns the number of products w·f taken.
    """
    d = X.shape[1]
    K = W.shape[0]
    v = np.empty(K)
    g = np.empty(K)
    t = np.empty(K)
    order = np.arange(n).astype(np.int32)
    active = n
    visits = 0
    first_gain = 0.0
    for _ in range(epochs):
        gained = 0.0
        for p in range(active - 1, 0, -1):
            q = random_below(rng, p + 1)
            order[p], order[q] = order[q], order[p]
        p = 0
        while p < active:
            o = order[p]
            i = rows[o]
            listed = classes[ptr[o] : ptr[o + 1]]
            m = len(listed)
            f = X[i]
            A = max(norms[i], 1e-300)
            gather_scores(W, listed, m, f, d, bias, g)
            visits += m
            top = -np.inf
            second = -np.inf
            for c in range(m):
                if listed[c] != y[i]:
                    g[c] += 1.0
                if g[c] > top:
                    second = top
                    top = g[c]
                elif g[c] > second:
                    second = g[c]
            # Relative to the largest g, so that v keeps its digits where C·‖f‖² is tiny.
            for c in range(m):
                v[c] = alpha[i, listed[c]] + (g[c] - top) / A
                t[c] = times[listed[c]]
            theta = shift_to_simplex(v, t, m, C)
            moved = False
            for c in range(m):
                k = listed[c]
                new = max(v[c] - theta, 0.0)
                step = new - alpha[i, k]
                if step != 0.0:
                    moved = True
                    gained += t[c] * step * (g[c] - 0.5 * A * step)
                    alpha[i, k] = new
                    axpy(-step, f, W[k], d)
                    if bias != 0.0:
                        W[k, d] -= bias * step
            if not moved and top - second > slack:
                active -= 1
                order[p], order[active] = order[active], order[p]
            else:
                p += 1
        first_gain = max(first_gain, gained)
        if gained < 0.05 * first_gain:
            break
    return visits


@jit
def project_rows(base, sigma, g, t, dg, times, C, out):
    """out = projection of base + σ·(g + t·dg) onto {a ≥ 0, Σ a = C}, row by row."""
    K = base.shape[1]
    v = np.empty(K)
    for i in range(base.shape[0]):
        for c in range(K):
            v[c] = base[i, c] + sigma * (g[i, c] + t * dg[i, c])
        theta = shift_to_simplex(v, times, K, C)
        for c in range(K):
            a = v[c] - theta
            out[i, c] = a if a > 0.0 else 0.0


@jit
def hessian_product(X, rows, ptr, classes, roots, bias, V, out):
    """out += Σ_i P_i V f_i f_iᵀ, P_i the projection of sample i's listed classes off the vector ``roots``."""
    d = X.shape[1]
    z = np.empty(V.shape[0])
    for o in range(len(rows)):
        f = X[rows[o]]
        listed = classes[ptr[o] : ptr[o + 1]]
        m = len(listed)
        gather_scores(V, listed, m, f, d, bias, z)
        mean = 0.0
        total = 0.0
        for c in range(m):
            root = roots[listed[c]]
            mean += root * z[c]
            total += root * root
        mean /= total
        for c in range(m):
            part = z[c] - roots[listed[c]] * mean
            axpy(part, f, out[listed[c]], d)
            if bias != 0.0:
                out[listed[c], d] += bias * part
