"""What the solver asks of a problem: its values, its moves, and its pieces of a Newton step."""

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


_BLOCK_BYTES = 1 << 20  # float64 copies of feature blocks stay inside the outer cache
_SCORE_BYTES = 1 << 23  # of a block in float64


class Losses(NamedTuple):
    """The losses of some samples with W."""

    loss: float  # Σ of their losses
    slope: float  # of that sum in a scale of W
    margin: float  # the least m: W/m has no loss on these samples; not above 0 where no multiple is known to


class Seen(NamedTuple):
    """What a look at the scores of n samples returns. To keep are outputs with α ≠ 0, and what may move."""

    losses: Losses
    free: int  # samples between constraints
    pairs: int  # dimensions they can move in
    counts: npt.NDArray[np.int32]  # (n,) outputs to keep of each sample
    outputs: npt.NDArray[Any]  # these, one sample after the other
    moving: npt.NDArray[np.int32]  # (n,) how many of these may move, the last ones of each sample


class Moving(NamedTuple):
    """Samples that may move: kept.outputs[starts[o]:stops[o]] are the outputs of sample rows[o] that may."""

    rows: npt.NDArray[Any]
    starts: npt.NDArray[Any]
    stops: npt.NDArray[Any]

    @property
    def used(self) -> int:
        """How many outputs may move, of all samples together."""
        return int((self.stops - self.starts).sum())


class System(Protocol):
    """The Newton systems of one phase, (I + σ Σ_i P_i ⊗ f_i f_iᵀ) x = r."""

    def solve(self, a: Doubles, sigma: float, residual: Doubles, accuracy: float) -> Doubles:
        """Solve for a residual (U, D), where P_i is the derivative of the projection that gave a (P,)."""


