"""Softmax regression with an ℓ2 penalty on given features, solved by Newton's method, with a certificate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky
from scipy.special import entr, log_softmax

from whence.core.arrays import Doubles, Floats, Ints
from whence.core.conjugate import conjugate_gradients

_JITTER = 1e-12  # share of the mean squared length, so that dependent samples have a Cholesky factor
_TIGHTER = 0.1  # factor by which the tolerance of the residual is lowered until the gap is reached

_STEPS = 100  # maximum Newton steps; about ten are typical
_PRODUCTS = 500  # maximum Hessian products per Newton step
_HALVINGS = 40


@dataclass(frozen=True)
class SoftmaxFit:
    """A minimum W of (1/N) Σ_i ℓ(W f_i, y_i) + l2‖W‖², and its coefficients."""

    weight: Doubles  # (K, d)
    alpha: Doubles  # (N, K), −(1/(2 l2 N)) ∂ℓ_i/∂logit, of which W = Σ_i α_i f_iᵀ at the minimum
    residual: float  # ‖W − Σ_i α_i f_iᵀ‖ / ‖W‖


def fit_softmax(
    features: Floats,
    labels: Ints | Doubles,
    n_classes: int,
    l2: float,
    tol: float,
    callback: Callable[[float, float], object] = lambda seconds, residual: None,
    *,
    start: Doubles | None = None,
    max_seconds: float | None = None,
) -> SoftmaxFit:
    """Minimise (1/N) Σ_i ℓ(W f_i, y_i) + l2‖W‖² over W (K, d), ℓ the cross-entropy.

    ``labels`` are classes (N,), or a distribution over them per sample, (N, K).
    Newton's method with conjugate gradients, preconditioned by the curvature that the classes have on
    average, Fᵀ diag(q) F / N + 2 l2 I with q_i the mean over classes of p(1 − p). It stops at a residual of
    ``tol``, where rounding lets it come no nearer, or after ``max_seconds``; ``callback`` is called with the
    seconds so far and the residual. ``start`` is a W to begin at.
    """
    started = time.perf_counter()
    X = np.ascontiguousarray(features, dtype=np.float64)
    Y: Doubles = labels.astype(np.float64) if labels.ndim == 2 else np.eye(n_classes)[labels.astype(np.int64)]
    problem = _Problem(X, Y, l2)
    W = np.zeros((n_classes, X.shape[1])) if start is None else start
    value, gradient, P = problem.at(W)
    best = np.inf
    for _ in range(_STEPS):
        residual = problem.residual(W, gradient)
        callback(time.perf_counter() - started, residual)
        late = max_seconds is not None and time.perf_counter() - started > max_seconds
        if residual <= tol or (residual < 1e-6 and residual >= best) or late:
            break
        best = min(best, residual)
        step = problem.newton_step(gradient, P)
        slope, length = float(np.vdot(gradient, step)), 1.0
        for _ in range(_HALVINGS):
            trial = problem.at(W + length * step)
            # Near the minimum the decrease is below the precision of the value.
            if trial[0] <= value + 1e-4 * length * slope + 4e-16 * abs(value):
                break
            length /= 2
        W = W + length * step
        value, gradient, P = trial
    return SoftmaxFit(W, (problem.Y - P) / (2 * l2 * len(X)), problem.residual(W, gradient))


class SoftmaxSolution(NamedTuple):
    """An approximate minimum of ½‖W‖² + C Σ_i ℓ(W f_i, y_i), with its certificate."""

    lam: Doubles  # (N, K) λ_i = C (e_{y_i} − p_i), with p_i on the simplex: rows sum to zero
    weight: Doubles  # (K, D) W = Σ_i λ_i f_iᵀ, of exactly these
    gap: float  # (P(W) − D(λ))/P(W), with D(λ) = C Σ_i H(p_i) − ½‖W‖² and H the entropy
    loss: float  # mean ℓ(W f_i, y_i)


def solve_softmax(
    features: Floats,
    labels: Ints,
    n_classes: int,
    C: float,
    tol: float,
    callback: Callable[[float, float], object] = lambda seconds, gap: None,
    *,
    start: Doubles | None = None,
    max_seconds: float | None = None,
) -> SoftmaxSolution:
    """Minimise ½‖W‖² + C Σ_i ℓ(W f_i, y_i), ℓ the cross-entropy, to a relative duality gap.

    Parameters
    ----------
    features : (N, D), including the constant of the bias
    labels : (N,)
    n_classes : K
    C : weight of the loss of a sample
    tol : relative duality gap to reach
    callback : is called with the seconds so far and the gap
    start : λ (N, K) to begin at, such as that of a similar problem
    max_seconds : limit, after which the gap may be above ``tol``
    """
    began = time.perf_counter()
    X = spanned(features)
    W = None if start is None else start.T @ X
    residual = _TIGHTER
    while True:
        left = None if max_seconds is None else max_seconds - (time.perf_counter() - began)
        fit = fit_softmax(X, labels, n_classes, 1 / (2 * C * len(X)), residual, start=W, max_seconds=left)
        lam, W = fit.alpha, fit.weight
        gap, loss = _certified(X, labels, lam, C)
        callback(time.perf_counter() - began, gap)
        # A search that does not reach the residual will not get nearer.
        if gap <= tol or fit.residual > residual:
            F = np.asarray(features, dtype=np.float64)
            return SoftmaxSolution(lam, lam.T @ F, gap, loss)
        residual *= _TIGHTER


def spanned(features: Floats) -> Doubles:
    """Return features in float64, or, of fewer samples than features, as few with the same inner products.

    A problem in W = Σ_i λ_i f_iᵀ depends on features by their inner products alone.
    """
    F = np.ascontiguousarray(features, dtype=np.float64)
    n, d = F.shape
    if n >= d:
        return F
    gram = F @ F.T
    if not gram.any():
        return np.zeros((n, 1))
    gram[np.diag_indices(n)] += _JITTER * np.trace(gram) / n
    lower: Doubles = cholesky(gram, lower=True, overwrite_a=True)
    return lower


def _certified(X: Doubles, labels: Ints, lam: Doubles, C: float) -> tuple[float, float]:
    """Return the relative duality gap of λ and its W, and the mean loss."""
    W = lam.T @ X
    rows, half = np.arange(len(X)), 0.5 * float(np.vdot(W, W))
    losses = -log_softmax(X @ W.T, axis=1)[rows, labels]
    P = -lam / C
    P[rows, labels] += 1.0
    primal = half + C * float(losses.sum())
    dual = C * float(entr(np.clip(P, 0.0, 1.0)).sum()) - half
    return max(primal - dual, 0.0) / primal, float(losses.mean())


@dataclass(frozen=True)
class _Problem:
    """Value, gradient and Hessian products for features X (N, d) and labels Y (N, K) with row sums 1."""

    X: Doubles
    Y: Doubles
    l2: float

    def at(self, W: Doubles) -> tuple[float, Doubles, Doubles]:
        """Return the value, the gradient (K, d) and the probabilities (N, K) at W."""
        Z = self.X @ W.T
        top = Z.max(axis=1)
        P = np.exp(Z - top[:, None])
        total = P.sum(axis=1)
        P /= total[:, None]
        loss = np.log(total) + top - np.einsum("nk,nk->n", Z, self.Y)
        gradient = (P - self.Y).T @ self.X / len(Z) + 2 * self.l2 * W
        return float(loss.mean() + self.l2 * np.vdot(W, W)), gradient, P

    def residual(self, W: Doubles, gradient: Doubles) -> float:
        """Return ‖W − Σ_i α_i f_iᵀ‖ / ‖W‖, which is ‖gradient‖ / (2 l2 ‖W‖)."""
        size = 2 * self.l2 * float(np.linalg.norm(W))
        distance = float(np.linalg.norm(gradient))
        return distance / size if size > 0 else float(np.inf if distance > 0 else 0)

    def newton_step(self, gradient: Doubles, P: Doubles) -> Doubles:
        """Solve H S = −gradient, more exactly for smaller gradients."""
        n, d = self.X.shape
        q = np.einsum("nk,nk->n", P, 1 - P) / P.shape[1]
        M = (self.X * q[:, None]).T @ self.X / n
        M[np.diag_indices(d)] += 2 * self.l2
        factor = cho_factor(M, overwrite_a=True)

        def product(V: Doubles) -> Doubles:
            PT = P * (self.X @ V.T)
            PT -= P * PT.sum(axis=1, keepdims=True)
            out: Doubles = PT.T @ self.X / n + 2 * self.l2 * V
            return out

        # This forcing term makes Newton's method converge superlinearly.
        tol = 0.1 * min(0.1, float(np.sqrt(np.linalg.norm(gradient))))
        step: Doubles
        step, _ = conjugate_gradients(
            product, -gradient, lambda R: cho_solve(factor, R.T).T, np.vdot, tol=tol, steps=_PRODUCTS
        )
        return step
