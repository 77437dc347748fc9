"""Softmax regression with an ℓ2 penalty on given features, solved to stationarity by Newton's method."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from whence.core.arrays import Doubles, Floats, Ints

_STEPS = 100  # of Newton's method; some ten are usual
_PRODUCTS = 500  # of the Hessian with a vector, a Newton step
_HALVINGS = 40


@dataclass(frozen=True)
class SoftmaxFit:
    """A minimum W of (1/N) Σ_i ℓ(W f_i, y_i) + l2‖W‖², and its coefficients.

    Attributes
    ----------
    weight : (K, d) float64
    alpha : (N, K) float64, −(1/(2 l2 N)) ∂ℓ_i/∂logit, of which W = Σ_i α_i f_iᵀ at the minimum
    residual : ‖W − Σ_i α_i f_iᵀ‖ / ‖W‖
    """

    weight: Doubles
    alpha: Doubles
    residual: float


def fit_softmax(
    features: Floats,
    labels: Ints,
    n_classes: int,
    l2: float,
    tol: float,
    callback: Callable[[float, float], object] = lambda seconds, residual: None,
) -> SoftmaxFit:
    """Minimise (1/N) Σ_i ℓ(W f_i, y_i) + l2‖W‖² over W (K, d), ℓ the cross-entropy.

    Newton's method with conjugate gradients, preconditioned by the curvature that the classes have on
    average, Fᵀ diag(q) F / N + 2 l2 I with q_i the mean over classes of p(1 − p). It stops at a residual of
    ``tol``, or where rounding lets it come no nearer; ``callback`` is called with the seconds so far and
    the residual.
    """
    started = time.perf_counter()
    X = np.ascontiguousarray(features, dtype=np.float64)
    problem = _Problem(X, np.eye(n_classes)[labels], l2)
    W = np.zeros((n_classes, X.shape[1]))
    value, gradient, P = problem.at(W)
    best = np.inf
    for _ in range(_STEPS):
        residual = problem.residual(W, gradient)
        callback(time.perf_counter() - started, residual)
        if residual <= tol or (residual < 1e-6 and residual >= best):
            break
        best = min(best, residual)
        step = problem.newton_step(gradient, P)
        slope, length = float(np.vdot(gradient, step)), 1.0
        for _ in range(_HALVINGS):
            trial = problem.at(W + length * step)
            # Near the minimum the decrease is below what the value resolves.
            if trial[0] <= value + 1e-4 * length * slope + 4e-16 * abs(value):
                break
            length /= 2
        W = W + length * step
        value, gradient, P = trial
    return SoftmaxFit(W, (problem.Y - P) / (2 * l2 * len(X)), problem.residual(W, gradient))


@dataclass(frozen=True)
class _Problem:
    """Value, gradient and curvature for features X (N, d) and one-hot labels Y (N, K)."""

    X: Doubles
    Y: Doubles
    l2: float

    def at(self, W: Doubles) -> tuple[float, Doubles, Doubles]:
        """Give the value, the gradient (K, d) and the probabilities (N, K) at W."""
        Z = self.X @ W.T
        top = Z.max(axis=1)
        P = np.exp(Z - top[:, None])
        total = P.sum(axis=1)
        P /= total[:, None]
        loss = np.log(total) + top - np.einsum("nk,nk->n", Z, self.Y)
        gradient = (P - self.Y).T @ self.X / len(Z) + 2 * self.l2 * W
        return float(loss.mean() + self.l2 * np.vdot(W, W)), gradient, P

    def residual(self, W: Doubles, gradient: Doubles) -> float:
        """‖W − Σ_i α_i f_iᵀ‖ / ‖W‖, which is ‖gradient‖ / (2 l2 ‖W‖)."""
        size = 2 * self.l2 * float(np.linalg.norm(W))
        distance = float(np.linalg.norm(gradient))
        return distance / size if size > 0 else float(np.inf if distance > 0 else 0)

    def newton_step(self, gradient: Doubles, P: Doubles) -> Doubles:
        """Solve H S = −gradient, the more exactly the smaller the gradient."""
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

        S, R = np.zeros_like(gradient), -gradient
        Z = cho_solve(factor, R.T).T
        D, rz = Z.copy(), float(np.vdot(R, Z))
        start = rz
        # The forcing term that makes Newton's method converge superlinearly.
        enough = min(0.1, np.sqrt(np.linalg.norm(gradient))) ** 2 * 1e-2
        for _ in range(_PRODUCTS):
            HD = product(D)
            bent = float(np.vdot(D, HD))
            if not 0 < bent < np.inf:  # below what float64 can tell from 0, or above what it can hold
                break
            a = rz / bent
            S += a * D
            R -= a * HD
            Z = cho_solve(factor, R.T).T
            rz, last = float(np.vdot(R, Z)), rz
            if rz <= enough * start:
                break
            D = Z + (rz / last) * D
        return S
