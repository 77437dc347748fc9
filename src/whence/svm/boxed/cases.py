"""Boxed problems: labels that are on or off, numbers, one class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_positive
from whence.errors import InvalidInputError
from whence.svm.boxed.problem import Boxed, check_rows
from whence.svm.likeness import correlation, explained, rank_correlation
from whence.svm.problem import joined


@dataclass(frozen=True)
class Hinges(Boxed):
    """A binary machine per label: min_W ½‖W‖² + C Σ_ic max(0, 1 − t_ic w_c·f_i).

    t is 1 where the label is on and −1 where it is off. λ_ic has its sign: samples with the label support
    it, those without it contradict it.
    """

    one_sided: ClassVar[bool] = True
    measures: ClassVar[tuple[str, str]] = "agreement", "logit correlation"
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
        """The rarest label that is on, counted from 1; 0 where none is."""
        on = self.targets > 0
        rarity = np.where(on, 1.0 / np.maximum(on.sum(axis=0), 1), 0.0)
        return np.where(on.any(axis=1), rarity.argmax(axis=1) + 1, 0)

    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        """The share of labels that are on or off in both, and the correlation of their logits."""
        scores, theirs = joined(parts)
        on = self.targets[rows] > 0 if theirs is None else theirs > 0
        agreement = float(((scores > 0) == on).mean())
        return agreement, None if theirs is None else correlation(scores, theirs)


@dataclass(frozen=True)
class OneClass(Boxed):
    """A one-class machine: min_w ½‖w‖² + C Σ_i max(0, 1 − w·f_i).

    It is the ν-machine of Schölkopf with its threshold ρ scaled to 1: λ = α/ρ, C = 1/(νNρ), and
    ν = Σ_i λ_i/(C·N), an upper bound of the share of samples with w·f_i < 1. It has no bias.
    """

    one_sided: ClassVar[bool] = True

    @classmethod
    def make(
        cls, features: npt.ArrayLike, targets: npt.ArrayLike, n_outputs: int | None, C: float, bias: float
    ) -> Self:
        """Check features (N, d); targets say no more than how many there are."""
        return cls.of(features, np.ones((len(np.asarray(targets)), 1)), C, False, 0.0)

    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        """The share of samples that are inside."""
        scores, _ = joined(parts)
        return float((scores >= 1.0).mean()), None


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
