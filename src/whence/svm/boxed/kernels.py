"""Compiled loops of problems whose λ_ic each lie in an interval of their own.

``alpha`` is α = −λ, t the targets, ``eps`` the half-width of the tube in which an error costs nothing. Where
``one_sided``, λ_ic has the sign of t_ic: only being short of the target costs. The dual's slope in λ_ic is
t_ic − w_c·f_i, less eps to the one side of zero, and more by eps on the other.
"""

from __future__ import annotations

import numpy as np

from whence.svm.loops import axpy, gather_scores, jit, random_below


@jit
def ends(t, one_sided, C):
    """The least and the largest λ."""
    low = -C if not one_sided or t < 0.0 else 0.0
    high = C if not one_sided or t > 0.0 else 0.0
    return low, high


@jit
def best(u, shrink, square, low, high):
    """The λ in [low, high] that is best for u·λ − shrink·|λ| − ½·square·λ²."""
    if u > shrink:
        u -= shrink
    elif u < -shrink:
        u += shrink
    else:
        u = 0.0
    return min(max(u / square, low), high)


@jit
def apart(slope, lam, eps, low, high):
    """How far λ is from moving, in the slope: below 0 it moves; −inf where it is between all ends."""
    if lam != 0.0 and low < lam < high:
        return -np.inf
    if lam > 0.0:
        return slope - eps
    if lam < 0.0:
        return -slope - eps
    up = eps - slope if high > 0.0 else np.inf
    down = eps + slope if low < 0.0 else np.inf
    return min(up, down)


@jit
def loss_of(s, t, eps, one_sided):
    """The loss of a score and its slope in the score."""
    short = t - s
    if short > eps and (t > 0.0 or not one_sided):
        return short - eps, -1.0
    if -short > eps and (t < 0.0 or not one_sided):
        return -short - eps, 1.0
    return 0.0, 0.0


@jit
def digest(scores, t, eps, one_sided, stored):
    """Losses of a block of score rows, which replace the stored ones.

    Returns Σ loss, Σ d loss/d scale of W, Σ |change| against the stored scores, and the least s/t where
    ``one_sided``, else 0.
    """
    loss = 0.0
    slope = 0.0
    change = 0.0
    smallest = np.inf if one_sided else 0.0
    for i in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            s = scores[i, c]
            found, rate = loss_of(s, t[i, c], eps, one_sided)
            loss += found
            slope += rate * s
            if one_sided:
                smallest = min(smallest, s / t[i, c])
            change += abs(s - stored[i, c])
            stored[i, c] = s
    return loss, slope, change, smallest


@jit
def scaled_loss(stored, t, eps, one_sided, a):
    """Σ loss and Σ d loss/da of the stored scores times a."""
    loss = 0.0
    slope = 0.0
    for i in range(stored.shape[0]):
        for c in range(stored.shape[1]):
            s = stored[i, c]
            found, rate = loss_of(a * s, t[i, c], eps, one_sided)
            loss += found
            slope += rate * s
    return loss, slope


@jit
def clip(alpha, t, one_sided, C):
    """Put every α into its interval."""
    for i in range(alpha.shape[0]):
        for c in range(alpha.shape[1]):
            low, high = ends(t[i, c], one_sided, C)
            alpha[i, c] = -min(max(-alpha[i, c], low), high)


@jit
def linear(alpha, t, eps):
    """Σ_ic t_ic λ_ic − eps·|λ_ic|, and the largest |λ_ic|."""
    total = 0.0
    most = 0.0
    for i in range(alpha.shape[0]):
        for c in range(alpha.shape[1]):
            size = abs(alpha[i, c])
            total -= t[i, c] * alpha[i, c] + eps * size
            most = max(most, size)
    return total, most


@jit
def weight_of_alpha(X, alpha, bias, out):
    """out += Σ_i λ_i f_iᵀ."""
    d = X.shape[1]
    for i in range(X.shape[0]):
        for c in range(alpha.shape[1]):
            if alpha[i, c] != 0.0:
                axpy(-alpha[i, c], X[i], out[c], d)
                if bias != 0.0:
                    out[c, d] -= bias * alpha[i, c]


