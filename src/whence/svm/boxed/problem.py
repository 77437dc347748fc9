"""Problems with box constraints on λ: regression, independent labels, one class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Floats, Ints, Mask
from whence.core.checks import check_count, check_positive, real_array
from whence.errors import InvalidInputError
from whence.svm import inputs
from whence.svm.boxed import kernels
from whence.svm.crammer_singer.hessian import cholesky_solve
from whence.svm.likeness import LABELS, NUMBERS, correlation, explained, rank_correlation
from whence.svm.pairs import Kept, Pairs, small_int
from whence.svm.passes import Rows
from whence.svm.problem import Losses, Moving, Problem, Seen, joined

_DIGITS = 2.0**-44  # relative to the largest λ, or to C: nearer values count as being at an end


@dataclass(frozen=True)
class Boxed(Problem):
    """A problem that is separable over outputs, in the coefficients λ that attributions use.

    Dual: max_λ Σ_ic (t_ic λ_ic − ε|λ_ic|) − ½‖Σ_i λ_i f_iᵀ‖², with |λ_ic| ≤ C and, where ``one_sided``,
    t_ic λ_ic ≥ 0. Primal: min_W ½‖W‖² + C Σ_ic loss(w_c·f_i), with the loss max(0, |t − s| − ε), or where
    ``one_sided`` max(0, sign(t)·(t − s)). α = −λ. A case says what its targets are, and
    ``compare``.

    Attributes
    ----------
    targets : (N, K) float64, t; not 0 where ``one_sided``
    epsilon : half the width of the tube in which an error costs nothing, 0 where ``one_sided``
    """

    one_sided: ClassVar[bool]
    """Whether only falling short of the target costs, so that λ has the target's sign."""

    targets: Doubles
    epsilon: float

    @classmethod
    def of(cls, features: npt.ArrayLike, targets: Doubles, C: float, bias: float, *more: Any) -> Self:
        """Make the problem for checked features (N, d) and targets t (N, K)."""
        X = inputs.check_features(features)
        sizes = inputs.check_sizes(X, C, bias)
        return cls(X, targets.shape[1], *sizes, np.ascontiguousarray(targets), *more)

    @property
    def strata(self) -> Ints:
        """One group: regression needs no strata."""
        return np.zeros(len(self.targets), np.int64)

    def copies(self) -> list[Ints]:
        """Groups of samples with equal features and targets."""
        kinds = np.unique(self.targets, axis=0, return_inverse=True)[1]
        return inputs.find_copies(self.features, self.squared_norms, kinds.reshape(-1))

    # Values

    @property
    def trace(self) -> int:
        """Store all scores."""
        return self.n_outputs

    def begin(self, lam: csr_array) -> tuple[Kept, float]:
        """Return α = −λ where λ has the target's sign, if it must; also return the largest |λ|."""
        outputs = lam.indices.astype(small_int(self.n_outputs))
        kept = Kept(lam.indptr.astype(np.int64), outputs, -lam.data.astype(np.float64))
        self.complete(kept, np.inf)
        return kept, self.linear(kept)[1]

    def complete(self, kept: Kept, C: float | None = None) -> None:
        """Clip every α to its interval."""
        end, t = self.C if C is None else C, self._targets(kept.pairs)
        low, high = (np.where(self.one_sided & (sign * t < 0.0), 0.0, end) for sign in (-1.0, 1.0))
        np.clip(kept.alpha, -high, low, out=kept.alpha)

    def linear(self, kept: Kept) -> tuple[float, float]:
        """Return Σ_ic t_ic λ_ic − ε|λ_ic| and the largest |λ_ic|."""
        total, most = kernels.linear(kept.ptr, kept.outputs, kept.alpha, self.targets, self.epsilon)
        return float(total), float(most)

    def coefficients(self, kept: Kept) -> Doubles:
        """Return λ = −α."""
        return -kept.alpha

    def sparse(self, kept: Kept) -> csr_array:
        """Return λ clipped to its intervals, exactly at an end if it is within rounding."""
        lam = -kept.alpha
        size = np.abs(lam)
        lam[size <= _DIGITS * size.max(initial=0.0)] = 0.0
        bound = size >= self.C * (1.0 - _DIGITS)
        lam[bound] = np.copysign(self.C, lam[bound])
        shape = len(kept), self.n_outputs
        sparse = csr_array((lam, kept.outputs.astype(np.int32), kept.ptr.copy()), shape=shape)
        sparse.eliminate_zeros()
        sparse.sort_indices()
        return sparse

    def scaled_losses(self, traces: Floats, rows: slice, scale: float) -> tuple[float, float]:
        """Return Σ loss and its slope, for scores times a scale."""
        sums: tuple[float, float] = kernels.scaled_loss(
            traces[rows], self.targets[rows], self.epsilon, self.one_sided, scale
        )
        return sums

    # Moves of single samples

    def look(
        self, scores: Floats, rows: Ints, kept: Kept, slack: float, most: int, traces: Floats, near: Floats
    ) -> Seen:
        """List the outputs with nonzero λ, and all within the slack of moving."""
        counts, moving = np.empty((2, len(rows)), np.int32)
        listed = np.empty(scores.size, kept.outputs.dtype)
        *losses, free, pairs, used = kernels.look(
            scores, rows, self.targets, kept.ptr, kept.outputs, kept.alpha, self.epsilon, self.one_sided,
            self.C, slack, traces, near, counts, moving, listed,
        )  # fmt: skip
        return Seen(Losses(*losses), free, pairs, counts, listed[:used].copy(), moving)

    def descend(self, moving: Moving, kept: Kept, W: Floats, epochs: int, slack: float, rng: Any) -> int:
        """Apply soft thresholds and clipping to one λ_ic after another."""
        visits: int = kernels.descend(
            self.features, self.targets, self.squared_norms, *moving, kept.outputs, kept.alpha, W,
            self.epsilon, self.one_sided, self.C, self.bias, epochs, slack, rng,
        )  # fmt: skip
        return visits

    def free(self, alpha: Doubles) -> Mask:
        """Return which α (P,) are strictly between the ends −C, 0 and C."""
        between: Mask = (alpha != 0.0) & (np.abs(alpha) < self.C)
        return between

    # Newton steps

    def _targets(self, pairs: Pairs) -> Doubles:
        """Return the targets (P,) of some pairs."""
        targets: Doubles = self.targets[pairs.spread(pairs.rows), pairs.outputs]
        return targets

    def dual(self, alpha: Doubles, pairs: Pairs) -> Doubles:
        """Return λ = −α."""
        return -alpha

    def gradient(self, scores: Doubles, pairs: Pairs) -> Doubles:
        """Return g_ic = w_c·f_i − t_ic without the ε term, which is in ``project`` and ``slackness``."""
        scores -= self._targets(pairs)
        return scores

    def rise(self, before: Doubles, after: Doubles, pairs: Pairs) -> float:
        """Return the change of Σ_ic t_ic λ_ic − ε|λ_ic|."""
        change = np.vdot(self._targets(pairs), before - after)
        return float(change - self.epsilon * (np.abs(after) - np.abs(before)).sum())

    def typical(self, alpha: Doubles, pairs: Pairs) -> float:
        """Return the mean size of the nonzero λ_ic."""
        sizes = np.abs(alpha[alpha != 0.0])
        return float(sizes.mean()) if len(sizes) else self.C

    def project(
        self, centre: Doubles, sigma: float, g: Doubles, t: float, dg: Doubles, pairs: Pairs, out: Doubles
    ) -> None:
        """Apply soft thresholds σ·ε to centre + σ (g + t·dg), clipped."""
        kernels.project(
            centre, sigma, g, t, dg, self.targets, *pairs, self.epsilon, self.one_sided, self.C, out
        )

    def slackness(self, alpha: Doubles, g: Doubles, pairs: Pairs) -> float:
        """Return how far g·α − ε|α| is below its maximum."""
        return float(kernels.slackness(alpha, g, self.targets, *pairs, self.epsilon, self.one_sided, self.C))

    def system(self, rows: Rows) -> OutputSystem:
        """Return the systems, one per output."""
        return OutputSystem(self, rows)

    def step_cost(self, free: int, pairs: int) -> float:
        """Return the operations of one Newton step, with equally many free samples per output."""
        K, D = self.shape
        return K * min(solve_cost(pairs / K, D))


