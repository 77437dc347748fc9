"""The interface of a problem for the solver: its values, its moves, and its parts of a Newton step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Floats, Ints
from whence.svm import loops
from whence.svm.likeness import CLASSES, HeadLayer, Judge, judged
from whence.svm.pairs import Kept, Pairs

if TYPE_CHECKING:
    from whence.svm.passes import Rows


_BLOCK_BYTES = 1 << 20  # bytes of a float64 block, so that it stays in the outer cache
_SCORE_BYTES = 1 << 23  # bytes of a block of scores in float64


class Losses(NamedTuple):
    """The losses of some samples for W."""

    loss: float  # Σ of their losses
    slope: float  # slope of the sum in a scale of W
    margin: float  # the least m for which W/m has no loss on these samples; at most 0 if none is known


class Seen(NamedTuple):
    """The result of scoring n samples: outputs to keep, those with α ≠ 0 and those that may move."""

    losses: Losses
    free: int  # samples between constraints
    pairs: int  # dimensions in which they can move
    counts: npt.NDArray[np.int32]  # (n,) number of outputs to keep per sample
    outputs: npt.NDArray[Any]  # these outputs, sample by sample
    moving: npt.NDArray[np.int32]  # (n,) how many of these may move, the last ones of each sample


class Moving(NamedTuple):
    """Samples that may move: kept.outputs[starts[o]:stops[o]] are the movable outputs of sample rows[o]."""

    rows: npt.NDArray[Any]
    starts: npt.NDArray[Any]
    stops: npt.NDArray[Any]

    @property
    def used(self) -> int:
        """The number of movable outputs of all samples."""
        return int((self.stops - self.starts).sum())


class System(Protocol):
    """The Newton systems of one phase, (I + σ Σ_i P_i ⊗ f_i f_iᵀ) x = r."""

    def solve(self, a: Doubles, sigma: float, residual: Doubles, accuracy: float) -> Doubles:
        """Solve for a residual (U, D), where P_i is the derivative of the projection that gave a (P,)."""


class Makes(Protocol):
    """A factory of problems from features and targets: a problem's class, or an object with parameters."""

    def make(
        self, features: npt.ArrayLike, targets: npt.ArrayLike, n_outputs: int | None, C: float, bias: float
    ) -> Problem:
        """Check the input and convert it for the solver, or raise."""


