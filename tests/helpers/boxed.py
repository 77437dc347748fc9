"""A problem of a user's own: every λ of a sample lies in an interval of its own, whatever the others are."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Floats, Ints
from whence.svm.inputs import check_bias, check_features, find_copies, squared_norms
from whence.svm.passes import Rows
from whence.svm.problem import Listed, Losses, Problem, Selected


@dataclass(frozen=True)
class Boxed(Problem):
    """min_W ½‖W‖² + C Σ_ic loss(w_c·f_i, y_ic), whose dual is max Σ_ic y_ic λ_ic − ½‖W‖² with λ_ic in a box.

    α = −λ, and g = w·f − y. A case says its loss and its box.
    """

    wanted: Doubles  # (N, K)

    @classmethod
    def make(
        cls, features: npt.ArrayLike, targets: npt.ArrayLike, n_outputs: int | None, C: float, bias: float
    ) -> Self:
        X, constant = check_features(features), check_bias(bias)
        y = np.asarray(targets, np.float64).reshape(len(X), -1)
        return cls(X, y.shape[1], C, constant, squared_norms(X) + constant**2, y)

    @property
    @abstractmethod
    def box(self) -> tuple[Doubles, Doubles]:
        """The least and the largest α, (N, K)."""

    @abstractmethod
    def loss(self, scores: Doubles, wanted: Doubles) -> tuple[float, float, float]:
        """Σ of the losses of scores (n, K), its slope in their scale, and their least margin."""

    def merged(self) -> tuple[Self, Ints]:
        return self, np.arange(self.n_outputs)

    def copies(self) -> list[Ints]:
        keys = np.unique(self.wanted, axis=0, return_inverse=True)[1]
        return find_copies(self.features, self.squared_norms, keys)

    def inner(self, A: Floats, B: Floats) -> float:
        return float(np.vdot(A, B))

    def begin(self, lam: csr_array, alpha: Doubles) -> float:
        low, high = self.box
        alpha[:] = np.clip(-lam.toarray(), np.where(low < 0, -np.inf, 0), np.where(high > 0, np.inf, 0))
        return float(np.abs(alpha).max())

    def complete(self, alpha: Doubles) -> None:
        np.clip(alpha, *self.box, out=alpha)

    def linear(self, alpha: Doubles) -> tuple[float, float]:
        return -float(np.vdot(self.wanted, alpha)), float(np.abs(alpha).max())

    def linear_of(self, lam: csr_array) -> float:
        return float(lam.multiply(self.wanted).sum())

    def sparse(self, alpha: Doubles) -> csr_array:
        return csr_array(-np.clip(alpha, *self.box))

    def add_weight(self, alpha: Doubles, rows: slice, out: Doubles) -> None:
        part = Rows(self, np.arange(rows.start, rows.stop), lambda f, items: [f(item) for item in items])
        out += part.combine(-alpha[rows]) if len(part.rows) else 0.0

    def losses(self, scores: Floats, rows: slice, stored: Floats) -> Losses:
        change = float(np.abs(scores - stored[rows]).sum())
        stored[rows] = scores
        loss, slope, margin = self.loss(scores.astype(np.float64), self.wanted[rows])
        return Losses(loss, slope, change, margin)

    def scaled_losses(self, stored: Floats, rows: slice, scale: float) -> tuple[float, float]:
        loss, slope, _ = self.loss(scale * stored[rows].astype(np.float64), self.wanted[rows])
        return loss, slope / scale if scale else 0.0

    def free(self, alpha: Doubles) -> npt.NDArray[np.bool_]:
        low, high = self.box
        return (alpha > low) & (alpha < high)

    def select(self, stored: Floats, alpha: Doubles, slack: float, listed: Listed) -> Selected:
        may = self.apart(stored, alpha) < slack
        rows, free = np.flatnonzero(may.any(1)), self.free(alpha)
        n, used = len(rows), int(may.sum())
        listed.rows[:n], listed.outputs[:used] = rows, np.nonzero(may)[1]
        listed.ptr[: n + 1] = np.r_[0, np.cumsum(may[rows].sum(1))]
        return Selected(n, used, int(free.any(1).sum()), int(free.sum()))

    def descend(
        self, listed: Listed, n: int, W: Floats, alpha: Doubles, epochs: int, slack: float, rng: Any
    ) -> int:
        low, high = self.box
        for _ in range(min(epochs, 20)):
            for o, i in enumerate(listed.rows[:n]):
                f = np.append(self.features[i], [self.bias] if self.bias else [])
                for c in listed.outputs[listed.ptr[o] : listed.ptr[o + 1]]:
                    step = (W[c] @ f - self.wanted[i, c]) / max(self.squared_norms[i], 1e-300)
                    new = min(max(alpha[i, c] + step, low[i, c]), high[i, c])
                    W[c] -= (new - alpha[i, c]) * f
                    alpha[i, c] = new
        return n * min(epochs, 20)

    def apart(self, stored: Floats, alpha: Doubles) -> Doubles:
        """How far each α (N, K) is from moving, in g: at the lower end g must not be above 0."""
        g = stored - self.wanted
        found: Doubles = np.where(alpha <= self.box[0], -g, g)
        return np.where(self.free(alpha), -np.inf, found)

    def distances(self, stored: Floats, alpha: Doubles) -> Doubles:
        return self.apart(stored, alpha).min(1)

    def corner(self, rows: Ints) -> Doubles:
        return np.zeros((len(rows), self.n_outputs))

    def gradient(self, scores: Doubles, rows: Ints) -> Doubles:
        found: Doubles = scores - self.wanted[rows]
        return found

    def rise(self, before: Doubles, after: Doubles, rows: Ints) -> float:
        return float(np.vdot(self.wanted[rows], before - after))

    def typical(self, alpha: Doubles, rows: Ints) -> float:
        sizes = np.abs(alpha[alpha != 0])
        return float(sizes.mean()) if len(sizes) else self.C

    def project(
        self, centre: Doubles, sigma: float, g: Doubles, t: float, dg: Doubles, rows: Ints, out: Doubles
    ) -> None:
        low, high = self.box
        np.clip(centre + sigma * (g + t * dg), low[rows], high[rows], out=out)

    def inner_rows(self, A: Doubles, B: Doubles) -> float:
        return float(np.vdot(A, B))

    def slackness(self, alpha: Doubles, g: Doubles, rows: Ints) -> float:
        low, high = self.box
        return float((np.maximum(low[rows] * g, high[rows] * g) - alpha * g).sum())

    def repair(self, alpha: Doubles, rows: Ints) -> None:
        pass

    def system(self, rows: Rows) -> System:
        return System(self, rows)

    def step_cost(self, selected: Selected) -> float:
        D = self.shape[1]
        return float(selected.pairs * D**2 + self.n_outputs * D**3)


class System:
    """(I + σ Σ_i f_i f_iᵀ) x_c = r_c for every output, over the samples that are inside their box there."""

    def __init__(self, problem: Boxed, rows: Rows) -> None:
        self.problem, self.rows = problem, rows

    def solve(self, a: Doubles, sigma: float, residual: Doubles, accuracy: float) -> Doubles:
        low, high = (end[self.rows.rows] for end in self.problem.box)
        found = []
        for c, free in enumerate(((a > low) & (a < high)).T):
            F = self.rows.block(self.rows.rows[free])
            found.append(np.linalg.solve(np.eye(F.shape[1]) + sigma * F.T @ F, residual[c]))
        return np.array(found)
