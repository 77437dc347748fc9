"""Compiled loops of problems whose λ_ic have box constraints.

α = −λ is kept in compressed rows (``ptr``, ``outputs``, ``alpha``). t (N, K) are the targets, ``eps`` is the
half-width of the tube in which an error costs nothing. Where ``one_sided``, λ_ic has the sign of t_ic: only
being short of the target costs. The dual's slope in λ_ic is t_ic − w_c·f_i, less eps to the one side of zero,
and more by eps on the other.
"""

from __future__ import annotations

import numpy as np

from whence.svm.loops import axpy, gather_scores, jit, random_below


@jit
def ends(t, one_sided, C):
    """Return the smallest and the largest λ."""
    low = -C if not one_sided or t < 0.0 else 0.0
    high = C if not one_sided or t > 0.0 else 0.0
    return low, high


@jit
def best(u, shrink, square, low, high):
    """Return the λ in [low, high] that maximises u·λ − shrink·|λ| − ½·square·λ²."""
    if u > shrink:
        u -= shrink
    elif u < -shrink:
        u += shrink
    else:
        u = 0.0
    return min(max(u / square, low), high)


@jit
def apart(slope, lam, eps, low, high):
    """Return the distance of λ from moving, in the slope: negative if it moves; −inf between all ends."""
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
    """Return the loss of a score and its slope in the score."""
    short = t - s
    if short > eps and (t > 0.0 or not one_sided):
        return short - eps, -1.0
    if -short > eps and (t < 0.0 or not one_sided):
        return -short - eps, 1.0
    return 0.0, 0.0


@jit
def scaled_loss(stored, t, eps, one_sided, a):
    """Return Σ loss and Σ d loss/da of the stored scores times a."""
    loss = 0.0
    slope = 0.0
    for i in range(stored.shape[0]):
        for c in range(stored.shape[1]):
            s = stored[i, c]
            cost, rate = loss_of(a * s, t[i, c], eps, one_sided)
            loss += cost
            slope += rate * s
    return loss, slope


@jit
def linear(ptr, outputs, alpha, t, eps):
    """Return Σ_ic t_ic λ_ic − eps·|λ_ic|, and the largest |λ_ic|."""
    total = 0.0
    most = 0.0
    for i in range(len(ptr) - 1):
        for p in range(ptr[i], ptr[i + 1]):
            size = abs(alpha[p])
            total -= t[i, outputs[p]] * alpha[p] + eps * size
            most = max(most, size)
    return total, most


@jit
def look(
    scores, rows, t, ptr, outputs, alpha, eps, one_sided, C, slack, stored, near, counts, moving, listed
):
    """Compute losses of a block of scores, which are stored, and the outputs to keep: fixed ones first.

    Returns Σ loss, Σ d loss/d scale of W, the least s/t where ``one_sided``, else 0, how many samples have a
    λ between all ends, how many λ are, and how many outputs are listed.
    """
    K = scores.shape[1]
    a = np.zeros(K)
    away = np.empty(K)
    loss = 0.0
    slope = 0.0
    smallest = np.inf if one_sided else 0.0
    free = 0
    pairs = 0
    used = 0
    for o in range(len(rows)):
        i = rows[o]
        for p in range(ptr[i], ptr[i + 1]):
            a[outputs[p]] = alpha[p]
        start = used
        before = pairs
        least = np.inf
        for c in range(K):
            s = scores[o, c]
            cost, rate = loss_of(s, t[i, c], eps, one_sided)
            loss += cost
            slope += rate * s
            if one_sided:
                smallest = min(smallest, s / t[i, c])
            stored[i, c] = s
            low, high = ends(t[i, c], one_sided, C)
            away[c] = apart(t[i, c] - s, -a[c], eps, low, high)
            least = min(least, away[c])
            if away[c] == -np.inf:
                pairs += 1
            if a[c] != 0.0 and away[c] >= slack:
                listed[used] = c
                used += 1
        stay = used
        for c in range(K):
            if away[c] < slack:
                listed[used] = c
                used += 1
        near[i] = least
        counts[o] = used - start
        moving[o] = used - stay
        if pairs > before:
            free += 1
        for p in range(ptr[i], ptr[i + 1]):
            a[outputs[p]] = 0.0
    return loss, slope, smallest, free, pairs, used


@jit
def descend(
    X, t, norms, rows, starts, stops, outputs, alpha, W, eps, one_sided, C, bias, epochs, slack, rng
):  # fmt: skip
    """Dual coordinate descent over movable samples and outputs, which maintains W = Σ λ_i f_iᵀ.

    Samples that stay by more than ``slack`` drop out; it ends when an epoch gains little. Returns the number
    of products w·f taken.
    """
    d = X.shape[1]
    scores = np.empty(W.shape[0])
    order = np.arange(len(rows)).astype(np.int32)
    active = len(rows)
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
            listed = outputs[starts[o] : stops[o]]
            a = alpha[starts[o] : stops[o]]
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
                lam = -a[c]
                new = best(A * lam + slope, eps, A, low, high)
                step = new - lam
                if step != 0.0:
                    moved = True
                    gained += step * (slope - 0.5 * A * step) - eps * (abs(new) - abs(lam))
                    a[c] = -new
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
def project(centre, sigma, g, step, dg, t, rows, ptr, outputs, eps, one_sided, C, out):
    """Write the α that maximises g·α − eps·|α| − (α − centre)²/2σ for listed outputs; g is g + step·dg."""
    for o in range(len(rows)):
        for p in range(ptr[o], ptr[o + 1]):
            low, high = ends(t[rows[o], outputs[p]], one_sided, C)
            u = centre[p] + sigma * (g[p] + step * dg[p])
            out[p] = -best(-u, sigma * eps, 1.0, low, high)


@jit
def slackness(alpha, g, t, rows, ptr, outputs, eps, one_sided, C):
    """Return Σ of how far g·α − eps·|α| is below its maximum, for listed outputs."""
    total = 0.0
    for o in range(len(rows)):
        for p in range(ptr[o], ptr[o + 1]):
            want = t[rows[o], outputs[p]]
            loss, _ = loss_of(g[p] + want, want, eps, one_sided)
            total += C * loss - g[p] * alpha[p] + eps * abs(alpha[p])
    return total
