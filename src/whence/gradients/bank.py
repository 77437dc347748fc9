"""Gradients of a training set, computed once for all methods that share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from whence.core.checks import shown
from whence.core.display import displayed
from whence.core.projection import Dimension, projection_for
from whence.errors import InvalidInputError
from whence.features import FeatureBank
from whence.features.training import Classifier, Training, checked
from whence.gradients.gradients import Gradients, Loss, Weights
from whence.gradients.products import Collected, Stored


class Kind(NamedTuple):
    """A kind of gradients by all parameters, at the model's own weights.

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
        """Return the computation and storage of these gradients, at the model's own or other weights."""
        gradients = Gradients(classifier, self.scalar, memory, show_progress)
        return Stored(gradients, projection_for(self.projection, gradients.n_parameters, self.seed), weights)


@displayed("kind", "nbytes")
@dataclass(frozen=True, eq=False)
class GradientBank:
    """Gradients of a training set, one row per fitted sample.

    ``collect`` of GradDot, GradCos and TRAK makes it of a bank of ``whence.features.extract``, which knows
    its model and its data. ``fit(features=…, gradients=…)`` of every method that keeps the same gradients
    takes both, so that several share one pass through the model.

    Attributes
    ----------
    features : the bank of the same samples, with their model
    kind : which gradients these are
    collected : rows (M, k), lengths (M,) before the projection, and values (M,) of what was differentiated
    """

    features: FeatureBank
    kind: Kind
    collected: Collected

    @property
    def nbytes(self) -> int:
        """The kind and size of the gradients."""
        return sum(tensor.nbytes for tensor in self.collected)


def collect(method: Any, features: FeatureBank) -> GradientBank:
    """Compute the gradients of a training set that a method with a ``kind`` stores."""
    bank, kind = checked(features), method.kind
    if kind is None:
        raise InvalidInputError(
            f"{method!r} keeps no gradients that other methods could share, but those of the last layer, "
            "or none. Use fit alone."
        )
    if bank.layers is not None:
        raise InvalidInputError(
            "'features' must be those of the last layer, layers=\"last\". Got those of "
            f"layers={bank.layers.asked!r}."
        )
    bank.task.require_classes(f"The model of {type(method).__name__}")
    training = Training(bank, bank.task, method.batch_size)
    stored = kind.stored(training.classifier, method.memory, method.show_progress)
    return GradientBank(bank, kind, stored.training_rows(training, method.show_progress))


def check_gradients(method: Any, gradients: Any) -> dict[str, Any]:
    """Return the ``gradients`` argument of ``fit``, by name, or raise if the method needs others."""
    if gradients is None:
        return {}
    if not isinstance(gradients, GradientBank):
        raise InvalidInputError(f"'gradients' must be a result of 'collect'. Got {shown(gradients)}.")
    if gradients.kind != method.kind:
        raise InvalidInputError(
            f"'gradients' must be those that {method!r} keeps. Got those of {gradients.kind}. Collect them "
            "by a method of the same loss, projection and seed."
        )
    return {"gradients": gradients}


def training_rows(
    training: Training, stored: Stored, gradients: GradientBank | None, show_progress: bool
) -> Collected:
    """Return the gradients of the training set, given or computed."""
    if gradients is None:
        return stored.training_rows(training, show_progress)
    if gradients.features is not training.bank:
        raise InvalidInputError(
            "'gradients' must come with the bank that they were collected of, fit(features=bank, "
            "gradients=…). Got another training set."
        )
    return gradients.collected
