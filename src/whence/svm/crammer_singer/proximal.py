"""Compiled loops of proximal coordinate descent, by a Gram matrix or by weights.

See ``kernels`` for α, g and ``times``. With a centre W⁰, P(W) + ½ρ‖W − W⁰‖² has the dual of λ/(1 + ρ) and
C/(1 + ρ) in which W⁰·ρ/(1 + ρ) is added to W. It is so much better conditioned that one sweep is enough
before W becomes the next centre. The dual is then nearly flat long before W(λ) is still, so what counts is
the mean of α over the sweeps, the e-th with a weight that grows as e⁴. Everything here is divided by 1 + ρ:
α, C and W.
"""

from __future__ import annotations

import numpy as np

from whence.svm.crammer_singer.kernels import descend, shift_to_simplex
from whence.svm.loops import axpy, jit, random_below

_MEMORY = 4.0  # the power of e
_WAKE = 8  # sweeps after which samples that dropped out are looked at again
_CHECK = 2  # sweeps from one look at the gap to the next
_STILL = 0.5  # a violation below this share of the slack waits for a later sweep


@jit
def values(S, y, alpha, times, C, scale):
    """The samples' parts of the duality gap and of P(W), of ``scale`` times α (n, K) and its scores S (K, n).

    They are Σ_i C·max_c g_c − α·g and Σ_i ½ λ_i·(W f_i) + C·loss_i.
    """
    gap = 0.0
    primal = 0.0
    for i in range(S.shape[1]):
        worst = 0.0
        own = 0.0
        square = 0.0
        for c in range(S.shape[0]):
            if c != y[i]:
                margin = scale * (S[y[i], i] - S[c, i])
                worst = max(worst, 1.0 - margin)
                own += scale * times[c] * alpha[i, c]
                square += scale * times[c] * alpha[i, c] * margin
        gap += C * worst - own + square
        primal += C * worst + 0.5 * square
    return gap, primal


@jit
def pack(alpha, y, ptr, outputs, out, fill):
    """α (n, K) as ``kernels`` keeps it: own class first, rivals with α > 0; only counts unless ``fill``."""
    p = 0
    for i in range(alpha.shape[0]):
        if fill:
            outputs[p], out[p] = y[i], alpha[i, y[i]]
        p += 1
        for c in range(alpha.shape[1]):
            if c != y[i] and alpha[i, c] > 0.0:
                if fill:
                    outputs[p], out[p] = c, alpha[i, c]
                p += 1
        ptr[i + 1] = p


@jit
def select(scores, y, alpha, slack, rows, ptr, classes):
    """List the samples and classes that may move; samples with fewer than two such classes are left out.

    A class may move when α_c > 0, or when its gradient is above the smallest one of those, less ``slack``.
    Returns how many samples are listed.
    """
    K = scores.shape[1]
    n = 0
    used = 0
    ptr[0] = 0
    for i in range(scores.shape[0]):
        lowest = np.inf
        for c in range(K):
            if alpha[i, c] > 0.0:
                lowest = min(lowest, scores[i, c] + (1.0 if c != y[i] else 0.0))
        start = used
        for c in range(K):
            if alpha[i, c] > 0.0 or scores[i, c] + (1.0 if c != y[i] else 0.0) > lowest - slack:
                classes[used] = c
                used += 1
        if used - start < 2:
            used = start
        else:
            rows[n] = i
            n += 1
            ptr[n] = used
    return n


@jit
def kink_distance(scores, y, alpha, out):
    """How far each sample is from changing: g of its class less the largest other; −inf where it is split."""
    K = scores.shape[1]
    for i in range(scores.shape[0]):
        count = 0
        at = 0.0
        best = -np.inf
        for c in range(K):
            g = scores[i, c] + (1.0 if c != y[i] else 0.0)
            if alpha[i, c] > 0.0:
                count += 1
                at = g
            else:
                best = max(best, g)
        out[i] = at - best if count == 1 else -np.inf


@jit
def losses(scores, y):
    """Σ loss of scores (n, K), and the smallest margin s_y − s_c."""
    loss = 0.0
    smallest = np.inf
    for i in range(scores.shape[0]):
        margin = np.inf
        for c in range(scores.shape[1]):
            if c != y[i]:
                margin = min(margin, scores[i, y[i]] - scores[i, c])
        loss += max(1.0 - margin, 0.0)
        smallest = min(smallest, margin)
    return loss, smallest


@jit
def axpy_pair(step0, step1, f, w0, w1):
    """w0 += step0 · f and w1 += step1 · f: most moves are of two classes, and f is read once."""
    s0 = f.dtype.type(step0)
    s1 = f.dtype.type(step1)
    for j in range(len(f)):
        x = f[j]
        w0[j] += s0 * x
        w1[j] += s1 * x