def solve_cost(n_free: float, D: int) -> tuple[float, float]:
    """Return the operations of solving for one output, by products of free samples and by features."""
    return n_free**2 * D + n_free**3 / 3, n_free * D**2 + D**3 / 3


class OutputSystem:
    """(I + σ Σ_i f_i f_iᵀ) x_c = r_c for every output c, over the samples whose λ_ic is between all ends."""

    def __init__(self, problem: Boxed, rows: Rows) -> None:
        self.problem, self.rows = problem, rows

    def solve(self, a: Doubles, sigma: float, residual: Doubles, accuracy: float) -> Doubles:
        """Solve for a residual (U, D) at α (P,)."""
        pairs, free = self.rows.pairs, self.problem.free(a)
        rows, place = pairs.spread(pairs.rows)[free], self.rows.place[free]
        solution = np.empty_like(residual)

        def one(c: int) -> None:
            solution[c] = _solve(self.rows.block(rows[place == c]), sigma, residual[c])

        self.rows.parallel(one, range(len(residual)))
        return solution


def _solve(F: Doubles, sigma: float, r: Doubles) -> Doubles:
    """(I + σ FᵀF)⁻¹ r, by whichever matrix is cheaper."""
    n, D = F.shape
    if n == 0:
        return r
    by_products, by_features = solve_cost(n, D)
    # If σ is too large for float64 factorisation, a larger diagonal makes a shorter step.
    for more in (0.0, 1e-12, 1e-8):
        try:
            if by_products < by_features:
                gram = F @ F.T
                gram[np.diag_indices(n)] += 1.0 / sigma + more * np.trace(gram) / n
                return r - F.T @ cholesky_solve(gram, F @ r)
            H = sigma * (F.T @ F)
            H[np.diag_indices(D)] += 1.0 + more * np.trace(H) / D
            return cholesky_solve(H, r)
        except LinAlgError:
            continue
    return r


