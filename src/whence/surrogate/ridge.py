"""The surrogate of numbers: ridge regression in closed form, and how its weights answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from whence.core.arrays import Array, Doubles, Floats
from whence.engine import limited
from whence.features import taken
from whence.model.heads import Head
from whence.surrogate.agreement import head_logits
from whence.surrogate.softmax import KAPPA, LEAST, extended, suited
from whence.surrogate.solving import SurrogateSolution, SurrogateSolver, for_all
from whence.svm.inputs import check_range, squared_norms


class RidgeSolution(NamedTuple):
    """λ (N, K) and W (K, D) of ½‖W‖² + C/2 Σ_i ‖t_i − W f_i‖², the mean loss, the relative duality gap."""

    lam: Doubles
    weight: Doubles
    loss: float
    gap: float


@dataclass(frozen=True)
class RidgeSolver(SurrogateSolver):
    """Solves ½‖W‖² + C/2 Σ_i ‖t_i − W f_i‖², t the targets less their mean and in units of their deviation.

    λ_i = C (t_i − W f_i) and W are given times the deviation, as those of a support vector regression.
    """

    loss: ClassVar[str] = "squares"

    def of_features(
        self, features: Floats, labels: Array, head: Head | None, C: float | Literal["auto"]
    ) -> SurrogateSolution:
        """Choose C where that is asked for, and solve on the samples whose label is known."""
        some = self.task.known(labels)
        X, t = taken(features, some), standard(self.task, labels[some])
        constant = self._constant(X)
        norms = squared_norms(X) + constant**2
        F = extended(X, constant).astype(np.float64)
        if C == "auto":
            total = float(norms.sum()) or 1.0
            known = None if head is None else _network_loss(self.task, head, X, t)
            C, _ = suited(_trial(F, t), KAPPA / total, LEAST / total, known)
        check_range(C, norms)
        return self._found(F, t, C, constant, some)

    def again(
        self, features: Floats, labels: Array, lam: csr_array, C: float, constant: float | None
    ) -> SurrogateSolution:
        """Solve on the samples whose label is known; a closed form needs no start."""
        some = self.task.known(labels)
        X = taken(features, some)
        constant = self._constant(X) if constant is None else constant
        F = extended(X, constant).astype(np.float64)
        return self._found(F, standard(self.task, labels[some]), C, constant, some)

    def _found(self, F: Doubles, t: Doubles, C: float, constant: float, some: Array) -> SurrogateSolution:
        with limited(self.options.n_threads):
            found = solve_ridge(F, t, C)
        scale = np.array(_parameters(self.task)[1])
        weight = found.weight * scale[:, None]
        if constant:
            weight[:, -1] *= constant  # as it is added to outputs
        lam = for_all(csr_array(found.lam * scale), some)
        return SurrogateSolution(lam, weight, C, found.gap, None, constant)


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


def standard(task: Any, labels: Array) -> Doubles:
    """Return targets (N, K) less their mean and in units of their deviation."""
    centre, scale = _parameters(task)
    rows = labels.reshape(len(labels), len(centre)).astype(np.float64)
    found: Doubles = (rows - np.array(centre)) / np.array(scale)
    return found


def _parameters(task: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return task.centre, task.scale  # fields of every task whose loss is "squared"


def _trial(F: Doubles, t: Doubles) -> Callable[[float, Doubles | None], RidgeSolution]:
    return lambda C, start: solve_ridge(F, t, C)


def _network_loss(task: Any, head: Head, features: Floats, t: Doubles) -> float:
    """Return the network's own mean loss on its training set, by its last layer."""
    outputs = head_logits(head, torch.from_numpy(np.array(features))).double().cpu().numpy()
    rest = standard(task, outputs) - t
    return 0.5 * float(np.vdot(rest, rest)) / len(t)