@jit
def sweep(G, y, S, alpha, times, C, slack, order, active, rng):
    """Visit the first ``active`` samples of ``order`` once, at random, as ``kernels.descend`` does.

    G (n, n) holds the products of the samples and S (K, n) their scores: a visit costs the same for any
    number of features. Samples that stay at a corner by more than the slack drop out; returns what is left.
    """
    K, n = S.shape
    v = np.empty(K)
    g = np.empty(K)
    steps = np.empty(K)
    moving = np.empty(K, np.int64)
    for p in range(active - 1, 0, -1):
        q = random_below(rng, p + 1)
        order[p], order[q] = order[q], order[p]
    p = 0
    while p < active:
        i = order[p]
        lowest = np.inf
        top = -np.inf
        second = -np.inf
        for c in range(K):
            g[c] = S[c, i] + (1.0 if c != y[i] else 0.0)
            if g[c] > top:
                second = top
                top = g[c]
            elif g[c] > second:
                second = g[c]
            if alpha[i, c] > 0.0:
                lowest = min(lowest, g[c])
        if top - lowest <= _STILL * slack:
            if top == lowest and top - second > slack:
                active -= 1
                order[p], order[active] = order[active], order[p]
            else:
                p += 1
            continue
        # A class with α_c = 0 stays there unless its g is above the smallest one of those with α_c > 0.
        m = 0
        for c in range(K):
            if alpha[i, c] > 0.0 or g[c] > lowest:
                moving[m] = c
                v[m] = alpha[i, c] + (g[c] - top) / max(np.float64(G[i, i]), 1e-300)
                m += 1
        theta = shift_to_simplex(v, times, moving, m, C)
        last = -1
        for k in range(m):
            c = moving[k]
            new = max(v[k] - theta, 0.0)
            steps[c] = alpha[i, c] - new
            if new != alpha[i, c]:
                alpha[i, c] = new
                if last < 0:
                    last = c
                else:
                    axpy_pair(steps[last], steps[c], G[i], S[last], S[c])
                    last = -1
        if last >= 0:
            axpy(steps[last], G[i], S[last], n)
        p += 1
    return active


@jit
def move_on(W, centre, mean, pull, share):
    """After a sweep, W becomes the centre, and without its pull W(λ) again; returns Σ |change| of the centre.

    W is (K, D), or scores (K, n) in its place.
    """
    pull = W.dtype.type(pull)
    share = W.dtype.type(share)
    change = W.dtype.type(0.0)
    for c in range(W.shape[0]):
        w, w0, w_mean = W[c], centre[c], mean[c]
        for j in range(len(w)):
            now = w[j]
            change += abs(now - w0[j])
            w[j] = now - pull * w0[j]
            w0[j] = now
            w_mean[j] += share * (w[j] - w_mean[j])
    return change


@jit
def average(alpha, rows, share, mean):
    """Take α of some rows into its mean with a share."""
    for o in range(len(rows)):
        i = rows[o]
        for c in range(alpha.shape[1]):
            mean[i, c] += share * (alpha[i, c] - mean[i, c])


@jit
def share_of(sweeps):
    """The share of the last of some sweeps in the mean."""
    return (_MEMORY + 1.0) / (_MEMORY + sweeps)


@jit
def ascend_by_gram(G, y, S, centre, alpha, times, C, rho, slack, outside, tol, sweeps, rng):
    """Sweep until the gap of the mean is at most ``tol``; α becomes the mean. Returns the number of sweeps.

    G (n, n), α (n, K), S and centre (K, n): the scores by W(λ) and by W⁰. ``outside`` is the part of
    P(W) of samples that stay as they are.
    """
    back = 1.0 + rho
    pull = rho / back
    mean, mean_S = alpha.copy(), S.copy()
    every = np.arange(len(alpha))
    order = every.copy()
    active = len(alpha)
    made = 0
    while True:
        if made % _CHECK == 0:
            gap, primal = values(mean_S, y, mean, times, back * C, back)
            if made >= sweeps or gap <= tol * (primal + outside):
                break
        if made % _WAKE == 0:
            active = len(alpha)
        made += 1
        S += S.dtype.type(pull) * centre
        active = sweep(G, y, S, alpha, times, C, slack, order, active, rng)
        share = share_of(made)
        slack = move_on(S, centre, mean_S, pull, share) / S.size
        average(alpha, every, share, mean)
    alpha[:] = mean
    return made


@jit
def ascend_by_weights(
    X,
    y,
    norms,
    rows,
    ptr,
    classes,
    W,
    centre,
    mean_W,
    alpha,
    mean,
    times,
    C,
    bias,
    rho,
    slack,
    done,
    sweeps,
    rng,
):
    """Sweep over listed samples by weights (K, D): W(λ), W⁰ and the mean; they, α and its mean are written.

    ``done`` counts the sweeps before these.
    """
    pull = rho / (1.0 + rho)
    kept = 1.0
    listed = np.empty(ptr[-1])
    for o in range(len(rows)):
        for p in range(ptr[o], ptr[o + 1]):
            listed[p] = alpha[rows[o], classes[p]]
    for made in range(done + 1, done + sweeps + 1):
        W += W.dtype.type(pull) * centre
        descend(X, y, norms, rows, ptr[:-1], ptr[1:], classes, listed, W, times, C, bias, 1, slack, rng)
        for o in range(len(rows)):
            for p in range(ptr[o], ptr[o + 1]):
                alpha[rows[o], classes[p]] = listed[p]
        share = share_of(made)
        kept *= 1.0 - share
        move_on(W, centre, mean_W, pull, share)
        average(alpha, rows, share, mean)
    # The others stood still, and their mean came nearer to them.
    others = np.empty(len(alpha) - len(rows), np.int32)
    o = 0
    for i in range(len(alpha)):
        if o < len(rows) and rows[o] == i:
            o += 1
        else:
            others[i - o] = i
    average(alpha, others, 1.0 - kept, mean)


@jit
def gather(G, rows, out):
    """out = G[rows][:, rows]."""
    for p in range(len(rows)):
        for q in range(len(rows)):
            out[p, q] = G[rows[p], rows[q]]