def check_rows(name: str, values: npt.ArrayLike, n: int, n_outputs: int | None) -> Doubles:
    """Return finite numbers (N,) or (N, K) as float64 (N, K), one row per sample, or raise."""
    array = real_array(name, values)
    K = array.shape[1] if array.ndim == 2 else 1
    if n_outputs is not None:
        K = check_count("n_outputs", n_outputs, 1, inputs.MOST_OUTPUTS)
    if array.shape != (n, K) and not (K == 1 and array.shape == (n,)):
        shapes = f"({n},) or ({n}, 1)" if K == 1 else f"({n}, {K})"
        raise InvalidInputError(f"'{name}' must have shape {shapes}, one row per sample. Got {array.shape}.")
    rows = array.reshape(n, K).astype(np.float64)
    wrong = ~np.isfinite(rows).all(axis=1)
    if wrong.any():
        i = int(wrong.argmax())
        raise InvalidInputError(f"'{name}' must be finite. Got {array[i]} at row {i}.")
    return rows


@dataclass(frozen=True)
class Hinges(Boxed):
    """A binary machine per label: min_W ½‖W‖² + C Σ_ic max(0, 1 − t_ic w_c·f_i).

    t is 1 where the label is on and −1 where it is off. λ_ic has its sign: samples with the label support
    it, those without it contradict it.
    """

    one_sided: ClassVar[bool] = True
    measures: ClassVar[tuple[str, str]] = LABELS
    judges: ClassVar[tuple[str, str]] = "the model's labels", "the labels"

    @classmethod
    def make(
        cls, features: npt.ArrayLike, targets: npt.ArrayLike, n_outputs: int | None, C: float, bias: float
    ) -> Self:
        """Check features (N, d) and labels (N,) or (N, K) of zeros and ones."""
        y = check_rows("labels", targets, len(np.asarray(features)), n_outputs)
        wrong = (y != 0.0) & (y != 1.0)
        if wrong.any():
            i, c = np.argwhere(wrong)[0].tolist()
            raise InvalidInputError(f"'labels' must be zeros and ones. Got {y[i, c]:g} at row {i}.")
        return cls.of(features, 2.0 * y - 1.0, C, bias, 0.0)

    @property
    def strata(self) -> Ints:
        """The rarest label that is on, counted from 1; 0 if none is."""
        on = self.targets > 0
        rarity = np.where(on, 1.0 / np.maximum(on.sum(axis=0), 1), 0.0)
        return np.where(on.any(axis=1), rarity.argmax(axis=1) + 1, 0)

    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        """Return the share of labels that agree, and the correlation of their logits."""
        scores, theirs = joined(parts)
        on = self.targets[rows] > 0 if theirs is None else theirs > 0
        agreement = float(((scores > 0) == on).mean())
        return agreement, None if theirs is None else correlation(scores, theirs)


