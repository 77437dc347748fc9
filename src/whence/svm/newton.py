"""Second order: semismooth Newton on the augmented Lagrangian of the dual, over some of the samples.

With the other samples' λ held fixed, a proximal step from the centre a⁰ with step size σ maximises the dual
less ‖a − a⁰‖²/2σ. In W this is a smooth convex problem with gradient W − W(a), where a_i is the projection of
a⁰_i + σ g_i onto the simplex, and with the generalised Hessian I + σ Σ_i P_i ⊗ f_i f_iᵀ; only samples split
between two or more classes have a P_i ≠ 0. Each proximal step is solved by a few Newton steps, then σ grows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from whence.svm import kernels
from whence.svm.problem import Doubles, Ints, Problem

_MAX_PROXIMAL = 12
_MAX_STEPS = 40  # Newton steps within one proximal step
_ENOUGH_STEPS = 25  # after which the other samples are looked at again
_MAX_CG = 150


@dataclass
class Restricted:
    """The dual over some rows, with the rest of W fixed; products run over blocks of rows in parallel."""

    problem: Problem
    rows: Ints
    parallel: Callable[..., list[Doubles]]

    def __post_init__(self) -> None:
        width = max(64, (1 << 20) // (8 * self.problem.shape[1]))
        self.parts = [self.rows[s : s + width] for s in range(0, len(self.rows), width)]
        self.cuts = np.cumsum([len(part) for part in self.parts])[:-1]

    def block(self, rows: Ints) -> Doubles:
        """The features of some rows in float64, bias column included."""
        d = self.problem.features.shape[1]
        block = np.ones((len(rows), self.problem.shape[1]))
        block[:, :d] = self.problem.features[rows]
        return block

    def scores(self, W: Doubles) -> Doubles:
        """W f_i of the rows, (n, K)."""
        return np.concatenate(self.parallel(lambda part: self.block(part) @ W.T, self.parts))

    def combine(self, coefficients: Doubles) -> Doubles:
        """Σ_i coefficients_i f_iᵀ, (K, D)."""
        pieces = zip(np.split(coefficients, self.cuts), self.parts, strict=True)
        total = np.zeros(self.problem.shape)
        for piece in self.parallel(lambda pair: pair[0].T @ self.block(pair[1]), list(pieces)):
            total += piece
        return total


def newton(
    problem: Problem,
    rows: Ints,
    alpha: Doubles,
    dual_W: Doubles,
    W: Doubles,
    target: float,
    sharpness: float,
    parallel: Callable[..., list[Doubles]],
    out_of_time: Callable[[], bool],
) -> tuple[Doubles, Doubles]:
    """Maximise the dual over ``rows`` until its own gap is at most ``target``.

    ``alpha`` (n, K) are the rows' coefficients, ``dual_W`` = Σ λ_i f_iᵀ over all samples, ``W`` the primal
    point to start from. Returns the new coefficients and the primal point reached.
    """
    part = Restricted(problem, rows, parallel)
    C, n, each = problem.C, len(rows), np.arange(len(rows))
    y = problem.labels[rows]
    corner = np.zeros_like(alpha)
    corner[each, y] = C
    fixed = dual_W - part.combine(corner - alpha)
    lam_y = C - alpha[each, y]
    sigma = (float(lam_y[lam_y > 0].mean()) if (lam_y > 0).any() else C) / sharpness
    centre, a, counts = alpha, np.empty_like(alpha), np.empty(n, np.int64)
    g = part.scores(W) + 1.0
    g[each, y] -= 1.0
    steps = 0
    for _ in range(_MAX_PROXIMAL):
        for _ in range(_MAX_STEPS):
            kernels.project_rows(centre, sigma, g, 0.0, g, C, a, counts)
            residual = W - fixed - part.combine(corner - a)
            slackness = C * float(g.max(axis=1).sum()) - float(np.vdot(a, g))
            distance = 0.5 * float(np.vdot(residual, residual))
            if distance <= 0.1 * slackness or slackness + distance <= target or out_of_time():
                break
            step = -_newton_step(problem, part, a, counts, sigma, residual, 0.1)
            dg = part.scores(step)
            t = _line_search(centre, sigma, g, dg, C, a, counts, corner, W - fixed, residual, step)
            W = W + t * step
            g += t * dg
            steps += 1
        if slackness + distance <= target or steps > _ENOUGH_STEPS or out_of_time():
            break
        centre = a.copy()
        sigma *= 3.0
    return a, W


def _line_search(centre, sigma, g, dg, C, a, counts, corner, offset, residual, step) -> float:  # type: ignore[no-untyped-def]
    """A step length where the slope of the smooth objective along ``step`` has fallen to a tenth."""
    linear, square = float(np.vdot(offset, step)), float(np.vdot(step, step))
    first = float(np.vdot(residual, step))

    def slope(t: float) -> float:
        kernels.project_rows(centre, sigma, g, t, dg, C, a, counts)
        return linear + t * square - float(np.vdot(corner - a, dg))

    low, high, at_low, at_high = 0.0, 1.0, first, slope(1.0)
    if at_high <= 0.1 * abs(first):
        return 1.0
    t = 1.0
    for _ in range(12):
        t = low - at_low * (high - low) / (at_high - at_low)
        t = min(max(t, low + 0.05 * (high - low)), high - 0.05 * (high - low))
        at = slope(t)
        if abs(at) <= 0.1 * abs(first):
            break
        if at > 0:
            high, at_high = t, at
        else:
            low, at_low = t, at
    return t


def step_cost(n_free: float, n_pairs: float, shape: tuple[int, int]) -> tuple[float, str]:
    """Floating point operations of one Newton step by its cheapest method, and that method's name.

    ``n_pairs`` is the rank Σ (classes in use − 1) of the Hessian's data part.
    """
    K, D = shape
    costs = {
        "gram": n_free**2 * D + n_pairs**3 / 3,
        "dense": 4 * n_pairs * D**2 + (K * D) ** 3 / 3,
        "cg": 60 * 16 * n_pairs * D,  # sixty products at a quarter of a matrix product's speed
    }
    method = min(costs, key=costs.__getitem__)
    return costs[method], method


def _newton_step(problem, part, a, counts, sigma, residual, accuracy) -> Doubles:  # type: ignore[no-untyped-def]
    """(I + σ Σ_i P_i ⊗ f_i f_iᵀ)⁻¹ residual."""
    free = np.flatnonzero(counts > 1)
    if len(free) == 0:
        return residual
    n_pairs = int((counts[free] - 1).sum())
    _, method = step_cost(len(free), n_pairs, problem.shape)
    used = a[free] > 0
    if method == "gram":
        return _by_gram(part.block(part.rows[free]), used, sigma, residual, n_pairs)
    if method == "dense":
        return _by_dense(part.block(part.rows[free]), used, sigma, residual)
    return _by_cg(problem, part, part.rows[free], used, sigma, residual, accuracy)


def _by_gram(F, used, sigma, residual, n_pairs) -> Doubles:  # type: ignore[no-untyped-def]
    """Woodbury: a system of the size of the data part's rank."""
    basis, at = zero_sum_bases(used, n_pairs)
    gram = (F @ F.T)[np.ix_(at, at)]
    gram *= basis @ basis.T
    gram[np.diag_indices(n_pairs)] += 1.0 / sigma
    right = np.einsum("rk,rk->r", (F @ residual.T)[at], basis)
    factor = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    basis *= cho_solve(factor, right, check_finite=False)[:, None]
    combined = np.zeros(used.shape)
    np.add.at(combined, at, basis)
    return residual - combined.T @ F