class Makes(Protocol):
    """What makes a problem of features and targets: the class of one, or an object that knows more of it."""

    def make(
        self, features: npt.ArrayLike, targets: npt.ArrayLike, n_outputs: int | None, C: float, bias: float
    ) -> Problem:
        """Check the input and put it into the form the solver works on, or raise."""


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
    """What ``compare`` measures."""

    judges: ClassVar[tuple[str, str]] = "the model's classes", "the labels"
    """What it compares with: of a model, and where there is none."""

    margin: ClassVar[str] = "one standard error, or 0.001,"
    """What ``error`` is."""

    features: Floats
    n_outputs: int
    C: float
    bias: float
    squared_norms: Doubles

    @property
    def units(self) -> Doubles | None:
        """What the outputs (K,) are measured in: solutions give λ and W times it; None where it is 1."""
        return None

    @property
    def tube(self) -> float | None:
        """Half the width of the tube in which an error costs nothing, None of a problem that has none."""
        return None

    @classmethod
    def error(cls, agreement: float, n: int) -> float:
        """One standard error of an agreement that was measured on n rows, here of a share, or 0.001.

        On many rows nearly all of which agree an error is less than that, and a row or two would decide.
        """
        # Smoothed by one hit and one miss, so that a perfect score on few rows still has an error.
        rate = (agreement * n + 1) / (n + 2)
        return max(0.001, float(np.sqrt(rate * (1 - rate) / n)))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of W: (K, d), or (K, d + 1) with a bias."""
        return self.n_outputs, self.features.shape[1] + int(self.bias > 0)

    def blocks(self) -> list[slice]:
        """Row slices whose float64 copies fit the cache, and whose scores take little room."""
        n, d = self.features.shape
        rows = max(64, min(_BLOCK_BYTES // (8 * d), _SCORE_BYTES // (8 * self.n_outputs)))
        return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]

    # What the problem is

    def merged(self) -> tuple[Self, Ints]:
        """The problem with one output instead of several that are alike, and each output's place in it."""
        return self, np.arange(self.n_outputs)

    @abstractmethod
    def copies(self) -> list[Ints]:
        """Groups of samples, each ascending, whose λ the dual leaves open but for their sum."""

    @property
    @abstractmethod
    def strata(self) -> Ints:
        """The group (N,) of each sample; a subsample draws from all groups in proportion."""

    @abstractmethod
    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        """How well scores of some rows agree with a model's, and how alike they are, both at most 1.

        They come in parts (n, K), one after the other. Where the model's are None, the targets take their
        place, and there is no likeness.
        """

    def judge(self, rows: Ints, head: HeadLayer | None, lengths: Doubles | None = None) -> Judge:
        """Return what compares one W after the other with a model's head, or the targets, on the same rows.

        The head reads features times their ``lengths`` (N,), by which they were divided; None where they were
        not.
        """
        return lambda weight: judged(self, rows, weight, head, lengths)

    # Values

    def inner(self, A: Floats, B: Floats, outputs: Ints | None = None) -> float:
        """The inner product of two arrays like W (K, D), or like its rows of some outputs (U,), ascending."""
        return float(loops.inner(A, B))

    @property
    @abstractmethod
    def trace(self) -> int:
        """How many numbers of a sample's scores ``scaled_losses`` needs."""

    @abstractmethod
    def begin(self, lam: csr_array) -> tuple[Kept, float]:
        """Return α of what is feasible of some λ (N, K), to be completed, and the C that it needs."""

    @abstractmethod
    def complete(self, kept: Kept) -> None:
        """Make an α feasible that was begun, or scaled, for another C."""

    @abstractmethod
    def linear(self, kept: Kept) -> tuple[float, float]:
        """D(λ) + ½‖W‖², and the smallest C at which λ is feasible."""

    @abstractmethod
    def coefficients(self, kept: Kept) -> Doubles:
        """λ (P,) of the pairs that are kept."""

    @abstractmethod
    def sparse(self, kept: Kept) -> csr_array:
        """λ (N, K) made exactly feasible, with nothing but zeros where it is all but zero."""

    @abstractmethod
    def scaled_losses(self, traces: Floats, rows: slice, scale: float) -> tuple[float, float]:
        """Σ loss, and its slope in the scale, of W times a scale, by the traces (N, trace) of some rows."""

    # Moves of single samples

    @abstractmethod
    def look(
        self, scores: Floats, rows: Ints, kept: Kept, slack: float, most: int, traces: Floats, near: Floats
    ) -> Seen:
        """Return the losses of scores (n, K) of some rows, which it may write on, and list what may move.

        That is where α is between constraints, and where g is within a slack of moving it: of these at most
        so many per sample, those with the largest g. Writes the rows' traces (N, trace), and to ``near`` (N,)
        how far each sample is from changing, in g; −inf where it is between constraints.
        """

    @abstractmethod
    def descend(self, moving: Moving, kept: Kept, W: Floats, epochs: int, slack: float, rng: Any) -> int:
        """Maximise the dual over one sample after the other, writing W and α; returns products."""

    # Newton steps over some pairs, with one number per pair (P,)

    @abstractmethod
    def dual(self, alpha: Doubles, pairs: Pairs) -> Doubles:
        """λ (P,) of α (P,), as a new array."""

    @abstractmethod
    def gradient(self, scores: Doubles, pairs: Pairs) -> Doubles:
        """The gradient g (P,) of the dual in α, of scores w_c·f_i, which it may write on."""

    @abstractmethod
    def rise(self, before: Doubles, after: Doubles, pairs: Pairs) -> float:
        """What D(λ) + ½‖W‖² gains where α (P,) of some pairs becomes another."""

    @abstractmethod
    def typical(self, alpha: Doubles, pairs: Pairs) -> float:
        """The mean size of the λ_i that are not zero, C where all are."""

    @abstractmethod
    def project(
        self, centre: Doubles, sigma: float, g: Doubles, t: float, dg: Doubles, pairs: Pairs, out: Doubles
    ) -> None:
        """Write the projection of centre + σ (g + t·dg) onto the feasible α to ``out``."""

    def inner_pairs(self, A: Doubles, B: Doubles, pairs: Pairs) -> float:
        """The inner product of two arrays like α, (P,)."""
        return float(np.vdot(A, B))

    @abstractmethod
    def slackness(self, alpha: Doubles, g: Doubles, pairs: Pairs) -> float:
        """Σ_i of how far g_i·α_i is below its largest over all feasible α_i of these pairs."""

    def repair(self, alpha: Doubles, pairs: Pairs) -> None:  # noqa: B027
        """Take rounding out of a projection, in place; by default there is none."""

    @abstractmethod
    def system(self, rows: Rows) -> System:
        """The Newton systems over some pairs."""

    @abstractmethod
    def step_cost(self, free: int, pairs: int) -> float:
        """Operations of one Newton step by the cheapest way to solve its system."""


def joined(parts: Iterable[tuple[Doubles, Doubles | None]]) -> tuple[Doubles, Doubles | None]:
    """Scores, and a model's, that come in parts, as ``Problem.compare`` gets them, as one array each."""
    ours, theirs = zip(*parts, strict=True)
    return np.concatenate(ours), None if theirs[0] is None else np.concatenate(theirs)