@dataclass(frozen=True)
class OneClassProblem(Boxed):
    """A one-class machine: min_w ½‖w‖² + C Σ_i max(0, 1 − w·f_i).

    It is the ν-machine of Schölkopf with its threshold ρ scaled to 1: λ = α/ρ, C = 1/(νNρ), and
    ν = Σ_i λ_i/(C·N), an upper bound of the share of samples with w·f_i < 1. It has no bias.
    """

    one_sided: ClassVar[bool] = True

    @classmethod
    def make(
        cls, features: npt.ArrayLike, targets: npt.ArrayLike, n_outputs: int | None, C: float, bias: float
    ) -> Self:
        """Check features (N, d); only the number of targets matters."""
        return cls.of(features, np.ones((len(np.asarray(targets)), 1)), C, False, 0.0)

    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        """Return the share of samples that are inside."""
        scores, _ = joined(parts)
        return float((scores >= 1.0).mean()), None


@dataclass(frozen=True)
class EpsilonInsensitive(Boxed):
    """Support vector regression of one or several targets, each with its own scale.

    With t = (y − centre)/scale: min_W ½‖W‖² + C Σ_ic max(0, |t_ic − w_c·f_i| − ε), so that C and ε mean the
    same for targets in any units. λ and W are given times the scale, so that centre + W f is the prediction
    of y. A sample inside the tube has λ = 0; above it, λ > 0.

    Attributes
    ----------
    centre, scale : (K,) of the targets y
    """

    one_sided: ClassVar[bool] = False
    measures: ClassVar[tuple[str, str]] = NUMBERS
    judges: ClassVar[tuple[str, str]] = "the model's outputs", "the targets"
    margin: ClassVar[str] = "one standard error, or 0.01,"

    centre: Doubles
    scale: Doubles

    @property
    def units(self) -> Doubles:
        """The scale."""
        return self.scale

    @property
    def tube(self) -> float:
        """ε."""
        return self.epsilon

    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        """Return R² of the predictions, at least 0, and their rank correlation, means over outputs."""
        scores, theirs = joined(parts)
        predicted = scores + self.centre
        if theirs is None:
            return explained(predicted, self.targets[rows] * self.scale + self.centre), None
        return explained(predicted, theirs), rank_correlation(predicted, theirs)

    @classmethod
    def error(cls, agreement: float, n: int) -> float:
        """Return one standard error of R² on n rows, at least 0.01."""
        return max(0.01, 2.0 * float(np.sqrt(agreement / n)) * (1.0 - agreement))


@dataclass(frozen=True)
class Tube:
    """A factory of regressions with a given tube, for targets with given centres and scales.

    Attributes
    ----------
    epsilon : half the width of the tube, in scales of the targets
    centre, scale : of each output's targets; none leaves them raw
    """

    epsilon: float = 0.1
    centre: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    def make(
        self, features: npt.ArrayLike, targets: npt.ArrayLike, n_outputs: int | None, C: float, bias: float
    ) -> EpsilonInsensitive:
        """Check features (N, d) and targets (N,) or (N, K), finite numbers."""
        y = check_rows("targets", targets, len(np.asarray(features)), n_outputs)
        K = y.shape[1]
        epsilon = 0.0 if self.epsilon == 0 else check_positive("epsilon", self.epsilon, ", or 0")
        centre, scale = np.array(self.centre or [0.0] * K), np.array(self.scale or [1.0] * K)
        if centre.shape != (K,) or scale.shape != (K,):
            raise InvalidInputError(
                f"'centre' and 'scale' must be {K} numbers, one per output. Got {centre.size} and "
                f"{scale.size}."
            )
        return EpsilonInsensitive.of(features, (y - centre) / scale, C, bias, epsilon, centre, scale)
