"""Per-sample gradients layer by layer: the inputs of a layer, and the derivatives by its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whence.core.arrays import Ints
from whence.errors import ModelError
from whence.features.training import Batches as Samples
from whence.features.training import Classifier
from whence.gradients.gradients import Gradients
from whence.gradients.products import batches_of
from whence.model.modules import evaluating
from whence.model.tangents import LayerCall, has_matrix, input_rows, output_rows, recording

Vectors = Callable[[Tensor, slice], list[Tensor]]
"""A function of logits (B, K) and the indices of their samples, which returns derivatives (B, K)."""

_BLOCK = 2048


class Record(NamedTuple):
    """One layer on B samples of T places: its gradients by the weights, bias last, are Σ_t d_t a_tᵀ, (o, i).

    Attributes
    ----------
    inputs : (B, T, i), a, with a constant 1 last for a bias
    derivatives : (B, T, o), d, by the outputs
    """

    inputs: Tensor
    derivatives: Tensor


Batches = Iterator[list[list[Record]]]
"""Batch by batch, for each vector the records of all layers."""


class HeadOnly:
    """The last layer, computed from features."""

    def __init__(self, classifier: Classifier, features: Tensor) -> None:
        self.classifier, self.features = classifier, features
        self.names: tuple[str, ...] = (classifier.layer,)

    def subset(self, rows: Ints) -> HeadOnly:
        """Return the layer for some of the training samples."""
        return HeadOnly(self.classifier, self.features[torch.from_numpy(rows)])

    def train(self, vectors: Vectors) -> Batches:
        """Return the records of the training samples."""
        return self.tests(None, self.features, vectors)

    def tests(self, x: Any, features: Tensor, vectors: Vectors) -> Batches:
        """Return the records of tests with these features."""
        for start in range(0, len(features), _BLOCK):
            rows = slice(start, start + _BLOCK)
            inputs, logits = self.classifier.with_bias(features[rows]), self.classifier.logits(features[rows])
            yield [[Record(inputs[:, None], v[:, None])] for v in vectors(logits, rows)]


class AllLayers:
    """Every trainable ``nn.Linear`` and ``nn.Conv2d`` without groups, by temporary hooks.

    Attributes
    ----------
    names : the layers
    left_out : trainable parameters of other modules, which have no part
    """

    def __init__(self, classifier: Classifier, batches: Samples) -> None:
        self.classifier, self.batches = classifier, batches
        model = classifier.model
        self.layers = {name: m for name, m in model.named_modules() if has_matrix(m)}
        included = {f"{name}.{part}" for name in self.layers for part in ("weight", "bias")}
        self.left_out = tuple(n for n, p in model.named_parameters() if p.requires_grad and n not in included)
        if not self.layers:
            raise ModelError(
                "EK-FAC needs a trainable nn.Linear, or nn.Conv2d without groups. The model has none: its "
                f"trainable parameters are {', '.join(self.left_out[:8]) or 'none'}."
            )
        self.names = tuple(self.layers)
        self._gradients = Gradients(classifier)
        self._gradients.check(next(iter(batches))[0])

    def subset(self, rows: Ints) -> AllLayers:
        """Return the layers for some of the training samples."""
        return AllLayers(self.classifier, self.batches.subset(rows))

    def train(self, vectors: Vectors) -> Batches:
        """Return the records of the training samples, which are read again."""
        return self._all_records(self.batches, vectors)

    def tests(self, x: Any, features: Tensor, vectors: Vectors) -> Batches:
        """Return the records of tests."""
        return self._all_records(batches_of(self.classifier, x, features), vectors)

    def _all_records(self, batches: Iterable[tuple[Any, Tensor]], vectors: Vectors) -> Batches:
        start = 0
        for inputs, part in batches:
            yield self._records(inputs, slice(start, start := start + len(part)), vectors)

    def _records(self, inputs: Any, samples: slice, vectors: Vectors) -> list[list[Record]]:
        model = self.classifier.model
        with evaluating(model), recording(model, self.names) as calls:
            n = samples.stop - samples.start
            logits = self._gradients.logits({}, inputs)
            for name in self.names:
                self._check_calls(name, calls[name], n)
            leaves = [calls[name][0].zero for name in self.names]
            rows = [input_rows(self.layers[name], calls[name][0].x, n) for name in self.names]
            records = []
            for v in vectors(logits.detach(), samples):
                parts = torch.autograd.grad(logits, leaves, grad_outputs=v.to(logits), retain_graph=True)
                layers = zip(self.layers.values(), rows, parts, strict=True)
                records.append([Record(a, output_rows(layer, d, n).to(a)) for layer, a, d in layers])
        return records

    def _check_calls(self, name: str, calls: list[LayerCall], n: int) -> None:
        if len(calls) != 1:
            raise ModelError(
                f"EK-FAC needs every layer to run once a forward pass. {name!r} runs {len(calls)} times. "
                'Freeze it with requires_grad_(False), or take only the last layer with params="last".'
            )
        if len(calls[0].x) != n:
            raise ModelError(
                f"EK-FAC needs samples along the first axis of every layer's input. Layer {name!r} sees "
                f"{tuple(calls[0].x.shape)} for {n} samples. Freeze it with requires_grad_(False), or take "
                'only the last layer with params="last".'
            )


Layers = HeadOnly | AllLayers
"""Layers with a weight matrix, and their records."""
