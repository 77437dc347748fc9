"""TracIn: inner products of the gradients of the loss, summed over checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted
from whence.attribution.parameters import Params, a_seed, one_of, parameter
from whence.core.checks import check_count, check_number, shown, to_array
from whence.core.projection import Dimension, check_dimension
from whence.errors import InvalidInputError
from whence.features.training import Training
from whence.gradients.checkpoints import UNSAVED, read_checkpoints
from whence.gradients.gradients import MEMORY, Loss
from whence.gradients.scores import GradientRecipe, WeightedProducts, check_loss

_MOST = 1e6  # above any real learning rate, and scores stay finite in float32


@register
@dataclass(eq=False)
class TracIn(Attributor):
    """Attribute predictions by inner products of gradients, summed over checkpoints of training.

    Where θ_t are the weights at checkpoint t and η_t is its learning rate, the score of training sample i for
    class c at x is

        τ_c(x, i) = Σ_t η_t ∇ℓ(x, c; θ_t) · ∇ℓ(x_i, y_i; θ_t),

    the first-order decrease of the test's loss by the steps on sample i. **Positive is evidence for
    the target class.** Self-influence is Σ_t η_t ‖∇ℓ(x_i, y_i; θ_t)‖².

    The sum is over the checkpoints only: the model's own weights predict the class for ``target=None``, and
    count only if they are among the checkpoints.

    Besides the arguments of all methods, ``fit`` takes ``checkpoints``: state dicts, models, or paths of
    files with a state dict, from safetensors or ``torch.save``; and ``learning_rates``: one for all
    checkpoints, which only scales the scores, or one per checkpoint.

    Parameters
    ----------
    params, projection, loss, seed, memory
        As for ``GradDot``.

    Examples
    --------
    >>> import copy, torch, whence
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> checkpoints = [copy.deepcopy(model.state_dict())]  # one every epoch or so
    >>> explainer = whence.methods.TracIn(show_progress=False)
    >>> explainer.fit(model, (x, y), checkpoints=checkpoints, learning_rates=0.1).attribute(x[:3]).shape
    torch.Size([3, 20])
    """

    name: ClassVar[str] = "tracin"
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_checkpoints=True,
        needs_loss=True,
        memory="every checkpoint's weights, and for each what GradDot keeps",
        cost=0.2,
    )

    params: Params = parameter("all", one_of(Params))
    projection: Dimension = parameter("auto", check_dimension)
    loss: Loss | Literal["logit"] | None = parameter(None, check_loss, or_none=True)
    seed: int = parameter(0, a_seed)
    memory: int = parameter(MEMORY, check_count)

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        return GradientRecipe.of(self).learn(training, given["points"])

    def _check_parameters(self) -> None:
        super()._check_parameters()
        GradientRecipe.of(self).check()

    def _check_given(self, model: Any, checkpoints: Any = None, learning_rates: Any = 1.0) -> dict[str, Any]:
        points = read_checkpoints(model, checkpoints)
        return {"points": points, "rates": _check_rates(learning_rates, len(points))}

    def _open(self, fitted: Fitted) -> WeightedProducts:
        return GradientRecipe.of(self).open(fitted)

    def _unsaved(self, fitted: Fitted | None) -> str:
        return UNSAVED.format(type(self).__name__)


def _check_rates(rates: Any, n: int) -> list[float]:
    """Return one learning rate per checkpoint, or raise."""
    given = to_array("learning_rates", rates)
    if given.shape not in ((), (n,)):
        raise InvalidInputError(
            f"'learning_rates' must be a number of at least 0, or one for each of the {n} checkpoints. "
            f"Got {shown(rates)}."
        )
    several = [rates] * n if given.ndim == 0 else list(rates)
    checked = [check_number("learning_rates", rate, 0) for rate in several]
    if max(checked) > _MOST:
        raise InvalidInputError(
            f"'learning_rates' must be at most {_MOST:.0e}, so that scores are finite. Got {shown(rates)}."
        )
    return checked