@jit
def select(stored, t, alpha, eps, one_sided, C, slack, rows, ptr, outputs):
    """List the samples and outputs that may move.

    Returns how many of both are listed, how many samples have a λ between all ends, and how many λ are.
    """
    n = 0
    used = 0
    free = 0
    pairs = 0
    ptr[0] = 0
    for i in range(stored.shape[0]):
        start = used
        before = pairs
        for c in range(stored.shape[1]):
            low, high = ends(t[i, c], one_sided, C)
            away = apart(t[i, c] - stored[i, c], -alpha[i, c], eps, low, high)
            if away == -np.inf:
                pairs += 1
            if away < slack:
                outputs[used] = c
                used += 1
        if pairs > before:
            free += 1
        if used > start:
            rows[n] = i
            n += 1
            ptr[n] = used
    return n, used, free, pairs


@jit
def distances(stored, t, alpha, eps, one_sided, C, out):
    """How far each sample is from changing, by the output that is nearest to it."""
    for i in range(stored.shape[0]):
        least = np.inf
        for c in range(stored.shape[1]):
            low, high = ends(t[i, c], one_sided, C)
            least = min(least, apart(t[i, c] - stored[i, c], -alpha[i, c], eps, low, high))
        out[i] = least


@jit
def descend(
    X, t, norms, rows, ptr, outputs, n, W, alpha, eps, one_sided, C, bias, epochs, slack, rng
):  # fmt: skip
    """Dual coordinate descent over the listed samples and outputs, which keeps W = Σ λ_i f_iᵀ.

    Samples that stay by more than ``slack`` drop out; it ends when an epoch gains little. Returns the number
    of products w·f taken.
    """
    d = X.shape[1]
    scores = np.empty(W.shape[0])
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
            listed = outputs[ptr[o] : ptr[o + 1]]
            m = len(listed)
            f = X[i]
            A = max(norms[i], 1e-300)
            gather_scores(W, listed, m, f, d, bias, scores)
            visits += m
            away = np.inf
            moved = False
            for c in range(m):
                k = listed[c]
                low, high = ends(t[i, k], one_sided, C)
                slope = t[i, k] - scores[c]
                lam = -alpha[i, k]
                new = best(A * lam + slope, eps, A, low, high)
                step = new - lam
                if step != 0.0:
                    moved = True
                    gained += step * (slope - 0.5 * A * step) - eps * (abs(new) - abs(lam))
                    alpha[i, k] = -new
                    axpy(step, f, W[k], d)
                    if bias != 0.0:
                        W[k, d] += bias * step
                else:
                    away = min(away, apart(slope, lam, eps, low, high))
            if not moved and away > slack:
                active -= 1
                order[p], order[active] = order[active], order[p]
            else:
                p += 1
        first_gain = max(first_gain, gained)
        if gained < 0.05 * first_gain:
            break
    return visits


@jit
def project(centre, sigma, g, step, dg, t, at, eps, one_sided, C, out):
    """Write the α best for g·α − eps·|α| − (α − centre)²/2σ, g being g + step·dg; t of row i is t[at[i]]."""
    for i in range(centre.shape[0]):
        for c in range(centre.shape[1]):
            low, high = ends(t[at[i], c], one_sided, C)
            u = centre[i, c] + sigma * (g[i, c] + step * dg[i, c])
            out[i, c] = -best(-u, sigma * eps, 1.0, low, high)


@jit
def slackness(alpha, g, t, at, eps, one_sided, C):
    """Σ of how far g·α − eps·|α| is below its largest."""
    total = 0.0
    for i in range(alpha.shape[0]):
        for c in range(alpha.shape[1]):
            want = t[at[i], c]
            loss, _ = loss_of(g[i, c] + want, want, eps, one_sided)
            total += C * loss - g[i, c] * alpha[i, c] + eps * abs(alpha[i, c])
    return total
