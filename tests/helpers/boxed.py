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
from whence.svm.pairs import Kept, Pairs
from whence.svm.passes import Rows
from whence.svm.problem import Losses, Moving, Problem, Seen


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

    def copies(self) -> list[Ints]:
        keys = np.unique(self.wanted, axis=0, return_inverse=True)[1]
        return find_copies(self.features, self.squared_norms, keys)

    @property
    def trace(self) -> int:
        return self.n_outputs

    def begin(self, lam: csr_array) -> tuple[Kept, float]:
        low, high = self.box
        alpha = np.clip(-lam.toarray(), np.where(low < 0, -np.inf, 0), np.where(high > 0, np.inf, 0))
        N, K = lam.shape
        kept = Kept(K * np.arange(N + 1), np.tile(np.arange(K), N), alpha.ravel())
        return kept, float(np.abs(alpha).max())

    def dense(self, kept: Kept) -> Doubles:
        """α (N, K)."""
        return csr_array((kept.alpha, kept.outputs, kept.ptr), shape=self.wanted.shape).toarray()

    def complete(self, kept: Kept) -> None:
        low, high = self.box
        rows = np.repeat(np.arange(len(kept)), np.diff(kept.ptr))
        np.clip(kept.alpha, low[rows, kept.outputs], high[rows, kept.outputs], out=kept.alpha)

    def linear(self, kept: Kept) -> tuple[float, float]:
        return -float(np.vdot(self.wanted, self.dense(kept))), float(np.abs(kept.alpha).max())

    def coefficients(self, kept: Kept) -> Doubles:
        return -kept.alpha

    def sparse(self, kept: Kept) -> csr_array:
        return csr_array(-np.clip(self.dense(kept), *self.box))

    def scaled_losses(self, traces: Floats, rows: slice, scale: float) -> tuple[float, float]:
        loss, slope, _ = self.loss(scale * traces[rows].astype(np.float64), self.wanted[rows])
        return loss, slope / scale if scale else 0.0

    def free(self, alpha: Doubles, rows: Ints) -> npt.NDArray[np.bool_]:
        low, high = self.box
        return (alpha > low[rows]) & (alpha < high[rows])

    def look(
        self, scores: Floats, rows: Ints, kept: Kept, slack: float, most: int, traces: Floats, near: Floats
    ) -> Seen:
        alpha, (n, K) = self.dense(kept)[rows], scores.shape
        loss, slope, margin = self.loss(scores.astype(np.float64), self.wanted[rows])
        traces[rows] = scores
        g, free = scores - self.wanted[rows], self.free(alpha, rows)
        # At the lower end g must not be above 0.
        apart = np.where(free, -np.inf, np.where(alpha <= self.box[0][rows], -g, g))
        near[rows] = apart.min(1)
        moving = np.where((apart < slack).any(1), K, 0).astype(np.int32)
        outputs = np.tile(np.arange(K), n)
        return Seen(
            Losses(loss, slope, margin),
            int(free.any(1).sum()),
            int(free.sum()),
            np.full(n, K),
            outputs,
            moving,
        )

    def descend(self, moving: Moving, kept: Kept, W: Floats, epochs: int, slack: float, rng: Any) -> int:
        low, high = self.box
        for _ in range(min(epochs, 20)):
            for i, start in zip(moving.rows, moving.starts, strict=True):
                f = np.append(self.features[i], [self.bias] if self.bias else [])
                for c in range(self.n_outputs):
                    step = (W[c] @ f - self.wanted[i, c]) / max(self.squared_norms[i], 1e-300)
                    before = kept.alpha[start + c]  # all outputs may move
                    kept.alpha[start + c] = min(max(before + step, low[i, c]), high[i, c])
                    W[c] -= (kept.alpha[start + c] - before) * f
        return len(moving.rows) * min(epochs, 20)

    def dual(self, alpha: Doubles, pairs: Pairs) -> Doubles:
        return -alpha

    def gradient(self, scores: Doubles, pairs: Pairs) -> Doubles:
        return scores - self.wanted[pairs.rows].ravel()

    def rise(self, before: Doubles, after: Doubles, pairs: Pairs) -> float:
        return float(np.vdot(self.wanted[pairs.rows], before - after))

    def typical(self, alpha: Doubles, pairs: Pairs) -> float:
        sizes = np.abs(alpha[alpha != 0])
        return float(sizes.mean()) if len(sizes) else self.C

    def ends(self, pairs: Pairs) -> tuple[Doubles, Doubles]:
        """The box of some pairs, (P,) each."""
        low, high = self.box
        return low[pairs.rows].ravel(), high[pairs.rows].ravel()

    def project(
        self, centre: Doubles, sigma: float, g: Doubles, t: float, dg: Doubles, pairs: Pairs, out: Doubles
    ) -> None:
        np.clip(centre + sigma * (g + t * dg), *self.ends(pairs), out=out)

    def slackness(self, alpha: Doubles, g: Doubles, pairs: Pairs) -> float:
        low, high = self.ends(pairs)
        return float((np.maximum(low * g, high * g) - alpha * g).sum())

    def system(self, rows: Rows) -> System:
        return System(self, rows)

    def step_cost(self, free: int, pairs: int) -> float:
        D = self.shape[1]
        return float(pairs * D**2 + self.n_outputs * D**3)


class System:
    """(I + σ Σ_i f_i f_iᵀ) x_c = r_c for every output, over the samples that are inside their box there."""

    def __init__(self, problem: Boxed, rows: Rows) -> None:
        self.problem, self.rows = problem, rows

    def solve(self, a: Doubles, sigma: float, residual: Doubles, accuracy: float) -> Doubles:
        rows = self.rows.pairs.rows
        found = []
        for c, free in enumerate(self.problem.free(a.reshape(len(rows), -1), rows).T):
            F = self.rows.block(rows[free])
            found.append(np.linalg.solve(np.eye(F.shape[1]) + sigma * F.T @ F, residual[c]))
        return np.array(found)
