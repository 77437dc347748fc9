"""Numbers as targets: errors inside a tube cost nothing, and others as much as they leave it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_positive
from whence.errors import InvalidInputError
from whence.svm.boxed.problem import Boxed, check_rows
from whence.svm.likeness import explained, rank_correlation
from whence.svm.problem import joined


@dataclass(frozen=True)
class EpsilonInsensitive(Boxed):
    """Support vector regression of one or several numbers, each in units of its own.

    With t = (y − centre)/scale: min_W ½‖W‖² + C Σ_ic max(0, |t_ic − w_c·f_i| − ε), so that C and ε mean the
    same for targets in any units. λ and W are given times the scale, so that centre + W f is the prediction
    of y. A sample inside the tube has λ = 0; above it, λ > 0.

    Attributes
    ----------
    centre, scale : (K,) of the targets y
    """

    one_sided: ClassVar[bool] = False
    measures: ClassVar[tuple[str, str]] = "R²", "rank correlation"
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

    @property
    def strata(self) -> Ints:
        """One group: numbers need no proportions."""
        return np.zeros(len(self.targets), np.int64)

    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        """R² of the predictions, 0 where it is below that, and their rank correlation, means over outputs."""
        scores, theirs = joined(parts)
        predicted = scores + self.centre
        if theirs is None:
            return explained(predicted, self.targets[rows] * self.scale + self.centre), None
        return explained(predicted, theirs), rank_correlation(predicted, theirs)

    @classmethod
    def error(cls, agreement: float, n: int) -> float:
        """One standard error of R² on n rows, or 0.01 where that is more."""
        return max(0.01, 2.0 * float(np.sqrt(agreement / n)) * (1.0 - agreement))


@dataclass(frozen=True)
class Tube:
    """Makes regressions with a tube of one width, of targets with given centres and scales.

    Attributes
    ----------
    epsilon : half the width of the tube, in scales of the targets
    centre, scale : of each output's targets; none leaves them as they are
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
