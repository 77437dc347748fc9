"""GradDot and GradCos: inner products and cosines of the gradients of the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted
from whence.attribution.parameters import Params, a_seed, one_of, parameter
from whence.core.checks import check_count
from whence.core.contents import Layout
from whence.features import FeatureBank
from whence.features.training import Classifier, Training
from whence.gradients.bank import GradientBank, Kind, check_gradients, collect
from whence.gradients.gradients import MEMORY, Loss
from whence.gradients.projection import Dimension, check_dimension
from whence.gradients.scores import GradientRecipe, WeightedProducts, check_loss


@register
@dataclass(eq=False)
class GradDot(Attributor):
    """Attribute predictions by inner products of the gradients of the loss.

    With ℓ(x, c) the loss of the model θ at x for class c, the score of training sample i for class c at x is

        τ_c(x, i) = ∇ℓ(x, c) · ∇ℓ(x_i, y_i),

    the first-order decrease of the test's loss when a gradient step is taken on sample i. **Positive is
    evidence for the target class.** Self-influence is ‖∇ℓ(x_i, y_i)‖², without a projection.

    Projected products have the right expectation and a standard deviation of up to
    (‖∇ℓ(x, c)‖ ‖∇ℓ(x_i, y_i)‖) (2/k)^½, about 3 % of the lengths' product at k = 2,048.

    Besides the arguments of all methods ``fit`` takes ``gradients``: what ``collect`` returned for the bank
    that is passed as ``features``, so that methods that keep the same gradients share one pass.

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
        per sample (B,); None is the cross-entropy. "logit" takes gradients of z_c itself instead: how
        alike two samples pull at the weights, whatever the model has learned of them.
    seed
        Of the projection.
    memory
        Bytes that gradients and activations may take at a time.

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

    params: Params = parameter("all", one_of(Params))
    projection: Dimension = parameter("auto", check_dimension)
    loss: Loss | Literal["logit"] | None = parameter(None, check_loss, or_none=True)
    seed: int = parameter(0, a_seed)
    memory: int = parameter(MEMORY, check_count)

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        return GradientRecipe.of(self).learn(training, **given)

    @property
    def kind(self) -> Kind | None:
        """Which gradients it keeps that other methods could share; None where it keeps none."""
        return GradientRecipe.of(self).kind

    def collect(self, features: FeatureBank) -> GradientBank:
        """Compute the gradients of a training set for all methods that keep the same."""
        self._check_parameters()
        return collect(self, features)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        GradientRecipe.of(self).check()

    def _check_given(self, model: Any, gradients: Any = None) -> dict[str, Any]:
        return check_gradients(self, gradients)

    def _needs_inputs(self) -> bool:
        return self.params == "all"

    def _open(self, fitted: Fitted) -> WeightedProducts:
        return GradientRecipe.of(self).open(fitted)

    def _layout(self, classifier: Classifier) -> Layout:
        return GradientRecipe.of(self).layout(classifier)

    def _unsaved(self, fitted: Fitted | None) -> str:
        return GradientRecipe.of(self).unsaved(type(self).__name__)


@register
@dataclass(eq=False)
class GradCos(Attributor):
    """Attribute predictions by cosines of the gradients of the loss.

    The score of training sample i for class c at x is

        τ_c(x, i) = ∇ℓ(x, c) · ∇ℓ(x_i, y_i) / (‖∇ℓ(x, c)‖ ‖∇ℓ(x_i, y_i)‖),

    GradDot without the lengths, which differ by orders of magnitude between samples that are fitted well and
    badly. **Positive is evidence for the target class.** A gradient of length 0 scores 0. Every sample's
    self-influence is 1, which ranks nothing. Projected cosines are those of the projections.

    Parameters
    ----------
    params, projection, loss, seed, memory
        As for ``GradDot``, and so is ``gradients`` of ``fit``.
    """

    name: ClassVar[str] = "gradcos"
    capabilities: ClassVar[Capabilities] = GradDot.capabilities

    params: Params = parameter("all", one_of(Params))
    projection: Dimension = parameter("auto", check_dimension)
    loss: Loss | Literal["logit"] | None = parameter(None, check_loss, or_none=True)
    seed: int = parameter(0, a_seed)
    memory: int = parameter(MEMORY, check_count)

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        return GradientRecipe.of(self).learn(training, **given)

    @property
    def kind(self) -> Kind | None:
        """Which gradients it keeps that other methods could share; None where it keeps none."""
        return GradientRecipe.of(self).kind

    def collect(self, features: FeatureBank) -> GradientBank:
        """Compute the gradients of a training set for all methods that keep the same."""
        self._check_parameters()
        return collect(self, features)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        GradientRecipe.of(self).check()

    def _check_given(self, model: Any, gradients: Any = None) -> dict[str, Any]:
        return check_gradients(self, gradients)

    def _needs_inputs(self) -> bool:
        return self.params == "all"

    def _open(self, fitted: Fitted) -> WeightedProducts:
        return GradientRecipe.of(self).open(fitted, cosine=True)

    def _layout(self, classifier: Classifier) -> Layout:
        return GradientRecipe.of(self).layout(classifier)

    def _unsaved(self, fitted: Fitted | None) -> str:
        return GradientRecipe.of(self).unsaved(type(self).__name__)
