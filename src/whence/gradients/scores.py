"""Scores from inner products of gradients of the loss, at one or more sets of weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, Literal, Self

import torch
from torch import Tensor

from whence.core.checks import check_callable
from whence.core.contents import Layout
from whence.core.projection import Dimension
from whence.errors import InvalidInputError
from whence.features.training import Batches, Classifier, Training
from whence.gradients.bank import GradientBank, Kind, training_rows
from whence.gradients.gradients import Gradients, Loss, Weights, cross_entropy, own_logit
from whence.gradients.products import Factored, Kept, LastLayer, Products, Stored, Streamed
from whence.model.bound import BoundModel

_LOSSES = 'None, for the cross-entropy, "logit", or a function of logits and classes'


def check_loss(name: str, value: Any) -> Any:
    """Return the scalar of the gradients."""
    return value if value == "logit" and isinstance(value, str) else check_callable(name, value, _LOSSES)


@dataclass(frozen=True, eq=False)
class WeightedProducts:
    """Inner products at several sets of weights, summed with one rate each."""

    products: Sequence[Products]
    rates: Sequence[float]
    kept: Sequence[Kept]
    model: BoundModel | None
    labels: Tensor
    cosine: bool

    def between(self, tests: Any) -> Tensor:
        """Compute scores (B, M) of tests; cosines if requested."""
        parts = zip(self.rates, self.products, self.kept, strict=True)
        x, features, classes = tests.x, tests.features, tests.targets
        return reduce(
            Tensor.add_,
            (rate * p.between(kept, x, features, classes, self.cosine) for rate, p, kept in parts),
        )

    def squares(self) -> Tensor:
        """Compute squared norms (M,) of the training gradients, before projection; 1 for cosines."""
        if self.cosine:
            return torch.ones(len(self.labels), device=self.labels.device)
        if self.model is not None:
            self.model.check_unchanged()
        parts = zip(self.rates, self.products, self.kept, strict=True)
        return torch.stack([rate * p.squares(kept) for rate, p, kept in parts]).sum(0)


@dataclass(frozen=True)
class GradientRecipe:
    """How a method computes, stores and multiplies gradients; its parameters are those of ``GradDot``."""

    params: str
    projection: Dimension
    loss: Loss | Literal["logit"] | None
    seed: int
    memory: int
    show_progress: bool

    @classmethod
    def of(cls, method: Any) -> Self:
        """Return the recipe of a method that has these hyper-parameters."""
        return cls(**{part.name: getattr(method, part.name) for part in fields(cls)})

    @property
    def scalar(self) -> Loss:
        """The scalar that is differentiated."""
        return own_logit if self.loss == "logit" else self.loss or cross_entropy

    @property
    def kind(self) -> Kind | None:
        """The kind of stored gradients, which methods can share; None if none are stored."""
        whole = self.params == "all" and self.projection is not None
        return Kind(self.scalar, self.projection, self.seed) if whole else None

    @property
    def streamed(self) -> bool:
        """Whether nothing is stored, and the training set is read in every call."""
        return self.params == "all" and self.projection is None

    def check(self) -> None:
        """Raise if the last layer's gradients, which are exact, should be projected."""
        if self.params == "last" and not isinstance(self.projection, str | None):
            raise InvalidInputError(
                '\'projection\' must be left at "auto" with params="last", whose products are exact without '
                f"one. Got {self.projection!r}."
            )

    def learn(
        self,
        training: Training,
        points: Sequence[Weights | None] = (None,),
        gradients: GradientBank | None = None,
    ) -> Kept:
        """Return the storage of gradients at each set of weights; None is the model's own."""
        arrays: dict[str, Tensor] = {}
        batches = training.batches if self.streamed else None
        for i, products in enumerate(self._products(training.classifier, points, batches)):
            kept: Kept = {}
            if isinstance(products, Stored):
                rows = training_rows(training, products, gradients, self.show_progress)
                kept = {"rows": rows.rows, "squares": rows.lengths**2}
            elif isinstance(products, Factored):
                kept = products.keep(training, self.show_progress)
            else:
                products.check()
            arrays |= {f"{i}.{name}": tensor for name, tensor in kept.items()}
        return arrays

    def layout(self, classifier: Classifier) -> Layout:
        """Return the shapes of the tensors of ``learn`` at the model's own weights."""
        if self.params == "last":
            return {"0.residuals": ("N", "K"), "0.features": ("N", "e")}
        assert self.kind is not None  # otherwise nothing is saved
        stored = self.kind.stored(classifier, self.memory, self.show_progress)
        return {"0.rows": ("N", stored.width), "0.squares": ("N",)}

    def open(self, fitted: Any, cosine: bool = False) -> WeightedProducts:
        """Build the computation of scores from the learned tensors."""
        points = fitted.given.get("points", (None,))
        batches = fitted.batches if self.streamed else None
        starts = [f"{i}." for i in range(len(points))]
        return WeightedProducts(
            self._products(fitted.classifier, points, batches),
            fitted.given.get("rates", (1.0,)),
            [
                {name.removeprefix(start): t for name, t in fitted.arrays.items() if name.startswith(start)}
                for start in starts
            ],
            fitted.model,
            fitted.used_labels,
            cosine,
        )

    def unsaved(self, name: str) -> str:
        """Return why a fit is not saved; empty if it is."""
        if self.streamed:
            return f"{name} without a projection keeps no cache that is worth saving"
        if self.loss not in (None, "logit"):
            return f"A {name} with a loss of its own cannot be saved: the loss is code"
        return ""

    def _products(
        self, classifier: Classifier, points: Sequence[Weights | None], batches: Batches | None
    ) -> list[Products]:
        """Make the products at each set of weights."""
        if self.params == "last":
            return [Factored(LastLayer(classifier, weights), self.scalar) for weights in points]
        if batches is not None:
            gradients = Gradients(classifier, self.scalar, self.memory // 2, self.show_progress)
            return [Streamed(gradients, weights, batches, self.show_progress) for weights in points]
        kind = Kind(self.scalar, self.projection, self.seed)
        return [kind.stored(classifier, self.memory, self.show_progress, weights) for weights in points]
