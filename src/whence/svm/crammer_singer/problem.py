"""The Crammer–Singer problem: multiclass classification by the margin to the best other class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Floats, Ints
from whence.svm import inputs, loops
from whence.svm.crammer_singer import kernels
from whence.svm.crammer_singer.hessian import NewtonSystem, room, step_cost
from whence.svm.likeness import HeadLayer, Judge, Likeness, VocabularyJudge
from whence.svm.pairs import Kept, Pairs, pointers, small_int
from whence.svm.passes import Rows
from whence.svm.problem import Losses, Moving, Problem, Seen


@dataclass(frozen=True)
class CrammerSinger(Problem):
    """A Crammer–Singer problem in the coefficients λ that attributions use.

    Primal: min_W ½‖W‖² + C Σ_i max_c (1 − δ_{c,y_i} − w_{y_i}·f_i + w_c·f_i).
    Dual: max_λ Σ_i λ_{i,y_i} − ½‖Σ_i λ_i f_iᵀ‖², with Σ_c λ_ic = 0 and λ_ic ≤ C·δ_{c,y_i}.
    α_i = C·e_{y_i} − λ_i is on the simplex {α ≥ 0, Σ_c α_c = C}.

    Attributes
    ----------
    labels : (N,) int64 in [0, n_outputs)
    multiplicity : how many classes the last one stands for, which all have its λ_ic and w_c: all sums over
        classes count it so often
    """

    labels: Ints
    multiplicity: int = 1

    @classmethod
    def make(
        cls, features: npt.ArrayLike, targets: npt.ArrayLike, n_outputs: int | None, C: float, bias: float
    ) -> Self:
        """Check features (N, d) and labels (N,); K is read off the labels where it is None.

        float32 and float64 rows are used in place; other layouts and float16 are copied once.
        """
        X = inputs.check_features(features)
        y = inputs.check_labels(targets, len(X))
        K = inputs.check_n_classes(n_outputs, y)
        return cls(X, K, *inputs.check_sizes(X, C, bias), y)

    def merged(self) -> tuple[Self, Ints]:
        """Return the problem with one class for all classes without samples, and each class's index in it.

        The primal is strictly convex and stays the same when two such classes change places, so the optimal W
        has the same row for all of them, and their mean λ is as good as any.
        """
        present = np.bincount(self.labels, minlength=self.n_outputs) > 0
        n = int(present.sum())
        n_absent = self.n_outputs - n
        if n_absent < 2:
            return self, np.arange(self.n_outputs)
        place = np.where(present, np.cumsum(present) - 1, n)
        return replace(self, labels=place[self.labels], n_outputs=n + 1, multiplicity=n_absent), place

    def copies(self) -> list[Ints]:
        """Groups of samples with equal features and label."""
        return inputs.find_copies(self.features, self.squared_norms, self.labels)

    @property
    def strata(self) -> Ints:
        """The labels."""
        return self.labels

    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        """Return the share of rows with the same predicted class, and the similarity of the logits."""
        labels, same, start, likeness = self.labels[rows], 0, 0, Likeness()
        for scores, theirs in parts:
            stop = start + len(scores)
            classes = labels[start:stop] if theirs is None else theirs.argmax(axis=1)
            same += int((scores.argmax(axis=1) == classes).sum())
            if theirs is not None:
                likeness.add(scores, theirs)
            start = stop
        return same / start, likeness.value

    def judge(self, rows: Ints, head: HeadLayer | None, before: Floats | None = None) -> Judge:
        """Return a comparison of any W with the head; classes without samples do not need all logits.

        Each W must be a solution on some of these samples, as in ``choose_C``.
        """
        present = np.bincount(self.labels, minlength=self.n_outputs) > 0
        if self.n_outputs - int(present.sum()) < 2:
            return super().judge(rows, head, before)
        read = self.features[rows]
        theirs = read if before is None else before[rows]
        return VocabularyJudge(read, self.labels[rows], present, head, theirs)

    # Values

    @property
    def times(self) -> Doubles:
        """The number of merged classes of each class, (K,)."""
        return np.append(np.ones(self.n_outputs - 1), self.multiplicity)

    def inner(self, A: Floats, B: Floats, outputs: Ints | None = None) -> float:
        """Return Σ_c A_c·B_c of two arrays like W, (K, D), or like its rows of some classes."""
        total = super().inner(A, B)
        if self.multiplicity > 1 and (outputs is None or outputs[-1] == self.n_outputs - 1):
            total += (self.multiplicity - 1) * float(loops.inner(A[-1:], B[-1:]))
        return total

    @property
    def trace(self) -> int:
        """One value per sample: the margin."""
        return 1

    def begin(self, lam: csr_array) -> tuple[Kept, float]:
        """Return α_ic = −λ_ic for positive values of other classes, and the largest λ_{i,y_i}."""
        N = len(self.labels)
        rows = np.repeat(np.arange(N), np.diff(lam.indptr))
        rival = (lam.indices != self.labels[rows]) & (lam.data < 0.0)
        ptr = pointers(1 + np.bincount(rows[rival], minlength=N))
        kept = Kept(ptr, np.empty(ptr[-1], small_int(self.n_outputs)), np.zeros(ptr[-1]))
        others = np.ones(ptr[-1], bool)
        others[ptr[:-1]] = False
        kept.outputs[ptr[:-1]], kept.outputs[others] = self.labels, lam.indices[rival]
        kept.alpha[others] = -lam.data[rival]
        return kept, self.linear(kept)[1]

    def complete(self, kept: Kept) -> None:
        """Set α of the label to the remainder of C."""
        kernels.complete(kept.ptr, kept.outputs, kept.alpha, self.times, self.C)

    def linear(self, kept: Kept) -> tuple[float, float]:
        """Return Σ_i λ_{i,y_i} and the largest λ_{i,y_i}."""
        total, most = kernels.total_own(kept.ptr, kept.outputs, kept.alpha, self.times)
        return float(total), float(most)

    def coefficients(self, kept: Kept) -> Doubles:
        """Return λ_ic = −α_ic for other classes, and for the label what makes the sum 0."""
        lam = np.empty(len(kept.alpha))
        kernels.coefficients(kept.ptr, kept.outputs, kept.alpha, self.times, lam)
        return lam

    def sparse(self, kept: Kept) -> csr_array:
        """Return λ on a grid, fine enough to lose nothing and coarse enough for exact zero row sums."""
        grid = 2.0 ** (np.floor(np.log2(self.linear(kept)[1] or self.C)) - 44)
        indptr = np.zeros(len(kept) + 1, np.int64)
        fixed = kept.ptr, kept.outputs, kept.alpha, self.times, self.C, grid, indptr
        size = kernels.quantise(*fixed, np.empty(0, np.int32), np.empty(0), False)
        indices, data = np.empty(size, np.int32), np.empty(size)
        kernels.quantise(*fixed, indices, data, True)
        return csr_array((data, indices, indptr), shape=(len(kept), self.n_outputs))

    def scaled_losses(self, traces: Floats, rows: slice, scale: float) -> tuple[float, float]:
        """Return Σ loss and its slope, by the margins s_y − s_c times a scale."""
        sums: tuple[float, float] = kernels.scaled_loss(traces[rows, 0], scale)
        return sums

    # Moves of single samples

    def look(
        self, scores: Floats, rows: Ints, kept: Kept, slack: float, most: int, traces: Floats, near: Floats
    ) -> Seen:
        """List the classes with α_c > 0, and those whose g is within the slack of theirs."""
        most = min(most, self.n_outputs)
        room = int((kept.ptr[rows + 1] - kept.ptr[rows]).sum()) + most * len(rows)
        counts, moving = np.empty((2, len(rows)), np.int32)
        listed = np.empty(room, kept.outputs.dtype)
        loss, slope, margin, free, pairs, used = kernels.look(
            scores, rows, kept.ptr, kept.outputs, kept.alpha, slack, most, traces[:, 0], near, counts,
            moving, listed,
        )  # fmt: skip
        return Seen(Losses(loss, slope, margin), free, pairs, counts, listed[:used].copy(), moving)

    def descend(self, moving: Moving, kept: Kept, W: Floats, epochs: int, slack: float, rng: Any) -> int:
        """Set α_i to the projection of α_i + g_i/‖f_i‖² onto its simplex, for one sample after another."""
        visits: int = kernels.descend(
            self.features, self.labels, self.squared_norms, *moving, kept.outputs, kept.alpha, W, self.times,
            self.C, self.bias, epochs, slack, rng,
        )  # fmt: skip
        return visits

    # Newton steps

    @staticmethod
    def _own(values: Doubles, pairs: Pairs) -> Doubles:
        """The values (P,) of samples with their own classes, which come first, (n,)."""
        own: Doubles = values[pairs.ptr[:-1]]
        return own

    def dual(self, alpha: Doubles, pairs: Pairs) -> Doubles:
        """Return λ_i = C·e_{y_i} − α_i."""
        lam = -alpha
        lam[pairs.ptr[:-1]] += self.C
        return lam

    def gradient(self, scores: Doubles, pairs: Pairs) -> Doubles:
        """Return g_ic = w_c·f_i + [c ≠ y_i]."""
        own = self._own(scores, pairs)
        scores += 1.0
        scores[pairs.ptr[:-1]] = own
        return scores

    def rise(self, before: Doubles, after: Doubles, pairs: Pairs) -> float:
        """Return the change of Σ_i λ_{i,y_i}."""
        return float((self._own(before, pairs) - self._own(after, pairs)).sum())

    def typical(self, alpha: Doubles, pairs: Pairs) -> float:
        """Return the mean λ_{i,y_i} of support vectors."""
        own = self.C - self._own(alpha, pairs)
        return float(own[own > 0].mean() if (own > 0).any() else self.C)

    def project(
        self, centre: Doubles, sigma: float, g: Doubles, t: float, dg: Doubles, pairs: Pairs, out: Doubles
    ) -> None:
        """Project centre + σ (g + t·dg) onto the simplex, row by row."""
        kernels.project_rows(centre, sigma, g, t, dg, pairs.ptr, pairs.outputs, self.times, self.C, out)

    def inner_pairs(self, A: Doubles, B: Doubles, pairs: Pairs) -> float:
        """Return Σ_ic A_ic B_ic of two arrays like α, (P,)."""
        if self.multiplicity == 1:
            return super().inner_pairs(A, B, pairs)
        return float(np.vdot(A * self.times[pairs.outputs], B))

    def slackness(self, alpha: Doubles, g: Doubles, pairs: Pairs) -> float:
        """Return how far α is below the maximum on the simplex."""
        best = float(np.maximum.reduceat(g, pairs.ptr[:-1]).sum())
        return self.C * best - self.inner_pairs(alpha, g, pairs)

    def repair(self, alpha: Doubles, pairs: Pairs) -> None:
        """Scale rows to sum to C; rows that rounding left empty, at a huge C, become uniform."""
        alpha[pairs.spread(np.add.reduceat(alpha, pairs.ptr[:-1]) == 0)] = 1.0
        sums = np.add.reduceat(alpha * self.times[pairs.outputs], pairs.ptr[:-1])
        alpha *= pairs.spread(self.C / sums)

    def system(self, rows: Rows) -> NewtonSystem:
        """Return the systems in which P_i projects onto the zero-sum vectors of a sample's classes."""
        return NewtonSystem(rows, self.times[rows.used])

    def step_cost(self, free: int, pairs: int) -> float:
        """Return the operations of one Newton step over the split samples."""
        return step_cost(free, pairs, self.shape, room(self.features))[0]
