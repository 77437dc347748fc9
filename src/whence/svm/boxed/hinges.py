"""Labels that are on or off, one or several per sample: a binary machine for each, solved together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from whence.core.arrays import Doubles, Ints
from whence.errors import InvalidInputError
from whence.svm.boxed.problem import Boxed, check_rows
from whence.svm.likeness import correlation
from whence.svm.problem import joined


@dataclass(frozen=True)
class Hinges(Boxed):
    """A binary machine per label: min_W ½‖W‖² + C Σ_ic max(0, 1 − t_ic w_c·f_i).

    t is 1 where the label is on and −1 where it is off. λ_ic has its sign: samples with the label speak for
    it, those without it against.
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
