"""Gradients of a training set, collected once for all methods that keep the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from whence.features.training import Classifier
from whence.core.display import displayed
from whence.features import FeatureBank
from whence.gradients.gradients import Gradients, Loss, Weights
from whence.gradients.products import Collected, Stored
from whence.gradients.projection import Dimension, projection_for


class Kind(NamedTuple):
    """Which gradients by all parameters, at the model's own weights.

    Attributes
    ----------
    scalar : what is differentiated
    projection, seed : how the gradients are kept
    """

    scalar: Loss
    projection: Dimension
    seed: int

    def stored(
        self, classifier: Classifier, memory: int, show_progress: bool, weights: Weights | None = None
    ) -> Stored:
        """Make what computes, keeps and multiplies them, at the model's own weights or at others."""
        gradients = Gradients(classifier, self.scalar, memory, show_progress)
        return Stored(gradients, projection_for(self.projection, gradients.n_parameters, self.seed), weights)


@displayed("kind", "nbytes")
@dataclass(frozen=True, eq=False)
class GradientBank:
    """Gradients of a training set, one row per sample that took part.

    ``collect`` of GradDot, GradCos and TRAK makes it, and ``fit(features=…, gradients=…)`` of every method
    that keeps the same gradients takes it, so that several share one pass through the model.

    Attributes
    ----------
    features : the bank of the same samples, with their model
    kind : which gradients these are
    found : rows (M, k), lengths (M,) before the projection, and values (M,) of what was differentiated
    """

    features: FeatureBank
    kind: Kind
    found: Collected

    @property
    def nbytes(self) -> int:
        """What it holds."""
        return sum(tensor.nbytes for tensor in self.found)
