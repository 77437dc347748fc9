"""Surrogates of a smooth loss: softmax regression of classes, and ridge regression of numbers."""

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
from whence.surrogate.solving import SurrogateSolution, SurrogateSolver
from whence.svm.inputs import check_range, squared_norms
from whence.svm.softmax import SoftmaxSolution, solve_softmax, spanned

_KAPPA = 10_000.0  # C·Σ_i‖f_i‖² of the surrogate where C is "auto", and the most that it is
_LEAST = 1.0  # the least κ: below it a surrogate says next to nothing
_NEAR = 0.02  # relative difference of two losses that are as good as equal
_LOOSE = 1e-3  # gap of surrogates that only tell their loss
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
    """Solves ½‖W‖² + C Σ_i ℓ(W f_i, y_i) on features with the constant of the bias as a last column."""

    def _fit(
        self, X: Floats, labels: Array, head: Head | None, C: float | Literal["auto"]
    ) -> SurrogateSolution:
        constant, start = self._constant(X), None
        norms = squared_norms(X) + constant**2
        F, targets = extended(X, constant), self._targets(labels)
        if C == "auto":
            total = float(norms.sum()) or 1.0
            known = None if head is None else self._network_loss(head, X, targets)
            with tqdm(desc="Choosing C", unit="trial", disable=not self.options.show_progress) as bar:
                C, start = choose_C_by_loss(
                    self._trial(F, targets, bar), _KAPPA / total, _LEAST / total, known
                )
        check_range(C, norms)
        return self._solution(F, targets, C, start, constant)

    def _refit(
        self, X: Floats, labels: Array, lam: csr_array, C: float, constant: float | None
    ) -> SurrogateSolution:
        constant = self._constant(X) if constant is None else constant
        return self._solution(extended(X, constant), self._targets(labels), C, lam.toarray(), constant)

    def _solution(
        self, F: Floats, targets: Array, C: float, start: Doubles | None, constant: float
    ) -> SurrogateSolution:
        solved, scale = self._solve(F, targets, C, start), self._scale
        weight = solved.weight * scale[:, None]
        if constant:
            weight[:, -1] *= constant  # as it is added to logits
        return SurrogateSolution(csr_array(solved.lam * scale), weight, C, solved.gap, None, constant)

    @property
    def _scale(self) -> Doubles:
        """What λ and W are multiplied by, (K,)."""
        return np.ones(self.task.n_outputs)

    @abstractmethod
    def _targets(self, labels: Array) -> Array:
        """Return what is fitted, of labels (N, …)."""

    @abstractmethod
    def _network_loss(self, head: Head, X: Floats, targets: Array) -> float:
        """Return the network's own mean loss on its training set, by its last layer."""

    @abstractmethod
    def _trial(self, F: Floats, targets: Array, bar: tqdm[NoReturn]) -> Solve:
        """Return what solves loosely, to compare losses."""

    @abstractmethod
    def _solve(self, F: Floats, targets: Array, C: float, start: Doubles | None) -> Minimum:
        """Solve to the gap that was asked for."""


@dataclass(frozen=True)
class SoftmaxSolver(SmoothSolver):
    """Solves ½‖W‖² + C Σ_i ℓ(W f_i, y_i), ℓ the cross-entropy."""

    loss: ClassVar[str] = "softmax"

    def _targets(self, labels: Array) -> Array:
        return labels

    def _network_loss(self, head: Head, X: Floats, targets: Array) -> float:
        return network_loss(head, X, targets)

    def _trial(self, F: Floats, targets: Array, bar: tqdm[NoReturn]) -> Solve:
        X, K, limit = spanned(F), self.task.n_outputs, self.options.max_seconds

        def report(seconds: float, gap: float) -> None:
            progress.tell("Trials of C", int(bar.n), 0)

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
    """Solves ½‖W‖² + C/2 Σ_i ‖t_i − W f_i‖², t the targets less their mean and in units of their deviation.

    λ_i = C (t_i − W f_i) and W are given times the deviation, as those of a support vector regression. The
    closed form needs no start.
    """

    loss: ClassVar[str] = "squares"

    @property
    def _scale(self) -> Doubles:
        return np.array(self._standard[1])

    @property
    def _standard(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The targets' means and deviations: fields of every task whose loss is "squared"."""
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
    """Choose C, and return λ near its solution: ``most``, or less where that would fit better than the net.

    A surrogate with less loss on the training set than the network stands for one that learned more. The
    loss falls as C grows, so there is one C at which it is the network's: ``known``, None if it is unknown.
    """
    solved = solve(most, None)
    if known is None or solved.loss >= known * (1 - _NEAR):
        return most, solved.lam
    tried = {float(np.log(most)): solved}

    def surplus(log_C: float) -> float:
        """Return log(loss / known), 0 where that is as good as 0, so that the search ends there."""
        if log_C not in tried:
            near, other = min(tried.items(), key=lambda item: abs(item[0] - log_C))
            tried[log_C] = solve(float(np.exp(log_C)), other.lam * np.exp(log_C - near))
        loss = max(tried[log_C].loss, np.finfo(np.float64).tiny)
        return 0.0 if abs(loss - known) <= _NEAR * known else float(np.log(loss / known))

    best = low = float(np.log(least))
    if surplus(low) > 0:  # else even so it has less loss than the network
        best = brentq(surplus, low, float(np.log(most)), xtol=_NEAR, maxiter=_TRIALS, disp=False)
    return float(np.exp(best)), tried[best].lam


def network_loss(head: Head, features: Floats, labels: Ints) -> float:
    """Return the network's own mean cross-entropy on its training set, by its last layer."""
    total = 0.0
    for start in range(0, len(labels), _BLOCK):
        rows = slice(start, start + _BLOCK)
        logits = head_logits(head, torch.from_numpy(np.array(features[rows]))).double()
        y = torch.as_tensor(labels[rows])
        total += float(torch.nn.functional.cross_entropy(logits, y, reduction="sum"))
    return total / len(labels)


def extended(features: Floats, constant: float) -> Floats:
    """Return features (N, D) with a column of the constant, where there is one."""
    if not constant:
        return features
    return np.concatenate([features, np.full((len(features), 1), constant, features.dtype)], axis=1)
