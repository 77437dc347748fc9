"""One class: how like the samples something is, without anything that it is told apart from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from whence.core.arrays import Doubles, Ints
from whence.svm.boxed.problem import Boxed
from whence.svm.problem import joined


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

    @property
    def strata(self) -> Ints:
        """One group."""
        return np.zeros(len(self.targets), np.int64)

    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        """The share of samples that are inside."""
        scores, _ = joined(parts)
        return float((scores >= 1.0).mean()), None
