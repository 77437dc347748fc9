"""Inner products of the gradients of tests with those of all training samples, at one set of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whence.core.progress import watched
from whence.core.projection import Projection
from whence.features.training import Batches, Classifier, Training
from whence.gradients.gradients import Gradients, Loss, Weights, at, logit_gradients, outer
from whence.model.modules import evaluating

Kept = dict[str, Tensor]
Labelled = Iterator[tuple[Any, Tensor]]
"""Batches of inputs as the model takes them, with classes (B,) on its device."""


class Collected(NamedTuple):
    """Gradients as rows (n, k), projected or not, their norms (n,) before projection, and values (n,)."""

    rows: Tensor
    lengths: Tensor
    values: Tensor


class LastLayer:
    """Gradients by the last layer's weight and bias, at the model's own or at other weights.

    The gradient of a scalar of the logits is r ⊗ (f, 1), with r its gradient by the logits, p − e_c for the
    cross-entropy, f the features, and the 1 only where the layer has a bias.
    """

    def __init__(self, classifier: Classifier, weights: Weights | None = None) -> None:
        self.classifier, self.weights = classifier, weights
        self.head: Classifier = classifier if weights is None else self._at(self._head)

    def features(self, inputs: Any) -> Tensor:
        """Compute features (B, d) of the model's inputs."""
        features: Tensor = self._at(lambda: self.classifier.bound.extractor(inputs))
        return features.to(self.classifier.weight)

    def factors(self, scalar: Loss, features: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return r (B, K) and (f, 1) (B, d + 1), whose outer products are the gradients."""
        residuals = logit_gradients(scalar, self.head.logits(features), classes)
        return residuals, self.head.with_bias(features)

    def _head(self) -> Classifier:
        head = self.classifier.bound.extractor.head()
        return Classifier(head, self.classifier.bound, self.classifier.batch_size)

    def _at(self, function: Callable[[], Any]) -> Any:
        if self.weights is None:
            return function()
        # Nothing else may run the model while it has other weights.
        with evaluating(self.classifier.model):
            return at(self.classifier.model, self.weights, function)


class LastLayerGradients:
    """Gradients of a scalar of the logits by the last layer's weight and bias, one row per sample (B, P).

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


@dataclass(frozen=True)
class Factored:
    """Gradients by the last layer's weight and bias, r ⊗ (f, 1), kept as r (N, K) and (f, 1) (N, d + 1).

    Since (r ⊗ f)·(r' ⊗ f') = (r·r')(f·f'), the products are exact, and no gradient is ever formed.
    """

    layer: LastLayer
    scalar: Loss

    def keep(self, training: Training, show_progress: bool) -> Kept:
        """Return the factors of the training set."""
        features = training.features
        if self.layer.weights is not None:
            batches = progress(training.batches, "Features", show_progress)
            features = torch.cat([self.layer.features(inputs) for inputs, _ in batches])
        residuals, features = self.layer.factors(self.scalar, features, training.labels)
        return {"residuals": residuals, "features": features}

    def between(self, kept: Kept, x: Any, features: Tensor, classes: Tensor, cosine: bool = False) -> Tensor:
        """Compute inner products (B, N), or cosines, of tests' and training gradients, from their factors."""
        batches = self._features(x, features, classes)
        pairs = [self.layer.factors(self.scalar, *batch) for batch in batches]
        factors = map(torch.cat, zip(*pairs, strict=True))
        r, f = (inner(t, kept[n], cosine) for t, n in zip(factors, ("residuals", "features"), strict=True))
        return r.mul_(f)

    def _features(self, x: Any, features: Tensor, classes: Tensor) -> Labelled:
        """Return features (B, d) with classes (B,) in batches; at the model's own weights they are known."""
        classifier = self.layer.classifier
        if self.layer.weights is None:
            size, classes = classifier.batch_size, classes.to(features.device)
            yield from zip(torch.split(features, size), torch.split(classes, size), strict=True)
        else:
            for inputs, labels in batches_of(classifier, x, classes):
                yield self.layer.features(inputs), labels

    def squares(self, kept: Kept) -> Tensor:
        """Return squared norms (N,) of the training gradients, ‖r‖²(‖f‖² + 1)."""
        return (kept["residuals"] ** 2).sum(1) * (kept["features"] ** 2).sum(1)


@dataclass(frozen=True)
class Stored:
    """Gradients stored as rows (N, k), projected or not, with their exact norms."""

    gradients: Gradients | LastLayerGradients
    projection: Projection | None
    weights: Weights | None

    def between(self, kept: Kept, x: Any, features: Tensor, classes: Tensor, cosine: bool = False) -> Tensor:
        """Multiply rows; cosines are those of the rows, so that they are in [−1, 1] after projection too."""
        batches = batches_of(self.gradients.classifier, x, classes)
        return inner(self._collect(batches, len(classes)).rows, kept["rows"], cosine)

    def squares(self, kept: Kept) -> Tensor:
        """The norms before the projection."""
        return kept["squares"]

    @property
    def width(self) -> int:
        """The length k of a row."""
        return self.gradients.n_parameters if self.projection is None else self.projection.dimension

    def training_rows(self, training: Training, show_progress: bool) -> Collected:
        """Compute and project the gradients of the training set."""
        batches = progress(training.batches, "Gradients", show_progress)
        return self._collect(batches, len(training.labels))

    def _collect(self, batches: Labelled, n: int) -> Collected:
        """Compute and project the gradients of n samples."""
        out: Collected | None = None
        start = 0
        for batch in batches:
            for part, values in self.gradients.with_values(*batch, self.weights):
                # Allocated once: a growing list next to large temporary rows fragments the heap.
                if out is None:
                    out = Collected(part.new_empty(n, self.width), part.new_empty(n), part.new_empty(n))
                rows = slice(start, start := start + len(part))
                out.rows[rows] = part if self.projection is None else self.projection(part)
                out.lengths[rows] = torch.linalg.vector_norm(part, dim=1)
                out.values[rows] = values
        assert out is not None
        return out


@dataclass(frozen=True)
class Streamed:
    """Gradients by all parameters that are not stored: every call computes those of the training set."""

    gradients: Gradients
    weights: Weights | None
    batches: Batches
    show_progress: bool

    def check(self) -> None:
        """Check that gradients can be computed."""
        self.gradients.check(next(iter(self.batches))[0])

    def between(self, kept: Kept, x: Any, features: Tensor, classes: Tensor, cosine: bool = False) -> Tensor:
        """Pass through the training set for as many tests as fit into memory, until all are done."""
        batches = batches_of(self.gradients.classifier, x, classes)
        pieces = (part for batch in batches for part in self.gradients(*batch, self.weights))
        # Twice the memory, for the gradients of the training samples.
        most = max(1, self.gradients.memory // (self.gradients.n_parameters * self.gradients.itemsize))
        return torch.cat([self._pass(block, cosine) for block in _gathered(pieces, most)])

    def squares(self, kept: Kept) -> Tensor:
        """Pass through the training set."""
        return torch.cat([torch.linalg.vector_norm(rows, dim=1) for rows in self._training_rows()]) ** 2

    def _pass(self, tests: Tensor, cosine: bool) -> Tensor:
        return torch.cat([inner(tests, rows, cosine) for rows in self._training_rows()], dim=1)

    def _training_rows(self) -> Iterator[Tensor]:
        for batch in progress(self.batches, "Gradients", self.show_progress):
            yield from self.gradients(*batch, self.weights)


Products = Factored | Stored | Streamed
"""A storage of gradients with products, at the model's own or other weights."""


def inner(a: Tensor, b: Tensor, cosine: bool) -> Tensor:
    """Compute inner products, or cosines, of the rows of a (B, P) and b (N, P), shape (B, N)."""
    return _unit(a) @ _unit(b).T if cosine else a @ b.T


def _unit(rows: Tensor) -> Tensor:
    """Normalise rows to length 1; rows of zeros stay zero."""
    tiny = torch.finfo(rows.dtype).tiny
    # By the largest entry first: squares of a confident sample's gradient underflow in float32.
    rows = rows / rows.abs().amax(1, keepdim=True).clamp(min=tiny)
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / lengths.clamp(min=tiny)


def batches_of(classifier: Classifier, x: Any, classes: Tensor) -> Labelled:
    """Return new inputs in batches with their classes (B,)."""
    size = classifier.batch_size
    for inputs, labels in zip(classifier.bound.batches(x, size), torch.split(classes, size), strict=True):
        yield inputs, labels.to(classifier.bound.device)


def progress(batches: Batches, what: str, show: bool) -> Labelled:
    """Yield the training set in batches, with a progress bar."""
    return watched(batches, len(batches), what, show, lambda batch: len(batch[1]))


def _gathered(pieces: Iterator[Tensor], most: int) -> Iterator[Tensor]:
    """Merge pieces of rows to blocks of at most ``most`` rows, or of one piece."""
    block: list[Tensor] = []
    for piece in pieces:
        if block and sum(map(len, block)) + len(piece) > most:
            yield torch.cat(block)
            block = []
        block.append(piece)
    yield torch.cat(block)
