"""Softmax regression with an ℓ2 penalty on given features, solved by Newton's method, with a certificate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky
from scipy.special import entr

from whence.core.arrays import Doubles, Floats, Ints
from whence.core.conjugate import conjugate_gradients

_JITTER = 1e-12  # share of the mean squared length, so that dependent samples have a Cholesky factor
_STEPS = 100  # maximum Newton steps; about ten are typical
_PRODUCTS = 500  # maximum Hessian products per Newton step
_HALVINGS = 40
_FORCE = 1e-4  # minimum relative error of a Newton step
_FLAT = 1e6  # C Σ_i ‖f_i‖² up to which products in float32 suffice for a step
_BLOCK = 1 << 18  # numbers of samples at a time


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
    Y: Doubles = labels.astype(np.float64) if labels.ndim == 2 else np.eye(n_classes)[labels.astype(np.int64)]
    problem = _Problem(_wide(features), Y, l2)

    def enough(at: _Point) -> bool:
        callback(time.perf_counter() - started, at.residual)
        late = max_seconds is not None and time.perf_counter() - started > max_seconds
        return at.residual <= tol or late

    first = problem.at(np.zeros((n_classes, problem.X.shape[1])) if start is None else start)
    at, _ = _minimise(problem, first, enough)
    return SoftmaxFit(at.W, (problem.Y - at.P) / (2 * l2 * len(problem.X)), at.residual)


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
    W = np.zeros((n_classes, X.shape[1])) if start is None else _expanded(start, X)
    problem = _Problem(X, np.eye(n_classes)[labels.astype(np.int64)], 1 / (2 * C * len(X)))
    goal, own = tol, np.inf

    def enough(at: _Point) -> bool:
        nonlocal own
        # The gap of W, instead of Σ_i λ_i f_iᵀ, is ½‖W − Σ_i λ_i f_iᵀ‖², since ℓ(z, y) − H(p) = −(e_y − p)·z.
        apart = float(np.linalg.norm(at.gradient)) / (2 * problem.l2)
        own = 0.5 * apart**2 / (C * len(X) * at.value)
        callback(time.perf_counter() - began, own)
        return own <= goal or late()

    def late() -> bool:
        return max_seconds is not None and time.perf_counter() - began > max_seconds

    at = problem.at(W)
    while True:
        at, reached = _minimise(problem, at, enough)
        lam = C * (problem.Y - at.P)
        gap, loss = _certified(problem, lam, C)
        callback(time.perf_counter() - began, gap)
        if gap <= tol or not reached or own == 0 or late():
            return SoftmaxSolution(lam, _expanded(lam, features), gap, loss)
        goal = 0.5 * tol * own / gap


def spanned(features: Floats) -> Floats:
    """Return features, or, of fewer samples than features, as few in float64 with the same inner products.

    A problem in W = Σ_i λ_i f_iᵀ depends on features by their inner products alone.
    """
    n, d = features.shape
    if n >= d:
        return _wide(features)
    F = np.asarray(features, dtype=np.float64)
    gram = F @ F.T
    if not gram.any():
        return np.zeros((n, 1))
    gram[np.diag_indices(n)] += _JITTER * np.trace(gram) / n
    lower: Doubles = cholesky(gram, lower=True, overwrite_a=True)
    return lower


def _certified(problem: _Problem, lam: Doubles, C: float) -> tuple[float, float]:
    """Return the relative duality gap of λ and its W, and the mean loss."""
    W = _expanded(lam, problem.X)
    half = 0.5 * float(np.vdot(W, W))
    P = problem.Y - lam / C
    primal = C * len(P) * problem.at(W).value
    loss = (primal - half) / (C * len(P))
    dual = C * float(entr(np.clip(P, 0.0, 1.0)).sum()) - half
    return max(primal - dual, 0.0) / primal, loss


class _Point(NamedTuple):
    """The objective at W.

    Attributes
    ----------
    W : (K, d)
    value : (1/N) Σ_i ℓ(W f_i, y_i) + l2‖W‖²
    gradient : (K, d)
    P : (N, K) probabilities
    residual : ‖W − Σ_i α_i f_iᵀ‖ / ‖W‖, which is ‖gradient‖ / (2 l2 ‖W‖)
    """

    W: Doubles
    value: float
    gradient: Doubles
    P: Doubles
    residual: float


def _minimise(problem: _Problem, at: _Point, enough: Callable[[_Point], bool]) -> tuple[_Point, bool]:
    """Minimise by Newton's method until a point is ``enough``; return whether one was.

    It also stops where rounding lets it come no nearer.
    """
    best, newton = np.inf, _Newton(problem)
    for _ in range(_STEPS):
        if enough(at):
            return at, True
        if at.residual < 1e-6 and at.residual >= best:
            break
        best = min(best, at.residual)
        step = newton.step(at)
        slope, length = float(np.vdot(at.gradient, step)), 1.0
        for _ in range(_HALVINGS):
            trial = problem.at(at.W + length * step)
            # Near the minimum the decrease is below the precision of the value.
            if trial.value <= at.value + 1e-4 * length * slope + 4e-16 * abs(at.value):
                break
            length /= 2
        at = trial
    return at, False


@dataclass(frozen=True)
class _Problem:
    """The objective for features X (N, d) in float32 or float64 and labels Y (N, K) with row sums 1."""

    X: Floats
    Y: Doubles
    l2: float

    def at(self, W: Doubles) -> _Point:
        """Compute the objective at W (K, d) in float64."""
        n, P, total = len(self.X), np.empty(self.Y.shape), 0.0
        gradient = np.zeros_like(W)
        for part in _parts(self.X):
            X, Y = self.X[part].astype(np.float64, copy=False), self.Y[part]
            Z = X @ W.T
            Z -= Z.max(axis=1, keepdims=True)
            p = np.exp(Z)
            sums = p.sum(axis=1, keepdims=True)
            p /= sums
            total += float(np.log(sums).sum() - np.vdot(Z, Y))
            gradient += (p - Y).T @ X
            P[part] = p
        gradient = gradient / n + 2 * self.l2 * W
        size, distance = 2 * self.l2 * float(np.linalg.norm(W)), float(np.linalg.norm(gradient))
        residual = distance / size if size > 0 else float(np.inf if distance > 0 else 0)
        return _Point(W, total / n + self.l2 * float(np.vdot(W, W)), gradient, P, residual)


class _Newton:
    """Newton steps by conjugate gradients, preconditioned by the curvature that classes have on average.

    A step needs few digits: products of float32 features are in float32 unless the problem is too steep for
    that. The preconditioner is computed again once it costs less than the products of the last step.
    """

    def __init__(self, problem: _Problem) -> None:
        self._problem = problem
        X = problem.X
        squares = float(np.einsum("nd,nd->", X, X, dtype=np.float64))
        self._unit = (squares / X.size) ** 0.5 or 1.0
        flat = squares / (2 * problem.l2 * len(X)) <= _FLAT and 1e-12 < self._unit < 1e12
        self._dtype = X.dtype if flat else np.dtype(np.float64)
        self._factor: tuple[Doubles, bool] | None = None
        self._products = 0

    def step(self, at: _Point) -> Doubles:
        """Solve H S = −gradient, more exactly for smaller gradients."""
        K, d = at.W.shape
        factor = self._factor
        if factor is None or 4 * K * self._products >= d:
            factor = self._factor = self._precondition(at.P)
        self._products = 0
        P = at.P.astype(self._dtype)
        # This forcing term makes Newton's method converge superlinearly.
        tol = 0.1 * min(0.1, float(np.sqrt(np.linalg.norm(at.gradient))))
        step: Doubles
        step, _ = conjugate_gradients(
            lambda V: self._product(V, P), -at.gradient, lambda R: cho_solve(factor, R.T).T, np.vdot,
            tol=max(tol, _FORCE), steps=_PRODUCTS,
        )  # fmt: skip
        return step

    def _precondition(self, P: Doubles) -> tuple[Doubles, bool]:
        problem = self._problem
        n, d = problem.X.shape
        M = np.zeros((d, d), self._dtype)
        for part in _parts(problem.X):
            p = P[part]
            q = np.sqrt(np.einsum("nk,nk->n", p, 1 - p) / p.shape[1])
            X = problem.X[part] * (q / self._unit).astype(self._dtype)[:, None]
            M += X.T @ X
        whole: Doubles = M.astype(np.float64) * (self._unit**2 / n)
        whole[np.diag_indices(d)] += 2 * problem.l2
        factor: tuple[Doubles, bool] = cho_factor(whole, overwrite_a=True)
        return factor

    def _product(self, V: Doubles, P: Floats) -> Doubles:
        self._products += 1
        problem, scale = self._problem, float(np.linalg.norm(V)) * self._unit or 1.0
        v, out = (V / scale).astype(self._dtype), np.zeros_like(V)
        for part in _parts(problem.X):
            X, p = problem.X[part].astype(self._dtype, copy=False), P[part]
            moved = X @ v.T
            moved *= p
            moved -= p * moved.sum(axis=1, keepdims=True)
            out += moved.T @ X
        whole: Doubles = out * (scale / len(problem.X)) + 2 * problem.l2 * V
        return whole


def _parts(X: Floats) -> list[slice]:
    """Divide samples into blocks that fit a cache."""
    n, size = len(X), max(256, _BLOCK // X.shape[1])
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _expanded(lam: Doubles, X: Floats) -> Doubles:
    """Compute Σ_i λ_i f_iᵀ in float64."""
    out = np.zeros((lam.shape[1], X.shape[1]))
    for part in _parts(X):
        out += lam[part].T @ X[part].astype(np.float64, copy=False)
    return out


def _wide(features: Floats) -> Floats:
    """Return contiguous features in float32 or float64."""
    dtype = features.dtype if features.dtype in (np.float32, np.float64) else np.float64
    return np.ascontiguousarray(features, dtype=dtype)
