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
from whence.core.projection import Dimension, check_dimension
from whence.features import FeatureBank
from whence.features.training import Classifier, Training
from whence.gradients.bank import GradientBank, Kind, check_gradients, collect
from whence.gradients.gradients import MEMORY, Loss
from whence.gradients.scores import GradientRecipe, WeightedProducts, check_loss


@register
@dataclass(eq=False)
class GradDot(Attributor):
    """Attribute predictions by inner products of the gradients of the loss.

    Where ℓ(x, c) is the model's loss at x for class c, the score of training sample i for class c at x is

        τ_c(x, i) = ∇ℓ(x, c) · ∇ℓ(x_i, y_i),

    the first-order decrease of the test's loss by a gradient step on sample i. **Positive is
    evidence for the target class.** Self-influence is ‖∇ℓ(x_i, y_i)‖², without projection.

    Projected products are unbiased and have a standard deviation of up to
    (‖∇ℓ(x, c)‖ ‖∇ℓ(x_i, y_i)‖) (2/k)^½, about 3 % of the product of the norms at k = 2,048.

    Besides the arguments of all methods, ``fit`` takes ``gradients``: the result of ``collect`` for the bank
    that is passed as ``features``, so that methods with the same gradients share one pass.

    Parameters
    ----------
    params
        "all": gradients by all parameters with ``requires_grad``. "last": by the weight and bias of the
        last layer only, frozen or not; these are exact and cost no more than features.
    projection
        How gradients by all parameters are stored. "auto": as 2,048 random projections, or unprojected if
        there are no more parameters than that. An int: as this number of projections. None: not stored; every
        ``attribute`` passes through the training set again, which is exact and slow.
    loss
        The training loss, a function of logits (B, K) and classes (B,) that returns one number per sample
        (B,); None is the cross-entropy. "logit" takes gradients of the logit z_c instead.
    seed
        Seed of the projection.
    memory
        Limit in bytes for gradients and activations.

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
        """The kind of stored gradients, which methods can share; None if none are stored."""
        return GradientRecipe.of(self).kind

    def collect(self, features: FeatureBank) -> GradientBank:
        """Compute the gradients of a training set for all methods with the same kind."""
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

    GradDot normalised by the norms of gradients, which differ by orders of magnitude between samples that are
    fitted well and badly. **Positive is evidence for the target class.** A zero gradient has score 0. All
    self-influences are 1 and rank nothing. Projected cosines are those of the projections.

    Parameters
    ----------
    params, projection, loss, seed, memory
        As for ``GradDot``, as is ``gradients`` of ``fit``.
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
        """The kind of stored gradients, which methods can share; None if none are stored."""
        return GradientRecipe.of(self).kind

    def collect(self, features: FeatureBank) -> GradientBank:
        """Compute the gradients of a training set for all methods with the same kind."""
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
