"""The last layer at some weights: its features, its logits, and gradients by its weight and bias."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from whence.attributors.classifier import Classifier
from whence.attributors.gradients import MEMORY, Loss, Weights, at, cross_entropy, logit_gradients


class LastLayer:
    """Features and logits of the classifier at its own or at other weights.

    Attributes
    ----------
    n_parameters : K·d, and K more where the layer has a bias
    bias : 1 where the layer has a bias, else 0: the last feature of each sample
    """

    def __init__(self, classifier: Classifier, weights: Weights | None = None) -> None:
        self.classifier, self.weights = classifier, weights
        head = classifier
        if weights is not None:
            model, fitted = classifier.model, classifier.fitted
            head = at(model, weights, lambda: Classifier(fitted, classifier.batch_size))
        self.logits = head.logits
        self.bias = int(head.bias is not None)
        self.n_parameters = head.weight.numel() + self.bias * classifier.n_classes

    def features(self, inputs: Any) -> Tensor:
        """Features (B, d) of inputs as the model takes them."""
        extractor, like = self.classifier.extractor, self.classifier.weight
        if self.weights is None:
            return extractor(inputs).to(like)
        features: Tensor = at(self.classifier.model, self.weights, lambda: extractor(inputs))
        return features.to(like)


class LastLayerGradients:
    """Gradients of a scalar of the logits by the last layer's weight and bias, one a sample, as rows (B, P).

    A row is r ⊗ (f, 1), with r the gradient by the logits, p − e_c for the cross-entropy: class after class
    the features, and where the layer has a bias a 1 after them. It takes the layer whether frozen or not.
    Used as ``Gradients``, of which it is the short cut.

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
        logits = layer.logits(features)
        residuals, values = logit_gradients(self.scalar, logits, classes), self.scalar(logits, classes)
        if layer.bias:
            features = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
        for start in range(0, len(features), self.chunk):
            some = slice(start, start + self.chunk)
            yield (residuals[some, :, None] * features[some, None, :]).flatten(1), values[some]
