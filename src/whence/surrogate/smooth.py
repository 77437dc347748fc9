"""Surrogates with a smooth loss: softmax regression for classes, ridge regression for numbers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import brentq
from scipy.sparse import csr_array
from tqdm.auto import tqdm

from whence.core import progress
from whence.core.arrays import Array, Doubles, Floats, Ints
from whence.core.progress import gap_bar
from whence.engine import limited
from whence.errors import ConvergenceWarning, warn
from whence.model.heads import Head
from whence.surrogate.agreement import head_logits
from whence.surrogate.solving import ReadRows, Solved, SurrogateSolver
from whence.svm.inputs import check_range, squared_norms
from whence.svm.softmax import SoftmaxSolution, solve_softmax, spanned

_KAPPA = 10_000.0  # maximum C·Σ_i‖f_i‖² for C="auto"
_LEAST = 1.0  # minimum κ: below it a surrogate predicts almost nothing
_NEAR = 0.02  # relative tolerance of two losses
_LOOSE = 1e-3  # gap of trial surrogates, of which only the loss matters
_TRIALS = 12
_BLOCK = 4096


class RidgeSolution(NamedTuple):
    """λ (N, K) and W (K, D) of ½‖W‖² + C/2 Σ_i ‖t_i − W f_i‖², the mean loss, the relative duality gap."""

    lam: Doubles
    weight: Doubles
    loss: float
    gap: float


Minimum = SoftmaxSolution | RidgeSolution
Solve = Callable[[float, Doubles | None], Minimum]
"""Solves for a C, from a λ (N, K) of a similar problem."""


@dataclass(frozen=True)
class SmoothSolver(SurrogateSolver):
    """Solver of ½‖W‖² + C Σ_i ℓ(W f_i, y_i) on features with the constant of the bias as a last column."""

    def _fit(self, rows: ReadRows, head: Head | None, C: float | Literal["auto"]) -> Solved:
        constant, start = self._constant(rows.read), None
        norms = squared_norms(rows.read) + constant**2
        F, targets = extended(rows.read, constant), self._targets(rows.labels)
        if C == "auto":
            total = float(norms.sum()) or 1.0
            known = None if head is None else self._network_loss(head, rows.raw, targets)
            with tqdm(desc="Choosing C", unit="trial", disable=not self.options.show_progress) as bar:
                C, start = choose_C_by_loss(
                    self._trial(F, targets, bar), _KAPPA / total, _LEAST / total, known
                )
        check_range(C, norms)
        return self._solution(F, targets, C, start, constant)

    def _refit(self, rows: ReadRows, lam: csr_array, C: float, constant: float | None) -> Solved:
        constant = self._constant(rows.read) if constant is None else constant
        return self._solution(
            extended(rows.read, constant), self._targets(rows.labels), C, lam.toarray(), constant
        )

    def _solution(
        self, F: Floats, targets: Array, C: float, start: Doubles | None, constant: float
    ) -> Solved:
        solved, scale = self._solve(F, targets, C, start), self._scale
        weight = solved.weight * scale[:, None]
        if constant:
            weight[:, -1] *= constant  # the bias that is added to logits
        return Solved(csr_array(solved.lam * scale), weight, C, solved.gap, None, constant)

    @property
    def _scale(self) -> Doubles:
        """Factors (K,) of λ and W."""
        return np.ones(self.task.n_outputs)

    @abstractmethod
    def _targets(self, labels: Array) -> Array:
        """Return the targets of the fit for labels (N, …)."""

    @abstractmethod
    def _network_loss(self, head: Head, X: Floats, targets: Array) -> float:
        """Return the network's mean loss on its training set, by its last layer."""

    @abstractmethod
    def _trial(self, F: Floats, targets: Array, bar: tqdm[NoReturn]) -> Solve:
        """Return a solver to a loose gap, to compare losses."""

    @abstractmethod
    def _solve(self, F: Floats, targets: Array, C: float, start: Doubles | None) -> Minimum:
        """Solve to the requested gap."""


@dataclass(frozen=True)
class SoftmaxSolver(SmoothSolver):
    """Solver of ½‖W‖² + C Σ_i ℓ(W f_i, y_i) with the cross-entropy ℓ."""

    loss: ClassVar[str] = "softmax"

    def _targets(self, labels: Array) -> Array:
        return labels

    def _network_loss(self, head: Head, X: Floats, targets: Array) -> float:
        return network_loss(head, X, targets)

    def _trial(self, F: Floats, targets: Array, bar: tqdm[NoReturn]) -> Solve:
        X, K, limit = spanned(F), self.task.n_outputs, self.options.max_seconds

        def report(seconds: float, gap: float) -> None:
            progress.report("Trials of C", int(bar.n), 0)

        def solve(C: float, start: Doubles | None) -> SoftmaxSolution:
            with limited(self.options.n_threads):
                solved = solve_softmax(X, targets, K, C, _LOOSE, report, start=start, max_seconds=limit)
            bar.update()
            return solved

        return solve

    def _solve(self, F: Floats, targets: Array, C: float, start: Doubles | None) -> Minimum:
        K, tol, limit = self.task.n_outputs, self.options.tol, self.options.max_seconds
        with gap_bar(tol, self.options.show_progress) as bar, limited(self.options.n_threads):
            solved = solve_softmax(F, targets, K, C, tol, bar, start=start, max_seconds=limit)
        if solved.gap > tol:
            warn(
                f"The surrogate has a duality gap of {solved.gap:.1e}, more than 'tol' = {tol:g}. Allow more "
                "time by max_seconds, or use a smaller C.",
                ConvergenceWarning,
            )
        return solved


