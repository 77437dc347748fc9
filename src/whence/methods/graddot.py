"""GradDot and GradCos: inner products and cosines of the gradients of the loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register, share_options
from whence.attribution.classifier import Classifier, Training
from whence.attribution.parameters import Params, a_seed, one_of, parameter
from whence.core import store
from whence.core.checks import check_callable, check_count, shown
from whence.core.contents import Layout
from whence.errors import InvalidInputError
from whence.features import FeatureBank
from whence.gradients.bank import GradientBank, Kind
from whence.gradients.gradients import MEMORY, Gradients, Loss, Weights, cross_entropy, own_logit
from whence.gradients.last_layer import LastLayer
from whence.gradients.products import Collected, Factored, Products, Stored, Streamed, Tests
from whence.gradients.projection import Dimension, check_dimension
from whence.model.bound import BoundModel

_what = 'None, for the cross-entropy, "logit", or a function of logits and classes'


def _check_loss(name: str, value: Any) -> Any:
    """Return what gradients are taken of."""
    return value if value == "logit" and isinstance(value, str) else check_callable(name, value, _what)


class WeightsAttributor(Attributor):
    """A method on gradients at one or more sets of weights: the model's own, None, or checkpoints."""

    _points: Sequence[Weights | None] = (None,)
    _rates: Sequence[float] = (1.0,)  # of each set of weights
    _products: Sequence[Any]

    memory: int

    @abstractmethod
    def _open(self, classifier: Classifier, points: Sequence[Weights | None]) -> Sequence[Products]:
        """Make the products at each set of weights."""

    @property
    @abstractmethod
    def kind(self) -> Kind | None:
        """Which gradients at the model's own weights it keeps; None where it keeps none that others could."""

    def collect(self, features: FeatureBank) -> GradientBank:
        """Compute the gradients that this method keeps of a training set, for all that keep the same.

        Parameters
        ----------
        features
            A bank of ``whence.features.extract``, which knows its model and its data. ``fit`` takes both:
            ``fit(features=features, gradients=…)``.
        """
        self._check_parameters()
        bank, kind = self._check_bank(features, ()), self.kind
        if kind is None:
            raise InvalidInputError(
                f"{self!r} keeps no gradients that other methods could share, but those of the last layer, "
                "of checkpoints, or none. Use fit alone."
            )
        training = Training(bank, bank.task, self.batch_size)
        products = kind.stored(training.classifier, self.memory, self.show_progress)
        return GradientBank(bank, kind, products.training_rows(training, self.show_progress))

    def _check_gradients(self, given: Any) -> dict[str, Any]:
        """Return gradients that were given to ``fit``, for ``_learn``; raise where they are not its own."""
        if not isinstance(given, GradientBank):
            raise InvalidInputError(f"'gradients' must be what 'collect' gave. Got {shown(given)}.")
        if given.kind != self.kind:
            raise InvalidInputError(
                f"'gradients' must be those that {self!r} keeps. Got those of {given.kind}. Collect them by "
                "a method of the same loss, projection and seed."
            )
        return {"gradients": given}

    def _rows(self, training: Training, products: Stored, gradients: GradientBank | None) -> Collected:
        """Return the gradients of the training set, those that were given or new ones."""
        if gradients is None:
            return products.training_rows(training, self.show_progress)
        if gradients.features is not training.bank:
            raise InvalidInputError(
                "'gradients' must come with the bank that they were collected of, fit(features=bank, "
                "gradients=…). Got another training set."
            )
        return gradients.found

    def _not_saved(self) -> str:
        if self._points[0] is None:
            return ""
        return (
            f"{type(self).__name__} needs the weights of all its checkpoints to attribute, so its cache "
            "alone is not worth saving: keep the checkpoints"
        )

    def _restore(self, arrays: store.Arrays, manifest: Any, bound: BoundModel | None) -> None:
        super()._restore(arrays, manifest, bound)
        self._products = self._open(self._head(), self._points)


