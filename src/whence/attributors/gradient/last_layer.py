"""The last layer at some weights: its features, its logits, and gradients by its weight and bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from whence.attributors.classifier import Classifier
from whence.attributors.gradient.gradients import MEMORY, Loss, Weights, at, cross_entropy, logit_gradients
from whence.model.modules import evaluating


class LastLayer:
    """Gradients by the last layer's weight and bias, at the model's own or at other weights.

    The gradient of a scalar of the logits is r ⊗ (f, 1), with r its gradient by the logits, p − e_c for the
    cross-entropy, f the features, and the 1 only where the layer has a bias.

    Attributes
    ----------
    n_parameters : P, K·d and K more where the layer has a bias
    """

    def __init__(self, classifier: Classifier, weights: Weights | None = None) -> None:
        self.classifier, self.weights = classifier, weights
        head = classifier if weights is None else self._at(self._head)
        self.logits, self.bias = head.logits, head.bias is not None
        self.n_parameters = head.weight.numel() + self.bias * classifier.n_classes

    def features(self, inputs: Any) -> Tensor:
        """Features (B, d) of inputs as the model takes them."""
        features: Tensor = self._at(lambda: self.classifier.extractor(inputs))
        return features.to(self.classifier.weight)

    def factors(self, scalar: Loss, features: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Give r (B, K) and (f, 1) (B, d + 1), of which the gradients are outer products."""
        residuals = logit_gradients(scalar, self.logits(features), classes)
        if self.bias:
            features = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
        return residuals, features

    def _head(self) -> Classifier:
        found = self.classifier.extractor.head()
        return Classifier(found, self.classifier.bound, self.classifier.batch_size)

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

    def __init__(self, classifier: Classifier, scalar: Loss = cross_entropy, memory: int = MEMORY) -> None:
        self.classifier, self.scalar, self.memory = classifier, scalar, memory
        layer = LastLayer(classifier)
        self.n_parameters = layer.n_parameters
        self.chunk = max(1, memory // (4 * self.n_parameters))

    def __call__(self, inputs: Any, classes: Tensor, weights: Weights | None = None) -> Iterator[Tensor]:
        """Give gradients as rows (b, P), for some samples after the other."""
        for rows, _ in self.with_values(inputs, classes, weights):
            yield rows

    def with_values(
        self, inputs: Any, classes: Tensor, weights: Weights | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Give gradients as rows (b, P), each with the values (b,) of the scalar."""
        layer = LastLayer(self.classifier, weights)
        features = layer.features(inputs)
        values = self.scalar(layer.logits(features), classes)
        residuals, features = layer.factors(self.scalar, features, classes)
        for start in range(0, len(features), self.chunk):
            some = slice(start, start + self.chunk)
            yield (residuals[some, :, None] * features[some, None, :]).flatten(1), values[some]