@dataclass(frozen=True)
class RidgeSolver(SmoothSolver):
    """Solver of ½‖W‖² + C/2 Σ_i ‖t_i − W f_i‖² with standardised targets t.

    λ_i = C (t_i − W f_i) and W are returned times the targets' standard deviation, as for a support vector
    regression. The closed form needs no start.
    """

    loss: ClassVar[str] = "squares"

    @property
    def _scale(self) -> Doubles:
        return np.array(self._standard[1])

    @property
    def _standard(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The targets' means and standard deviations, fields of every task with the loss "squared"."""
        task: Any = self.task
        return task.centre, task.scale

    def _targets(self, labels: Array) -> Doubles:
        centre, scale = map(np.array, self._standard)
        targets: Doubles = (labels.reshape(len(labels), len(centre)).astype(np.float64) - centre) / scale
        return targets

    def _network_loss(self, head: Head, X: Floats, targets: Array) -> float:
        outputs = head_logits(head, torch.from_numpy(np.array(X))).double().cpu().numpy()
        rest = self._targets(outputs) - targets
        return 0.5 * float(np.vdot(rest, rest)) / len(targets)

    def _trial(self, F: Floats, targets: Array, bar: tqdm[NoReturn]) -> Solve:
        X: Doubles = F.astype(np.float64)
        return lambda C, start: solve_ridge(X, targets, C)

    def _solve(self, F: Floats, targets: Array, C: float, start: Doubles | None) -> Minimum:
        with limited(self.options.n_threads):
            return solve_ridge(F.astype(np.float64), targets, C)


def solve_ridge(F: Doubles, t: Doubles, C: float) -> RidgeSolution:
    """Solve ½‖W‖² + C/2 Σ_i ‖t_i − W f_i‖² for features (N, D) and targets (N, K)."""
    n, D = F.shape
    if n < D:
        lam = cho_solve(cho_factor(F @ F.T + np.eye(n) / C), t)
    else:
        lam = C * (t - F @ cho_solve(cho_factor(F.T @ F + np.eye(D) / C), F.T @ t))
    weight = lam.T @ F
    rest, squares = t - F @ weight.T, float(np.vdot(weight, weight))
    primal = 0.5 * squares + 0.5 * C * float(np.vdot(rest, rest))
    dual = float(np.vdot(t, lam)) - 0.5 * squares - 0.5 / C * float(np.vdot(lam, lam))
    gap = (primal - dual) / primal if primal > 0 else 0.0
    return RidgeSolution(lam, weight, 0.5 * float(np.vdot(rest, rest)) / n, gap)


def choose_C_by_loss(
    solve: Solve, most: float, least: float, known: float | None
) -> tuple[float, Doubles | None]:
    """Choose C, and return λ near its solution: ``most``, or less if that would fit better than the network.

    A surrogate should not have a lower loss on the training set than the network, ``known`` (None if
    unknown). The loss falls as C grows, so there is one C at which both are equal.
    """
    solved = solve(most, None)
    if known is None or solved.loss >= known * (1 - _NEAR):
        return most, solved.lam
    tried = {float(np.log(most)): solved}

    def surplus(log_C: float) -> float:
        """Return log(loss / known), exactly 0 within the tolerance, so that the search ends."""
        if log_C not in tried:
            near, other = min(tried.items(), key=lambda item: abs(item[0] - log_C))
            tried[log_C] = solve(float(np.exp(log_C)), other.lam * np.exp(log_C - near))
        loss = max(tried[log_C].loss, np.finfo(np.float64).tiny)
        return 0.0 if abs(loss - known) <= _NEAR * known else float(np.log(loss / known))

    best = low = float(np.log(least))
    if surplus(low) > 0:  # otherwise even this C has a lower loss than the network
        best = brentq(surplus, low, float(np.log(most)), xtol=_NEAR, maxiter=_TRIALS, disp=False)
    return float(np.exp(best)), tried[best].lam


def network_loss(head: Head, features: Floats, labels: Ints) -> float:
    """Return the network's mean cross-entropy on its training set, by its last layer."""
    total = 0.0
    for start in range(0, len(labels), _BLOCK):
        rows = slice(start, start + _BLOCK)
        logits = head_logits(head, torch.from_numpy(np.array(features[rows]))).double()
        y = torch.as_tensor(labels[rows])
        total += float(torch.nn.functional.cross_entropy(logits, y, reduction="sum"))
    return total / len(labels)


def extended(features: Floats, constant: float) -> Floats:
    """Append a column with the constant to features (N, D), unless it is 0."""
    if not constant:
        return features
    return np.concatenate([features, np.full((len(features), 1), constant, features.dtype)], axis=1)