@dataclass(eq=False)
class GradientAttributor(WeightsAttributor):
    """Scores from inner products of gradients of the loss at one or more sets of weights.

    Self-influence is without projection.

    Parameters
    ----------
    params
        "all": gradients by all parameters with ``requires_grad``. "last": by the weight and bias of the
        last layer only, frozen or not, whose products are exact and cost no more than features do.
    projection
        How gradients by all parameters are kept. "auto": as 2,048 random projections, or whole where they
        have no more parameters than that. A number: as so many projections. None: not at all; every
        ``attribute`` passes through the training set again, exact and slow.
    loss
        The loss that the model was trained with, a function of logits (B, K) and classes (B,) to one number
        per sample (B,); None is the cross-entropy. "logit" takes gradients of z_c itself in its place: how
        alike two samples pull at the weights, whatever the model has learned of them.
    seed
        Of the projection.
    memory
        Bytes that gradients and activations may take at a time.
    batch_size, show_progress
        As for every method, see ``Attributor``.
    """

    params: Params = parameter("all", one_of(Params))
    projection: Dimension = parameter("auto", check_dimension)
    loss: Loss | Literal["logit"] | None = parameter(None, _check_loss, or_none=True)
    seed: int = parameter(0, a_seed)
    memory: int = parameter(MEMORY, check_count)

    cosine: ClassVar[bool] = False
    """Whether products are divided by the lengths of both gradients."""

    @share_options
    def fit(
        self,
        model: Any = None,
        data: Any = None,
        y: Any = None,
        *,
        gradients: GradientBank | None = None,
        **options: Any,
    ) -> Self:
        """Fit to a trained classifier and its training set.

        Parameters
        ----------
        gradients
            What ``collect`` gave for the bank that is passed as ``features``, so that methods that keep the
            same gradients share one pass through the model.
        """
        return super().fit(model, data, y, gradients=gradients, **options)

    def _check_given(self, model: Any, gradients: Any = None) -> dict[str, Any]:
        return {} if gradients is None else self._check_gradients(gradients)

    @property
    def kind(self) -> Kind | None:
        """Which gradients it keeps that other methods could share; None where it keeps none."""
        whole = self.params == "all" and self.projection is not None
        return Kind(self._scalar, self.projection, self.seed) if whole else None

    @property
    def _scalar(self) -> Loss:
        return own_logit if self.loss == "logit" else self.loss or cross_entropy

    @property
    def _of_features(self) -> bool:
        return self.params == "last"

    def _scores(self, features: Tensor, classes: Tensor, x: Any) -> Tensor:
        tests = Tests(x, features, classes)
        return reduce(
            Tensor.add_, (rate * p.between(kept, tests, self.cosine) for rate, p, kept in self._parts())
        )

    def _self_influence(self) -> Tensor:
        if self.model_ is not None:
            self.model_.check_unchanged()
        return torch.stack([rate * p.squares(kept) for rate, p, kept in self._parts()]).sum(0)

    def _layout(self, classifier: Classifier) -> Layout:
        if self.params == "last":
            return {"0.residuals": ("N", "K"), "0.features": ("N", "e")}
        (products,) = self._open(classifier, (None,))
        assert isinstance(products, Stored)
        return {"0.rows": ("N", products.width), "0.squares": ("N",)}

    def _learn(
        self,
        training: Training,
        points: Sequence[Weights | None] = (None,),
        rates: Sequence[float] = (1.0,),
        gradients: GradientBank | None = None,
        **given: Any,
    ) -> dict[str, Tensor]:
        products = self._open(training.classifier, points)
        kept = [
            p.kept(self._rows(training, p, gradients))
            if isinstance(p, Stored)
            else p.keep(training, self.show_progress)
            for p in products
        ]
        self._points, self._products, self._rates = points, products, rates
        return {f"{i}.{name}": tensor for i, part in enumerate(kept) for name, tensor in part.items()}

    def _parts(self) -> Iterator[tuple[float, Products, dict[str, Tensor]]]:
        """Return the rate, the products and their part of the cache at each set of weights."""
        for i, (rate, products) in enumerate(zip(self._rates, self._products, strict=True)):
            start = f"{i}."
            kept = {n.removeprefix(start): t for n, t in self._cache.items() if n.startswith(start)}
            yield rate, products, kept

    def _open(self, classifier: Classifier, points: Sequence[Weights | None]) -> Sequence[Products]:
        if self.params == "last":
            return [Factored(LastLayer(classifier, weights), self._scalar) for weights in points]
        if self.projection is None:
            gradients = Gradients(classifier, self._scalar, self.memory // 2, self.show_progress)
            return [Streamed(gradients, weights) for weights in points]
        kind = Kind(self._scalar, self.projection, self.seed)
        return [kind.stored(classifier, self.memory, self.show_progress, weights) for weights in points]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.params == "last" and self.projection not in ("auto", None):
            raise InvalidInputError(
                '\'projection\' must be left at "auto" with params="last", whose products are exact without '
                f"one. Got {self.projection!r}."
            )

    def _not_saved(self) -> str:
        if self.params == "all" and self.projection is None:
            return f"{type(self).__name__} without a projection keeps no cache that is worth saving"
        if self.loss not in (None, "logit"):
            return f"A {type(self).__name__} with a loss of its own cannot be saved: the loss is code"
        return super()._not_saved()


@register
class GradDot(GradientAttributor):
    """Attribute predictions by inner products of the gradients of the loss.

    With ℓ(x, c) the loss of the model θ at x for class c, the score of training sample i for class c at x is

        τ_c(x, i) = ∇ℓ(x, c) · ∇ℓ(x_i, y_i),

    the first-order decrease of the test's loss when a gradient step is taken on sample i. **Positive is
    evidence for the target class.** Self-influence is ‖∇ℓ(x_i, y_i)‖².

    Projected products have the right expectation and a standard deviation of up to
    (‖∇ℓ(x, c)‖ ‖∇ℓ(x_i, y_i)‖) (2/k)^½, about 3 % of the lengths' product at k = 2,048.

    Its parameters are those of ``GradientAttributor``.

    Examples
    --------
    >>> import torch, whence
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> whence.methods.GradDot(show_progress=False).fit(model, (x, y)).attribute(x[:3]).shape
    torch.Size([3, 20])
    """

    name: ClassVar[str] = "graddot"
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_loss=True,
        memory='N × 2,048 projections; N × (d + K) with params="last"; nothing with projection=None',
        cost=0.2,
    )


@register
class GradCos(GradientAttributor):
    """Attribute predictions by cosines of the gradients of the loss.

    The score of training sample i for class c at x is

        τ_c(x, i) = ∇ℓ(x, c) · ∇ℓ(x_i, y_i) / (‖∇ℓ(x, c)‖ ‖∇ℓ(x_i, y_i)‖),

    GradDot without the lengths, which differ by orders of magnitude between samples that are fitted well and
    badly. **Positive is evidence for the target class.** A gradient of length 0 scores 0. Every sample's
    self-influence is 1, which ranks nothing. Projected cosines are those of the projections.

    Its parameters are those of ``GradientAttributor``.

    Examples
    --------
    >>> import torch, whence
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> whence.methods.GradCos(show_progress=False).fit(model, (x, y)).attribute(x[:3]).shape
    torch.Size([3, 20])
    """

    name: ClassVar[str] = "gradcos"
    capabilities: ClassVar[Capabilities] = GradDot.capabilities
    cosine: ClassVar[bool] = True

    def _self_influence(self) -> Tensor:
        return torch.ones(len(self._labels), device=self._labels.device)