def _by_dense(F, used, sigma, residual) -> Doubles:  # type: ignore[no-untyped-def]
    """The whole Hessian, (K·D) × (K·D)."""
    K, D = residual.shape
    H = np.zeros((K, D, K, D))
    share = sigma / used.sum(axis=1)
    for c in range(K):
        for e in range(c, K):
            both = np.flatnonzero(used[:, c] & used[:, e])
            weight = sigma - share[both] if c == e else -share[both]
            block = (F[both] * weight[:, None]).T @ F[both]
            H[c, :, e, :] = block
            H[e, :, c, :] = block
    H = H.reshape(K * D, K * D)
    H[np.diag_indices(K * D)] += 1.0
    factor = cho_factor(H, lower=True, overwrite_a=True, check_finite=False)
    return cho_solve(factor, residual.ravel(), check_finite=False).reshape(K, D)


def _by_cg(problem, part, rows, used, sigma, residual, accuracy) -> Doubles:  # type: ignore[no-untyped-def]
    """Conjugate gradients, whose products touch only the classes in use."""
    sizes = used.sum(axis=1)
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    classes = np.nonzero(used)[1].astype(np.int16)
    cuts = np.linspace(0, len(rows), 9).astype(int)
    spans = [(rows[s:e], ptr[s : e + 1]) for s, e in zip(cuts[:-1], cuts[1:], strict=True) if e > s]

    def product(V: Doubles) -> Doubles:
        def one(span: tuple[Ints, Ints]) -> Doubles:
            out = np.zeros_like(V)
            kernels.hessian_product(problem.features, span[0], span[1], classes, problem.bias, V, out)
            return out

        total = V.copy()
        for piece in part.parallel(one, spans):
            total += sigma * piece
        return total

    x = np.zeros_like(residual)
    r = residual.copy()
    direction = r.copy()
    rr = start = float(np.vdot(r, r))
    for _ in range(_MAX_CG):
        image = product(direction)
        length = rr / float(np.vdot(direction, image))
        x += length * direction
        r -= length * image
        new = float(np.vdot(r, r))
        if new <= accuracy**2 * start:
            break
        direction = r + (new / rr) * direction
        rr = new
    return x


def zero_sum_bases(used: np.ndarray, n_pairs: int) -> tuple[Doubles, Ints]:
    """Orthonormal (Helmert) bases of the zero-sum vectors on each row's classes in use.

    Returns the basis vectors (n_pairs, K) and the row of each.
    """
    rank = used.sum(axis=1) - 1
    at = np.repeat(np.arange(len(used)), rank)
    order = np.arange(n_pairs) - np.repeat(np.cumsum(rank) - rank, rank) + 1  # 1 … rank within a row
    position = np.cumsum(used, axis=1)[at]  # 1 … classes in use
    mine = used[at]
    basis = np.where(mine & (position <= order[:, None]), 1.0, 0.0)
    basis[mine & (position == order[:, None] + 1)] = -order
    basis /= np.sqrt(order * (order + 1.0))[:, None]
    return basis, at
