"""TracIn: inner products of the gradients of the loss along the course of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from whence.attribution.base import Capabilities, register, share_options
from whence.core.checks import check_number, shown, to_array
from whence.errors import InvalidInputError
from whence.gradients.checkpoints import Checkpoints, read_checkpoints
from whence.methods.graddot import GradientAttributor

_MOST = 1e6  # more than any training takes, and float32 still holds the scores


@register
class TracIn(GradientAttributor):
    """Attribute predictions by inner products of gradients along the course of training.

    With θ_t the weights at checkpoint t and η_t its learning rate, the score of training sample i for class c
    at x is

        τ_c(x, i) = Σ_t η_t ∇ℓ(x, c; θ_t) · ∇ℓ(x_i, y_i; θ_t),

    to first order by how much the steps on sample i decreased the test's loss. **Positive is evidence for
    the target class.** Self-influence is Σ_t η_t ‖∇ℓ(x_i, y_i; θ_t)‖².

    The sum is over the checkpoints only: the model's own weights tell the class for ``target=None``, and
    count when they are among the checkpoints.

    Its parameters are those of ``GradientAttributor``.

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
    # Checkpoints have features and gradients of their own.
    _of_features = False
    kind = None
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_checkpoints=True,
        needs_loss=True,
        memory="every checkpoint's weights, and for each what GradDot keeps",
        cost=0.2,
    )

    @share_options
    def fit(
        self,
        model: Any = None,
        data: Any = None,
        y: Any = None,
        *,
        checkpoints: Checkpoints | None = None,
        learning_rates: float | Sequence[float] = 1.0,
        **options: Any,
    ) -> Self:
        """Fit to a trained classifier, its training set, and its weights in the course of training.

        Parameters
        ----------
        checkpoints
            State dicts, models, or paths of files with a state dict, of safetensors or ``torch.save``.
        learning_rates
            One for all checkpoints, which only scales the scores, or one per checkpoint.
        """
        more = {"checkpoints": checkpoints, "learning_rates": learning_rates, **options}
        fitted: Self = super().fit(model, data, y, **more)
        return fitted

    def _check_given(
        self, model: Any, gradients: Any = None, checkpoints: Any = None, learning_rates: Any = 1.0
    ) -> dict[str, Any]:
        given, points = super()._check_given(model, gradients), read_checkpoints(model, checkpoints)
        return {**given, "points": points, "rates": _check_rates(learning_rates, len(points))}


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
