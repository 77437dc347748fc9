"""Representer Points: a last layer that is a weighted sum of the training samples' features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.attribution.parameters import one_of, parameter
from whence.core.arrays import Doubles
from whence.core.checks import check_flag, check_positive
from whence.core.contents import Layout
from whence.core.progress import gap_bar
from whence.errors import ConvergenceWarning, InvalidInputError, warn
from whence.features.training import Classifier, Training
from whence.svm.softmax import fit_softmax

Targets = Literal["labels", "outputs"]
"""The targets of the new last layer: the labels, or the model's probabilities."""

_BLOCK = 1 << 20  # coefficients per block


@dataclass(frozen=True, eq=False)
class Points:
    """A last layer W = Σ_i α_i f_iᵀ with scores τ_c(x, i) = α_ic f_i·f(x), which sum to w_c·f(x) per row.

    Self-influence is α_{i,y_i}‖f_i‖². For a layer that is fitted to labels it is never negative, and large if
    the layer does not fit the sample's label.

    Parameters
    ----------
    arrays
        The result of ``pack_points``.
    labels
        Labels of the training samples (N,).
    constant
        The constant that is appended to the features for the bias, 0 without one.
    """

    arrays: Mapping[str, Tensor]
    labels: Tensor
    constant: float

    @property
    def coef(self) -> Doubles:
        """Weights (class, d) of the new last layer, the bias last."""
        return self.arrays["coef"].cpu().numpy()

    @property
    def alpha(self) -> Tensor:
        """Coefficients (train, class): global attributions, positive is evidence for the class."""
        return self.arrays["alpha"].T

    @property
    def residual(self) -> float:
        """‖W − Σ_i α_i f_iᵀ‖ / ‖W‖."""
        return float(self.arrays["residual"])

    def between(self, tests: Tests) -> Tensor:
        """Compute scores (B, N) of tests."""
        features = tests.features
        classes, square = tests.targets.to(features.device), self.constant**2
        scores = torch.addmm(features.new_full((1,), square), features, self.arrays["features"].T)
        width = max(1, _BLOCK // max(1, scores.shape[1]))
        for part, chosen in zip(torch.split(scores, width), torch.split(classes, width), strict=True):
            part *= self.arrays["alpha"][chosen]
        return scores

    def squares(self) -> Tensor:
        """Compute self-influences (N,) of the training samples for their labels."""
        features = self.arrays["features"]
        norms = torch.einsum("nd,nd->n", features, features) + self.constant**2
        return norms * self.arrays["alpha"].gather(0, self.labels[None])[0]


def pack_points(training: Training, alpha: Doubles, weight: Doubles, residual: float) -> dict[str, Tensor]:
    """Return the learned tensors for coefficients α (N, K) and weights (K, d)."""
    device = training.features.device
    return {
        "features": training.features,
        "alpha": torch.as_tensor(alpha.T, dtype=torch.float32, device=device).contiguous(),
        "coef": torch.as_tensor(weight),
        "residual": torch.tensor(residual, dtype=torch.float64),
    }


def points_layout(classifier: Classifier, bias: bool) -> Layout:
    """Return the shapes of the tensors of ``pack_points``."""
    columns = classifier.weight.shape[1] + bias
    return {"features": ("N", "d"), "alpha": ("K", "N"), "coef": ("K", columns), "residual": ()}


def rows_with(training: Training, constant: float | None) -> Doubles:
    """Return features (N, d) in float64, with the constant of the bias as a last column."""
    X: Doubles = training.features.double().cpu().numpy()
    return X if constant is None else np.concatenate([X, np.full((len(X), 1), constant)], axis=1)


@register
@dataclass(eq=False)
class Representer(Attributor):
    """Attribute predictions by Representer Points: a last layer retrained with an ℓ2 penalty.

    At the minimum W of (1/N) Σ_i ℓ(W f_i, y_i) + l2‖W‖², where ℓ is the cross-entropy and y_i the training
    labels, W = Σ_i α_i f_iᵀ with α_ic = −(1/(2 l2 N)) ∂ℓ_i/∂logit_c = (δ_{c,y_i} − p_ic)/(2 l2 N). The score
    of training sample i for class c at x is τ_c(x, i) = α_ic f_i·f(x), **positive is evidence for the target
    class**, and the scores of all samples sum to the new layer's logit w_c·f(x).

    Parameters
    ----------
    l2
        Weight of the penalty. Smaller values fit the labels more closely, with weight on fewer samples.
    targets
        The targets of the new layer: "labels", or "outputs", the model's probabilities q_ic instead of
        δ_{c,y_i}. Then α does not depend on the labels and cannot show wrong ones.
    bias
        Append a constant 1 to the features, so that the bias is penalised and attributed too.
    tol
        Residual to reach.

    Attributes
    ----------
    coef_ : (class, d) float64 weights W, with the bias as a last column when ``bias`` is set
    alpha_ : (train, class) float32, α: the global attributions
    residual_ : float, ‖W − Σ_i α_i f_iᵀ‖ / ‖W‖, the relative error of the sum of scores

    Examples
    --------
    >>> import torch, whence
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> explainer = whence.methods.get("representer")(show_progress=False).fit(model, (x, y))
    >>> explainer.attribute(x[:3]).shape
    torch.Size([3, 20])
    """

    name: ClassVar[str] = "representer"
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_loss=True,
        last_layer_only=True,
        memory="N × (d + K); in float64 and N × d twice while fitting",
        cost=0.2,
        own_class_only=True,
        new_layer=True,
    )

    l2: float = parameter(3e-3, check_positive)
    bias: bool = parameter(True, check_flag)
    tol: float = parameter(1e-10, check_positive)
    targets: Targets = parameter("labels", one_of(Targets))

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        X, labels = rows_with(training, 1.0 if self.bias else None), training.labels.cpu().numpy()
        if self.targets == "outputs":
            logits = training.classifier.logits(training.features).double().cpu().numpy()
            labels = softmax(logits, axis=1)
        with gap_bar(self.tol, self.show_progress) as bar:
            solution = fit_softmax(X, labels, training.task.n_outputs, self.l2, self.tol, bar)
        with np.errstate(over="ignore"):
            if not np.isfinite(solution.alpha.astype(np.float32)).all():
                raise InvalidInputError(
                    f"'l2' must be large enough for finite coefficients 1/(2 l2 N). Got {self.l2:g}."
                )
        if solution.residual > max(self.tol, 1e-6):
            warn(
                f"The new last layer has a residual of {solution.residual:.1e}, more than 'tol' = "
                f"{self.tol:g}: scores sum to its logits only with this error. Use a larger 'l2' than "
                f"{self.l2:g}.",
                ConvergenceWarning,
            )
        return pack_points(training, solution.alpha, solution.weight, solution.residual)

    def _open(self, fitted: Fitted) -> Points:
        return Points(fitted.arrays, fitted.used_labels, float(self.bias))

    def _layout(self, classifier: Classifier) -> Layout:
        return points_layout(classifier, self.bias)

    def _doubles(self) -> tuple[str, ...]:
        return ("coef", "residual")
