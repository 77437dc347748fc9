"""The softmax surrogate: solved, with the C that suits the network, and solved again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NoReturn, Protocol

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.sparse import csr_array
from tqdm.auto import tqdm

from whence.core import progress
from whence.core.arrays import Array, Doubles, Floats, Ints
from whence.core.progress import gap_bar
from whence.engine import limited
from whence.errors import ConvergenceWarning, warn
from whence.features import taken
from whence.model.heads import Head
from whence.surrogate.agreement import head_logits
from whence.surrogate.solving import SurrogateSolution, SurrogateSolver, for_all
from whence.svm.inputs import check_range, squared_norms
from whence.svm.softmax import SoftmaxSolution, solve_softmax, spanned

KAPPA = 10_000.0
"""C·Σ_i‖f_i‖² of the surrogate where C is "auto", and the most that it is."""

LEAST = 1.0
"""The least κ: below it a surrogate says next to nothing."""

_NEAR = 0.02  # relative difference of two losses that are as good as equal
_LOOSE = 1e-3  # gap of surrogates that only tell their loss
_TRIALS = 12
_BLOCK = 4096


class Solved(Protocol):
    """What the choice of C asks of a solution: λ, and the mean loss on the training set."""

    @property
    def lam(self) -> Doubles:
        """Coefficients (N, K)."""

    @property
    def loss(self) -> float:
        """Return the mean loss."""


@dataclass(frozen=True)
class SoftmaxSolver(SurrogateSolver):
    """Solves ½‖W‖² + C Σ_i ℓ(W f_i, y_i), ℓ the cross-entropy, by the parameters of a method."""

    loss: ClassVar[str] = "softmax"

    def of_features(
        self, features: Floats, labels: Array, head: Head | None, C: float | Literal["auto"]
    ) -> SurrogateSolution:
        """Choose C where that is asked for, and solve on the samples whose label is known."""
        some = self.task.known(labels)
        X, y = taken(features, some), labels[some]
        constant = self._constant(X)
        norms = squared_norms(X) + constant**2
        F, start = extended(X, constant), None
        if C == "auto":
            total = float(norms.sum()) or 1.0
            known = None if head is None else network_loss(head, X, y)
            with tqdm(desc="Choosing C", unit="trial", disable=not self.options.show_progress) as bar:
                C, start = suited(self._trial(F, y, bar), KAPPA / total, LEAST / total, known)
        check_range(C, norms)
        return self._found(F, y, C, start, constant, some)

    def again(
        self, features: Floats, labels: Array, lam: csr_array, C: float, constant: float | None
    ) -> SurrogateSolution:
        """Solve on the samples whose label is known, from the λ (N, K) of a similar problem."""
        some = self.task.known(labels)
        X = taken(features, some)
        constant = self._constant(X) if constant is None else constant
        F = extended(X, constant)
        return self._found(F, labels[some], C, lam[some].toarray(), constant, some)

    def _trial(
        self, F: Floats, y: Ints, bar: tqdm[NoReturn]
    ) -> Callable[[float, Doubles | None], SoftmaxSolution]:
        X, K, limit = spanned(F), self.task.n_outputs, self.options.max_seconds

        def solve(C: float, start: Doubles | None) -> SoftmaxSolution:
            def tell(seconds: float, gap: float) -> None:
                progress.tell("Trials of C", int(bar.n), 0)

            with limited(self.options.n_threads):
                found = solve_softmax(X, y, K, C, _LOOSE, tell, start=start, max_seconds=limit)
            bar.update()
            return found

        return solve

    def _found(
        self, F: Floats, y: Ints, C: float, start: Doubles | None, constant: float, some: Array
    ) -> SurrogateSolution:
        K, tol, limit = self.task.n_outputs, self.options.tol, self.options.max_seconds
        with gap_bar(tol, self.options.show_progress) as bar, limited(self.options.n_threads):
            found = solve_softmax(F, y, K, C, tol, bar, start=start, max_seconds=limit)
        if found.gap > tol:
            warn(
                f"The surrogate has a duality gap of {found.gap:.1e}, more than 'tol' = {tol:g}. Allow more "
                "time by max_seconds, or use a smaller C.",
                ConvergenceWarning,
            )
        weight = found.weight.copy()
        if constant:
            weight[:, -1] *= constant  # as it is added to logits
        lam = csr_array(found.lam)
        return SurrogateSolution(for_all(lam, some), weight, C, found.gap, None, constant)


def suited(
    solve: Callable[[float, Doubles | None], Solved], most: float, least: float, known: float | None
) -> tuple[float, Doubles | None]:
    """Choose C, and give λ near its solution: ``most``, or less where that would fit better than the network.

    A surrogate with less loss on the training set than the network stands for one that learned more. The
    loss falls as C grows, so there is one C at which it is the network's.

    Parameters
    ----------
    solve : gives the solution for C, from a λ
    most, least : the largest C, and the smallest
    known : the network's mean loss on the training set; None if it is not known
    """
    found = solve(most, None)
    if known is None or found.loss >= known * (1 - _NEAR):
        return most, found.lam
    tried = {float(np.log(most)): found}

    def surplus(log_C: float) -> float:
        """Return log(loss / known), 0 where that is as good as 0, so that the search ends there."""
        if log_C not in tried:
            near, other = min(tried.items(), key=lambda item: abs(item[0] - log_C))
            tried[log_C] = solve(float(np.exp(log_C)), other.lam * np.exp(log_C - near))
        loss = max(tried[log_C].loss, np.finfo(np.float64).tiny)
        return 0.0 if abs(loss - known) <= _NEAR * known else float(np.log(loss / known))

    low = float(np.log(least))
    if surplus(low) > 0:
        best = brentq(surplus, low, float(np.log(most)), xtol=_NEAR, maxiter=_TRIALS, disp=False)
    else:  # even so it has less loss than the network
        best = low
    return float(np.exp(best)), tried[best].lam


def network_loss(head: Head, features: Floats, labels: Ints) -> float:
    """Return the network's own mean cross-entropy on its training set, by its last layer."""
    total = 0.0
    for start in range(0, len(labels), _BLOCK):
        some = slice(start, start + _BLOCK)
        logits = head_logits(head, torch.from_numpy(np.array(features[some]))).double()
        y = torch.as_tensor(labels[some])
        total += float(torch.nn.functional.cross_entropy(logits, y, reduction="sum"))
    return total / len(labels)


def extended(features: Floats, constant: float) -> Floats:
    """Return features (N, D) with a column of the constant, where there is one."""
    if not constant:
        return features
    return np.concatenate([features, np.full((len(features), 1), constant, features.dtype)], axis=1)
