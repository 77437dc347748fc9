"""Inner products of the gradients of tests with those of all training samples, at one set of weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from whence.attributors.classifier import Classifier, Training
from whence.attributors.gradients import Gradients, Loss, Weights, logit_gradients
from whence.attributors.last_layer import LastLayer
from whence.attributors.projection import Projection

Kept = dict[str, Tensor]
Labelled = Iterator[tuple[Any, Tensor]]
"""Batches of inputs as the model takes them, with classes (B,) on its device."""


class Products(ABC):
    """How gradients are kept and multiplied.

    Parameters
    ----------
    classifier
        The model.
    weights
        Parameters and buffers to use instead of the model's own.
    """

    def __init__(self, classifier: Classifier, weights: Weights | None = None) -> None:
        self.classifier, self.weights = classifier, weights

    @abstractmethod
    def keep(self, training: Training, show_progress: bool) -> Kept:
        """Give what is kept of the training set."""

    @abstractmethod
    def between(self, kept: Kept, x: Any, classes: Tensor, cosine: bool = False) -> Tensor:
        """Inner products (B, N), or cosines, of tests' gradients for ``classes`` and training gradients."""

    @abstractmethod
    def squares(self, kept: Kept) -> Tensor:
        """Squared lengths (N,) of the training gradients."""


class Factored(Products):
    """Gradients by the last layer's weight and bias, r ⊗ (f, 1), kept as r (N, K) and f (N, d).

    With r the gradient by the logits, p − e_y for the cross-entropy, (r ⊗ f)·(r' ⊗ f') = (r·r')(f·f'):
    the products are exact, and no gradient is ever formed.
    """

    def __init__(self, classifier: Classifier, scalar: Loss, weights: Weights | None = None) -> None:
        super().__init__(classifier, weights)
        self.scalar, self.layer = scalar, LastLayer(classifier, weights)

    def keep(self, training: Training, show_progress: bool) -> Kept:
        """Give features and residuals of the training set."""
        if self.weights is None:
            return self._factors(training.features, training.labels)
        batches = progress(training, self.classifier, "Features", show_progress)
        return self._factors(
            torch.cat([self.layer.features(inputs) for inputs, _ in batches]), training.labels
        )

    def between(self, kept: Kept, x: Any, classes: Tensor, cosine: bool = False) -> Tensor:
        """Multiply residuals, and features with a 1 for the bias."""
        features = torch.cat(
            [self.layer.features(inputs) for inputs, _ in batches_of(self.classifier, x, classes)]
        )
        tests = self._factors(features, classes.to(features.device))
        out = (tests["features"] @ kept["features"].T).add_(self.layer.bias)
        out.mul_(tests["residuals"] @ kept["residuals"].T)
        return over_lengths(out, self.squares(tests), self.squares(kept)) if cosine else out

    def squares(self, kept: Kept) -> Tensor:
        """‖r‖²(‖f‖² + 1 for the bias)."""
        r, f = kept["residuals"], kept["features"]
        return (r * r).sum(1) * ((f * f).sum(1) + self.layer.bias)

    def _factors(self, features: Tensor, classes: Tensor) -> Kept:
        residuals = logit_gradients(self.scalar, self.layer.logits(features), classes)
        return {"features": features, "residuals": residuals}


