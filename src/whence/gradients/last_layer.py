"""The last layer at some weights: its features, its logits, and gradients by its weight and bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from whence.features.training import Classifier
from whence.gradients.gradients import Loss, Weights, at, logit_gradients, outer
from whence.model.modules import evaluating


class LastLayer:
    """Gradients by the last layer's weight and bias, at the model's own or at other weights.

    The gradient of a scalar of the logits is r ⊗ (f, 1), with r its gradient by the logits, p − e_c for the
    cross-entropy, f the features, and the 1 only where the layer has a bias.
    """

    def __init__(self, classifier: Classifier, weights: Weights | None = None) -> None:
        self.classifier, self.weights = classifier, weights
        self.head: Classifier = classifier if weights is None else self._at(self._head)

    def features(self, inputs: Any) -> Tensor:
        """Features (B, d) of inputs as the model takes them."""
        features: Tensor = self._at(lambda: self.classifier.bound.extractor(inputs))
        return features.to(self.classifier.weight)

    def factors(self, scalar: Loss, features: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return r (B, K) and (f, 1) (B, d + 1), of which the gradients are outer products."""
        residuals = logit_gradients(scalar, self.head.logits(features), classes)
        return residuals, self.head.with_bias(features)

    def _head(self) -> Classifier:
        head = self.classifier.bound.extractor.head()
        return Classifier(head, self.classifier.bound, self.classifier.batch_size)

    def _at(self, function: Callable[[], Any]) -> Any:
        if self.weights is None:
            return function()
        # Nobody else may run the model while it has other weights.
        with evaluating(self.classifier.model):
            return at(self.classifier.model, self.weights, function)


class LastLayerGradients:
    """Gradients of a scalar of the logits by the last layer's weight and bias, a row per sample (B, P).

    A row is r ⊗ (f, 1): class after class the features, and where the layer has a bias a 1 after them. The
    layer counts whether frozen or not. It is used as ``Gradients`` is, without any pass back through a model.

    Parameters
    ----------
    classifier, scalar, memory
        As for ``Gradients``.
    """

    def __init__(self, classifier: Classifier, scalar: Loss, memory: int) -> None:
        self.classifier, self.scalar, self.n_parameters = classifier, scalar, classifier.n_parameters
        self.chunk = max(1, memory // (4 * self.n_parameters))

    def with_values(
        self, inputs: Any, classes: Tensor, weights: Weights | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Return gradients as rows (b, P), batch by batch, each with the values (b,)."""
        layer = LastLayer(self.classifier, weights)
        features = layer.features(inputs)
        values = self.scalar(layer.head.logits(features), classes)
        parts = (*layer.factors(self.scalar, features, classes), values)
        for r, f, value in zip(*(torch.split(part, self.chunk) for part in parts), strict=True):
            yield outer(r, f), value
