"""Influence functions of the last layer: the first-order effect of a training sample on a test's loss."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.attribution.parameters import parameter
from whence.core.contents import Layout
from whence.errors import InvalidInputError
from whence.features.training import Classifier, Training
from whence.gradients.curvature import (
    LastCurvature,
    check_damping,
    fitted_curvature,
    solved_scores,
    solved_squares,
    training_curvature,
)

_LARGEST = 16_384  # maximum number of parameters for a dense Hessian of 2.1 GB


@register
@dataclass(eq=False)
class Influence(Attributor):
    """Attribute predictions by influence functions of the last layer, exactly.

    The score of training sample i for class c at x is τ_c(x, i) = (1/N) g(x, c)ᵀ (H + damping·I)⁻¹ g_i. Here
    g is the gradient of the cross-entropy with respect to the last layer, bias included, of x for class c
    and of i for its label, and H is the dense Hessian of the mean training loss, factorised once. The score
    is the first-order increase of the loss of x for c when i is left out and the last layer is retrained, so
    **positive is evidence for the target class**. (Some publications use the opposite sign.)

    Parameters
    ----------
    damping
        Added to the diagonal of H, above 0: the strength d of a penalty ½d‖W − Ŵ‖² that keeps the layer near
        the trained Ŵ.

    Examples
    --------
    >>> import torch, whence
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> explainer = whence.methods.get("influence")(show_progress=False).fit(model, (x, y))
    >>> explainer.attribute(x[:3]).shape
    torch.Size([3, 20])
    """

    name: ClassVar[str] = "influence"
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_loss=True,
        last_layer_only=True,
        memory="N × (d + K), and the square of K × d",
        cost=0.1,
    )

    damping: float = parameter(1e-3, check_damping)

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        layer = training_curvature(training, last=True)
        assert isinstance(layer, LastCurvature)
        if layer.n_parameters > _LARGEST:
            raise InvalidInputError(
                f"The last layer must have at most {_LARGEST:,} parameters for a dense Hessian. Got "
                f'{layer.n_parameters:,}. Use EK-FAC or Arnoldi with params="last" instead.'
            )
        H = layer.matrix(show_progress=self.show_progress)
        H.diagonal().add_(self.damping)
        factor, fault = torch.linalg.cholesky_ex(H)
        if fault:
            raise InvalidInputError(
                f"'damping' must be large enough to make the Hessian invertible. Got {self.damping:g}."
            )
        return {**layer.kept, "factor": factor}

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        solve = partial(_solve, fitted.arrays["factor"])
        return solved_scores(fitted.classifier, fitted.scorer, tests, True, solve)

    def score_self(self, fitted: Fitted) -> Tensor:
        return solved_squares(fitted.scorer, partial(_solve, fitted.arrays["factor"]), self.show_progress)

    def _open(self, fitted: Fitted) -> Any:
        return fitted_curvature(fitted, last=True)

    def _layout(self, classifier: Classifier) -> Layout:
        P = classifier.n_parameters
        return {"rows": ("N", "e"), "residual": ("N", "K"), "factor": (P, P)}

    def _doubles(self) -> tuple[str, ...]:
        return ("residual", "factor")


def _solve(factor: Tensor, gradients: Tensor) -> Tensor:
    """Apply (H + damping·I)⁻¹ to rows (B, P), by its Cholesky factor."""
    return torch.cholesky_solve(gradients.double().T, factor).T