class Stored(Products):
    """Gradients by all parameters, kept as rows (N, k), projected or whole, with their exact lengths."""

    def __init__(
        self, gradients: Gradients, projection: Projection | None, weights: Weights | None = None
    ) -> None:
        super().__init__(gradients.classifier, weights)
        self.gradients, self.projection = gradients, projection

    def keep(self, training: Training, show_progress: bool) -> Kept:
        """Give rows and exact squared lengths of the training set."""
        rows, squares = self._rows(progress(training, self.classifier, "Gradients", show_progress))
        return {"rows": rows, "squares": squares}

    def between(self, kept: Kept, x: Any, classes: Tensor, cosine: bool = False) -> Tensor:
        """Multiply rows; cosines are those of the rows, so that they lie in [−1, 1] when projected too."""
        tests, _ = self._rows(batches_of(self.classifier, x, classes))
        rows = kept["rows"]
        out = tests @ rows.T
        return over_lengths(out, (tests * tests).sum(1), (rows * rows).sum(1)) if cosine else out

    def squares(self, kept: Kept) -> Tensor:
        """Lengths before the projection."""
        return kept["squares"]

    def _rows(self, batches: Labelled) -> tuple[Tensor, Tensor]:
        rows, squares = [], []
        for batch in batches:
            for part in self.gradients(*batch, self.weights):
                squares.append((part * part).sum(1))
                rows.append(part if self.projection is None else self.projection(part))
        return torch.cat(rows), torch.cat(squares)


class Streamed(Products):
    """Gradients by all parameters, none of which are kept: every call computes those of the training set."""

    def __init__(
        self, gradients: Gradients, training: Training, weights: Weights | None, show_progress: bool
    ) -> None:
        super().__init__(gradients.classifier, weights)
        self.gradients, self.training, self.show_progress = gradients, training, show_progress
        # As much again as the gradients of the training samples that are computed meanwhile.
        self.n_tests = max(1, gradients.memory // (gradients.n_parameters * gradients.itemsize))

    def keep(self, training: Training, show_progress: bool) -> Kept:
        """Keep nothing, and check that there will be gradients."""
        self.gradients.check(next(iter(training.batches(self.classifier.model)))[0])
        return {}

    def between(self, kept: Kept, x: Any, classes: Tensor, cosine: bool = False) -> Tensor:
        """Pass through the training set for as many tests as fit into memory, until all are done."""
        batches = batches_of(self.classifier, x, classes)
        pieces = (part for batch in batches for part in self.gradients(*batch, self.weights))
        return torch.cat([self._pass(tests, cosine) for tests in _gathered(pieces, self.n_tests)])

    def squares(self, kept: Kept) -> Tensor:
        """Pass through the training set."""
        return torch.cat([(rows * rows).sum(1) for rows in self._training_rows()])

    def _pass(self, tests: Tensor, cosine: bool) -> Tensor:
        columns = []
        for rows in self._training_rows():
            out = tests @ rows.T
            if cosine:
                out = over_lengths(out, (tests * tests).sum(1), (rows * rows).sum(1))
            columns.append(out)
        return torch.cat(columns, dim=1)

    def _training_rows(self) -> Iterator[Tensor]:
        for batch in progress(self.training, self.classifier, "Gradients", self.show_progress):
            yield from self.gradients(*batch, self.weights)


def over_lengths(products: Tensor, squares: Tensor, others: Tensor) -> Tensor:
    """Divide products (B, N) by the lengths of both sides; 0 where one has none."""
    lengths = squares.sqrt()[:, None] * others.sqrt()
    return torch.where(lengths > 0, products / lengths, 0.0)


def batches_of(classifier: Classifier, x: Any, classes: Tensor) -> Labelled:
    """Give new inputs in batches with their classes (B,)."""
    start = 0
    for inputs in classifier.fitted.batches(x, classifier.batch_size):
        stop = start + classifier.batch_size
        yield inputs, classes[start:stop].to(classifier.fitted.device)
        start = stop


def progress(training: Training, classifier: Classifier, what: str, show: bool) -> Labelled:
    """Give the training set in batches, with a bar."""
    with tqdm(total=len(training.labels), desc=what, unit="sample", disable=not show) as bar:
        for inputs, labels in training.batches(classifier.model):
            yield inputs, labels
            bar.update(len(labels))


def _gathered(pieces: Iterator[Tensor], most: int) -> Iterator[Tensor]:
    """Put rows that come in pieces together to blocks of at most ``most``, or of one piece."""
    block: list[Tensor] = []
    for piece in pieces:
        if block and sum(map(len, block)) + len(piece) > most:
            yield torch.cat(block)
            block = []
        block.append(piece)
    yield torch.cat(block)