@dataclass(frozen=True)
class Problem(ABC):
    """min_W ½‖W‖² + C Σ_i loss_i(W f_i) and its dual in λ, where W = Σ_i λ_i f_iᵀ.

    The search moves α, with λ_i = c_i − α_i, a constant and α_i in a convex set of its own. g_i is the
    gradient of the dual in α_i, which is W f_i and a constant. Of α some pairs of sample and output are
    kept, see ``Kept``; nothing here is as large as samples times outputs. The solver uses this class
    alone, so that another problem is a file and nothing else, which also has a ``make``, see ``Makes``.

    Attributes
    ----------
    features : (N, d) array, float32 or float64, rows contiguous
    n_outputs : K, the rows of W
    bias : the constant that follows the features, 0 without one
    squared_norms : (N,) float64, ‖f_i‖² with the constant counted in
    """

    measures: ClassVar[tuple[str, str]] = CLASSES
    """The measures of ``compare``."""

    judges: ClassVar[tuple[str, str]] = "the model's classes", "the labels"
    """The reference of the comparison: with a model, and without one."""

    margin: ClassVar[str] = "one standard error, or 0.001,"
    """The name of ``error``."""

    features: Floats
    n_outputs: int
    C: float
    bias: float
    squared_norms: Doubles

    @property
    def units(self) -> Doubles | None:
        """Units of the outputs (K,): solutions return λ and W times these; None for 1."""
        return None

    @property
    def tube(self) -> float | None:
        """Half the width of the tube in which an error costs nothing; None for a problem without one."""
        return None

    @classmethod
    def error(cls, agreement: float, n: int) -> float:
        """Return one standard error of an agreement that was measured on n rows, at least 0.001.

        If nearly all of many rows agree, the error is smaller, and a row or two would decide.
        """
        # Smoothed by one hit and one miss, so that a perfect score on few rows has an error.
        rate = (agreement * n + 1) / (n + 2)
        return max(0.001, float(np.sqrt(rate * (1 - rate) / n)))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of W: (K, d), or (K, d + 1) with a bias."""
        return self.n_outputs, self.features.shape[1] + int(self.bias > 0)

    def blocks(self) -> list[slice]:
        """Row slices whose float64 copies fit the cache, with small blocks of scores."""
        n, d = self.features.shape
        rows = max(64, min(_BLOCK_BYTES // (8 * d), _SCORE_BYTES // (8 * self.n_outputs)))
        return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]

    # Definition of the problem

    def merged(self) -> tuple[Self, Ints]:
        """Return the problem with equal outputs merged, and the index of each output in it."""
        return self, np.arange(self.n_outputs)

    @abstractmethod
    def copies(self) -> list[Ints]:
        """Groups of samples, each ascending, for which the dual determines only the sum of λ."""

    @property
    @abstractmethod
    def strata(self) -> Ints:
        """The stratum (N,) of each sample; a subsample draws from all strata in proportion."""

    @abstractmethod
    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        """Return agreement and similarity of scores of some rows with a model's, both at most 1.

        They come in parts (n, K), one after the other. Where the model's are None, the targets take their
        place, and there is no likeness.
        """

    def judge(self, rows: Ints, head: HeadLayer | None, before: Floats | None = None) -> Judge:
        """Return a function that compares any W with a model's head, or the targets, on the same rows.

        ``before`` (N, d) are the features as the head reads them, where the problem's are others.
        """
        return lambda weight: judged(self, rows, weight, head, before)

    # Values

    def inner(self, A: Floats, B: Floats, outputs: Ints | None = None) -> float:
        """Return the inner product of two arrays like W (K, D), or like its rows of some outputs (U,)."""
        return float(loops.inner(A, B))

    @property
    @abstractmethod
    def trace(self) -> int:
        """The number of values per sample that ``scaled_losses`` needs."""

    @abstractmethod
    def begin(self, lam: csr_array) -> tuple[Kept, float]:
        """Return α of the feasible part of some λ (N, K), to be completed, and the C that it needs."""

    @abstractmethod
    def complete(self, kept: Kept) -> None:
        """Make an α feasible that was started, or scaled, for another C."""

    @abstractmethod
    def linear(self, kept: Kept) -> tuple[float, float]:
        """Return D(λ) + ½‖W‖², and the smallest C at which λ is feasible."""

    @abstractmethod
    def coefficients(self, kept: Kept) -> Doubles:
        """Return λ (P,) of the kept pairs."""

    @abstractmethod
    def sparse(self, kept: Kept) -> csr_array:
        """Return λ (N, K) made exactly feasible, with exact zeros for tiny values."""

    @abstractmethod
    def scaled_losses(self, traces: Floats, rows: slice, scale: float) -> tuple[float, float]:
        """Return Σ loss, and its slope in the scale, of a multiple of W, by traces (N, trace) of rows."""

    # Moves of single samples

    @abstractmethod
    def look(
        self, scores: Floats, rows: Ints, kept: Kept, slack: float, most: int, traces: Floats, near: Floats
    ) -> Seen:
        """Return the losses of scores (n, K) of rows, which may be overwritten, and list movable outputs.

        That is where α is between constraints, and where g is within a slack of moving it: of these at most
        so many per sample, those with the largest g. Writes the rows' traces (N, trace), and to ``near`` (N,)
        how far each sample is from changing, in g; −inf where it is between constraints.
        """

    @abstractmethod
    def descend(self, moving: Moving, kept: Kept, W: Floats, epochs: int, slack: float, rng: Any) -> int:
        """Maximise the dual over one sample after another, updating W and α; return the products."""

    # Newton steps over some pairs, with one number per pair (P,)

    @abstractmethod
    def dual(self, alpha: Doubles, pairs: Pairs) -> Doubles:
        """Return λ (P,) of α (P,), as a new array."""

    @abstractmethod
    def gradient(self, scores: Doubles, pairs: Pairs) -> Doubles:
        """Return the gradient g (P,) of the dual in α, from scores w_c·f_i, which may be overwritten."""

    @abstractmethod
    def rise(self, before: Doubles, after: Doubles, pairs: Pairs) -> float:
        """Return the gain of D(λ) + ½‖W‖² when α (P,) of some pairs changes."""

    @abstractmethod
    def typical(self, alpha: Doubles, pairs: Pairs) -> float:
        """Return the mean size of the nonzero λ_i, C if all are 0."""

    @abstractmethod
    def project(
        self, centre: Doubles, sigma: float, g: Doubles, t: float, dg: Doubles, pairs: Pairs, out: Doubles
    ) -> None:
        """Write the projection of centre + σ (g + t·dg) onto the feasible α to ``out``."""

    def inner_pairs(self, A: Doubles, B: Doubles, pairs: Pairs) -> float:
        """Return the inner product of two arrays like α, (P,)."""
        return float(np.vdot(A, B))

    @abstractmethod
    def slackness(self, alpha: Doubles, g: Doubles, pairs: Pairs) -> float:
        """Return Σ_i of how far g_i·α_i is below its maximum over feasible α_i of these pairs."""

    def repair(self, alpha: Doubles, pairs: Pairs) -> None:  # noqa: B027
        """Remove rounding errors of a projection, in place; by default there are none."""

    @abstractmethod
    def system(self, rows: Rows) -> System:
        """Return the Newton systems over some pairs."""

    @abstractmethod
    def step_cost(self, free: int, pairs: int) -> float:
        """Return the operations of one Newton step by the cheapest method."""


def joined(parts: Iterable[tuple[Doubles, Doubles | None]]) -> tuple[Doubles, Doubles | None]:
    """Collects scores, and a model's, that ``Problem.compare`` returns in blocks, as one array each."""
    ours, theirs = zip(*parts, strict=True)
    return np.concatenate(ours), None if theirs[0] is None else np.concatenate(theirs)
