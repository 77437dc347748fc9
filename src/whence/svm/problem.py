"""What the solver asks of a problem: its values, its moves, and its pieces of a Newton step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Floats, Ints

if TYPE_CHECKING:
    from whence.svm.passes import Rows


_BLOCK_BYTES = 1 << 20  # float64 copies of feature blocks stay inside the outer cache


class Losses(NamedTuple):
    """What a pass over some samples tells of W.

    Attributes
    ----------
    loss : Σ of their losses
    slope : of that sum in a scale of W
    change : Σ of how far their scores moved since the pass before
    margin : the least margin m: W/m has no loss on these samples; not above 0 where no multiple is known to
    """

    loss: float
    slope: float
    change: float
    margin: float


class Listed(NamedTuple):
    """Samples and outputs that may move.

    Attributes
    ----------
    rows, ptr, outputs : arrays to write on: outputs[ptr[o]:ptr[o + 1]] of sample rows[o] may move
    """

    rows: npt.NDArray[np.int32]
    ptr: npt.NDArray[Any]
    outputs: npt.NDArray[Any]


class Selected(NamedTuple):
    """What was listed.

    Attributes
    ----------
    n, used : samples, and outputs of them
    free, pairs : samples between constraints, and the dimensions they can move in
    """

    n: int
    used: int
    free: int
    pairs: int


class System(Protocol):
    """The Newton systems of one phase, (I + σ Σ_i P_i ⊗ f_i f_iᵀ) x = r."""

    def solve(self, a: Doubles, sigma: float, residual: Doubles, accuracy: float) -> Doubles:
        """Solve for a residual (K, D), where P_i is the derivative of the projection that gave a_i."""


class Makes(Protocol):
    """What makes a problem of features and targets: the class of one, or an object that knows more of it."""

    def make(
        self, features: npt.ArrayLike, targets: npt.ArrayLike, n_outputs: int | None, C: float, bias: float
    ) -> Problem:
        """Check the input and put it into the form the solver works on, or raise."""


@dataclass(frozen=True)
class Problem(ABC):
    """min_W ½‖W‖² + C Σ_i loss_i(W f_i) and its dual in λ, where W = Σ_i λ_i f_iᵀ.

    The search moves α (N, K), with λ_i = corner_i − α_i and every α_i in a convex set of its own. g_i is the
    gradient of the dual in α_i, which is W f_i and a constant. The solver speaks to this class alone, so that
    another problem is a file and nothing else, which also has a ``make``, see ``Makes``.

    Attributes
    ----------
    features : (N, d) array, float32 or float64, rows contiguous
    n_outputs : K, the rows of W
    bias : the constant that follows the features, 0 without one
    squared_norms : (N,) float64, ‖f_i‖² with the constant counted in
    """

    measures: ClassVar[tuple[str, str]] = "agreement", "logit cosine"
    """What ``compare`` measures."""

    judges: ClassVar[tuple[str, str]] = "the model's classes", "the labels"
    """What it compares with: of a model, and where there is none."""

    margin: ClassVar[str] = "one standard error"
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
        """One standard error of an agreement that was measured on n rows; here of a share."""
        # Smoothed by one hit and one miss, so that a perfect score on few rows still has an error.
        rate = (agreement * n + 1) / (n + 2)
        return float(np.sqrt(rate * (1 - rate) / n))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of W: (K, d), or (K, d + 1) with a bias."""
        return self.n_outputs, self.features.shape[1] + int(self.bias > 0)

    def blocks(self) -> list[slice]:
        """Row slices whose float64 copies fit the cache."""
        n, d = self.features.shape
        rows = max(64, _BLOCK_BYTES // (8 * d))
        return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]

    # What the problem is

    @abstractmethod
    def merged(self) -> tuple[Self, Ints]:
        """The problem with one output in place of several that are alike, and each output's place in it."""

    @abstractmethod
    def copies(self) -> list[Ints]:
        """Groups of samples, each ascending, whose λ the dual leaves open but for their sum."""

    @property
    @abstractmethod
    def strata(self) -> Ints:
        """The group (N,) of each sample; a subsample draws from all groups in proportion."""

    @abstractmethod
    def compare(self, scores: Doubles, theirs: Doubles | None, rows: Ints) -> tuple[float, float | None]:
        """How well scores (n, K) of some rows agree with a model's, and how alike they are, both at most 1.

        Where the model's are None, the targets take their place, and there is no likeness.
        """

    # Values

    @abstractmethod
    def inner(self, A: Floats, B: Floats) -> float:
        """The inner product of two arrays like W, (K, D)."""

    @abstractmethod
    def begin(self, lam: csr_array, alpha: Doubles) -> float:
        """Write α of what is feasible of some λ (N, K); returns the C that it needs."""

    @abstractmethod
    def complete(self, alpha: Doubles) -> None:
        """Make an α feasible that was begun, or scaled, for another C."""

    @abstractmethod
    def linear(self, alpha: Doubles) -> tuple[float, float]:
        """D(λ) + ½‖W‖², and the smallest C at which λ is feasible."""

    @abstractmethod
    def linear_of(self, lam: csr_array) -> float:
        """D(λ) + ½‖W‖² of a feasible λ."""

    @abstractmethod
    def sparse(self, alpha: Doubles) -> csr_array:
        """λ (N, K) made exactly feasible, with nothing but zeros where it is all but zero."""

    @abstractmethod
    def add_weight(self, alpha: Doubles, rows: slice, out: Doubles) -> None:
        """Add Σ_i λ_i f_iᵀ over some rows to ``out`` (K, D)."""

    @abstractmethod
    def losses(self, scores: Floats, rows: slice, stored: Floats) -> Losses:
        """What scores (n, K) of some rows tell; they replace the stored ones."""

    @abstractmethod
    def scaled_losses(self, stored: Floats, rows: slice, scale: float) -> tuple[float, float]:
        """Σ loss, and its slope in the scale, of the stored scores of some rows times a scale."""

    # Moves of single samples

    @abstractmethod
    def select(self, stored: Floats, alpha: Doubles, slack: float, listed: Listed) -> Selected:
        """List what may move: where α is between constraints, or g is within a slack of moving it."""

    @abstractmethod
    def descend(
        self, listed: Listed, n: int, W: Floats, alpha: Doubles, epochs: int, slack: float, rng: Any
    ) -> int:
        """Maximise the dual over one listed sample after the other, writing W and α; returns products."""

    @abstractmethod
    def distances(self, stored: Floats, alpha: Doubles) -> Doubles:
        """How far (N,) each sample is from changing, in g; −inf where it is between constraints."""

    # Newton steps over some rows, whose α is (n, K)

    @abstractmethod
    def corner(self, rows: Ints) -> Doubles:
        """The (n, K) that λ is taken from: λ = corner − α."""

    @abstractmethod
    def gradient(self, scores: Doubles, rows: Ints) -> Doubles:
        """The gradient g (n, K) of the dual in α, of scores W f_i, which it may write on."""

    @abstractmethod
    def rise(self, before: Doubles, after: Doubles, rows: Ints) -> float:
        """What D(λ) + ½‖W‖² gains where α (n, K) of some rows becomes another."""

    @abstractmethod
    def typical(self, alpha: Doubles, rows: Ints) -> float:
        """The mean size of the λ_i that are not zero, C where all are."""

    @abstractmethod
    def project(
        self, centre: Doubles, sigma: float, g: Doubles, t: float, dg: Doubles, rows: Ints, out: Doubles
    ) -> None:
        """Write the projection of centre + σ (g + t·dg) onto the feasible α to ``out``."""

    @abstractmethod
    def inner_rows(self, A: Doubles, B: Doubles) -> float:
        """The inner product of two arrays like α, (n, K)."""

    @abstractmethod
    def slackness(self, alpha: Doubles, g: Doubles, rows: Ints) -> float:
        """Σ_i of how far g_i·α_i is below its largest over all feasible α_i."""

    @abstractmethod
    def repair(self, alpha: Doubles, rows: Ints) -> None:
        """Take rounding out of a projection, in place."""

    @abstractmethod
    def system(self, rows: Rows) -> System:
        """The Newton systems over some rows."""

    @abstractmethod
    def step_cost(self, selected: Selected) -> float:
        """Operations of one Newton step by the cheapest way to solve its system."""
