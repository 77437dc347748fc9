"""Semismooth Newton on the augmented Lagrangian of the dual, over some of the samples.

With the other samples' λ held fixed, a proximal step from the centre a⁰ with step size σ maximises the dual
less ‖a − a⁰‖²/2σ. In W this is a smooth convex problem with gradient W − W(a), where a_i is the projection of
a⁰_i + σ g_i onto what is feasible; its generalised Hessian is that of the problem's :class:`System`. Each
proximal step is solved by a few Newton steps, then σ grows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.core.arrays import Doubles
from whence.svm.passes import Rows

_MAX_PROXIMAL = 12
_MAX_STEPS = 40  # Newton steps within one proximal step
_ENOUGH_STEPS = 25  # steps after which all samples are checked again
_ACCURACY = 0.1  # accuracy of a Newton step, and of a line search
_FINAL_ACCURACY = 1e-2  # accuracy of a Newton step when only W − W(a) remains
# σ next to its first value; further, a⁰ + σ g has lost a⁰'s digits
_STEEP_START, _STEEPEST = 1e4, 1e7
_SHARPNESS = 1.5  # change of g that the first σ converts to a typical λ


class Phase:
    """One phase of Newton steps.

    Parameters
    ----------
    rows : the samples and outputs that may move
    alpha : (P,) their coefficients
    dual_W : (U, D) Σ λ_i f_iᵀ over all samples, of the outputs in use
    W : (U, D) the primal point to start from
    sigma : the σ to begin with, unless the typical first one is larger
    """

    def __init__(self, rows: Rows, alpha: Doubles, dual_W: Doubles, W: Doubles, sigma: float) -> None:
        problem = rows.problem
        self.rows, self.problem, self.W, self.pairs = rows, problem, W, rows.pairs
        self.fixed = dual_W - rows.combine(problem.dual(alpha, self.pairs))
        gentle = problem.typical(alpha, self.pairs) / _SHARPNESS
        self.sigma = min(max(sigma, gentle), _STEEP_START * gentle)
        self.steepest = _STEEPEST * gentle
        self.centre, self.a = alpha, np.empty_like(alpha)
        self.g = problem.gradient(rows.scores(W), self.pairs)

    def run(self, target: float, out_of_time: Callable[[], bool]) -> Doubles:
        """Step until the gap of W(α) over these samples is at most ``target``; return α (P,)."""
        system = self.problem.system(self.rows)
        steps = 0
        for _ in range(_MAX_PROXIMAL):
            for _ in range(_MAX_STEPS):
                self._project(0.0, self.g)
                residual = self.W - self.fixed - self.rows.combine(self.problem.dual(self.a, self.pairs))
                slackness = self.problem.slackness(self.a, self.g, self.pairs)
                distance = 0.5 * self.rows.inner(residual, residual)
                near = slackness + distance <= target
                done = out_of_time() or (near and self._own_gap(residual) <= target)
                if done or (not near and distance <= 0.1 * slackness):
                    break
                accuracy = _FINAL_ACCURACY if near else _ACCURACY
                step = -system.solve(self.a, self.sigma, residual, accuracy)
                dg = self.rows.scores(step)
                t = self._line_search(residual, step, dg)
                self.W = self.W + t * step
                dg *= t
                self.g += dg
                del dg  # free memory before the next one is made
                steps += 1
            if done or steps > _ENOUGH_STEPS:
                break
            self.centre = self.a.copy()
            self.sigma = min(3.0 * self.sigma, self.steepest)
        # A large σ leaves rounding errors in the sums, which would separate W from W(λ).
        self.problem.repair(self.a, self.pairs)
        return self.a

    def _own_gap(self, residual: Doubles) -> float:
        """Return the gap over these samples with W(a) = W − residual instead of W."""
        return self.problem.slackness(self.a, self.g - self.rows.scores(residual), self.pairs)

    def _project(self, t: float, dg: Doubles) -> None:
        """Return a = projection of centre + σ (g + t·dg)."""
        self.problem.project(self.centre, self.sigma, self.g, t, dg, self.pairs, self.a)

    def _line_search(self, residual: Doubles, step: Doubles, dg: Doubles) -> float:
        """Return a step at which the slope of the smooth objective along ``step`` has fallen to a tenth."""
        problem, inner = self.problem, self.rows.inner
        linear, square = inner(self.W - self.fixed, step), inner(step, step)

        def slope(t: float) -> float:
            self._project(t, dg)
            return linear + t * square - problem.inner_pairs(problem.dual(self.a, self.pairs), dg, self.pairs)

        first = inner(residual, step)
        low, high, at_low, at_high = 0.0, 1.0, first, slope(1.0)
        if at_high <= _ACCURACY * abs(first):
            return 1.0
        t = 1.0
        for _ in range(12):
            t = low - at_low * (high - low) / (at_high - at_low)
            t = min(max(t, low + 0.05 * (high - low)), high - 0.05 * (high - low))
            at = slope(t)
            if abs(at) <= _ACCURACY * abs(first):
                break
            if at > 0:
                high, at_high = t, at
            else:
                low, at_low = t, at
        return t
