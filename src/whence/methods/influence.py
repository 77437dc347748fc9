"""Influence functions: what a training sample does to a test's loss, to first order in its weight."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.classifier import Classifier, Training
from whence.attribution.parameters import Params, one_of, parameter
from whence.attribution.progress import watched
from whence.core.checks import check_positive
from whence.core.contents import Layout
from whence.errors import InvalidInputError
from whence.gradients.curvature import Curvature, FullCurvature, LastCurvature, residuals
from whence.gradients.gradients import MEMORY, Gradients, outer
from whence.gradients.products import batches_of
from whence.model.inputs import take

_check_damping = partial(check_positive, why=": without it the curvature has no inverse")

_LARGEST = 16_384  # parameters of which a matrix is held: 2.1 GB


@dataclass(eq=False)
class ParamsAttributor(Attributor):
    """A method for the last layer, where features are all it needs, or for all parameters.

    With all parameters most methods read the training set for every explanation, ``_rereads``: nothing of
    theirs is saved then.
    """

    params: Params = parameter("last", one_of(Params))

    _rereads: ClassVar[bool] = True

    @property
    def _of_features(self) -> bool:
        return self.params == "last"

    def _facts(self) -> dict[str, Any]:
        """Return the samples that the curvature is of as well, where they are not all."""
        facts, some = super()._facts(), getattr(self, "n_samples", None)
        n = self.n_train_ - len(self.skipped_)
        return facts if some is None or some >= n else {**facts, "samples of curvature": some}

    def _not_saved(self) -> str:
        if self.params == "last" or not self._rereads:
            return ""
        return (
            f'{type(self).__name__} with params="all" reads the training set for every explanation, so its '
            "cache alone is not worth saving"
        )


@dataclass(eq=False)
class InfluenceAttributor(ParamsAttributor):
    """A method of the form τ_c(x, i) = (1/N) g(x, c)ᵀ M g_i with M near (G + damping·I)⁻¹.

    g and G are the gradients and the matrix of ``whence.gradients.curvature``. A positive score
    is evidence for the target class: the sample holds its loss down. A method writes ``_learn``,
    ``_products`` and ``_self_influence``.
    """

    damping: float = parameter(1e-3, _check_damping)

    def _scores(self, features: Tensor, classes: Tensor, x: Any) -> Tensor:
        head = self._head()
        last = self.params == "last"
        P = head.weight.numel() if last else sum(p.numel() for p in head.model.parameters())
        width = max(1, MEMORY // (8 * P))
        gradients = _last_gradients if last else _all_gradients
        parts = []
        for start in range(0, len(features), width):
            some = slice(start, start + width)
            given = features[some] if last else take(x, some)
            parts.append(self._products(gradients(head, given, classes[some])))
        return torch.cat(parts).div_(len(self._labels))

    @abstractmethod
    def _products(self, gradients: Tensor) -> Tensor:
        """g(x, c)ᵀ M g_i (B, N) for gradients (B, P) of tests."""

    def _open(self, training: Training) -> Curvature:
        """Return the curvature to learn from."""
        if self.params == "all":
            return FullCurvature(training.classifier, training.batches)
        classifier, f, labels = training.classifier, training.features, training.labels
        return LastCurvature(classifier.with_bias(f), residuals(classifier.logits(f), labels), labels)


class SolvingAttributor(InfluenceAttributor):
    """An influence method that solves (G + damping·I) v = g for every test, and then meets all g_i.

    A method writes ``_learn`` and ``_solve``; the last layer's gradients are in the cache, and those of all
    parameters are computed again from the training set, which is kept as ``_all``.
    """

    def _self_influence(self) -> Tensor:
        n = len(self._labels)
        gradients = watched(self._curvature().train(), n, "Self-influence", self.show_progress)
        parts = [torch.einsum("np,np->n", rows, self._solve(rows).to(rows)) for rows in gradients]
        return torch.cat(parts).div_(n)

    @abstractmethod
    def _solve(self, gradients: Tensor) -> Tensor:
        """M applied to rows (B, P)."""

    def _products(self, gradients: Tensor) -> Tensor:
        return self._curvature().scores(self._solve(gradients))

    def _curvature(self) -> Curvature:
        """Return the curvature that was fitted."""
        if self.params == "all":
            return self._all
        return LastCurvature(self._cache["rows"], self._cache["residual"], self._labels)

    _doubles: ClassVar[tuple[str, ...]] = ("residual", "factor", "scale")

    def _layout(self, classifier: Classifier) -> Layout:
        return {"rows": ("N", "e"), "residual": ("N", "K")}

    def _kept(self, curvature: Curvature) -> dict[str, Tensor]:
        """Keep a curvature for explaining: the last layer's in the cache."""
        if isinstance(curvature, LastCurvature):
            return {"rows": curvature.rows, "residual": curvature.residual}
        self._all = curvature
        return {}


@register
@dataclass(eq=False)
class Influence(SolvingAttributor):
    """Attribute predictions by influence functions of the last layer, exactly.

    The score of training sample i for class c at x is τ_c(x, i) = (1/N) g(x, c)ᵀ (H + damping·I)⁻¹ g_i. Here
    g is the gradient of the cross-entropy with respect to the last layer, bias included, of x for class c
    and of i for its label, and H is the Hessian of the mean training loss: the matrix itself, factorised
    once. The score is to first order what the loss of x for c grows by when i is left out and the last layer
    is trained again, so **positive is evidence for the target class**. (Some publications have the other
    sign.)

    Parameters
    ----------
    damping
        Added to the diagonal of H, above 0: the strength d of a penalty ½d‖W − Ŵ‖² that keeps the layer near
        the trained Ŵ.
    batch_size, show_progress
        As for every method, see ``Attributor``.

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

    params: Params = field(default="last", init=False, repr=False)

    def _learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        layer = self._open(training)
        assert isinstance(layer, LastCurvature)
        if layer.n_parameters > _LARGEST:
            raise InvalidInputError(
                f"The last layer must have at most {_LARGEST:,} parameters for its Hessian to be held. Got "
                f'{layer.n_parameters:,}. Use EK-FAC or Arnoldi with params="last" instead.'
            )
        H = layer.matrix(show_progress=self.show_progress)
        H.diagonal().add_(self.damping)
        factor, fault = torch.linalg.cholesky_ex(H)
        if fault:
            raise InvalidInputError(
                f"'damping' must be large enough for the Hessian to have an inverse. Got {self.damping:g}."
            )
        return {**self._kept(layer), "factor": factor}

    def _layout(self, classifier: Classifier) -> Layout:
        P = classifier.n_parameters
        return {**super()._layout(classifier), "factor": (P, P)}

    def _solve(self, gradients: Tensor) -> Tensor:
        return torch.cholesky_solve(gradients.double().T, self._cache["factor"]).T


def _last_gradients(classifier: Classifier, features: Tensor, classes: Tensor) -> Tensor:
    """Gradients (B, P) of the loss by the last layer, for features (B, d) and classes (B,)."""
    residual = residuals(classifier.logits(features), classes)
    return outer(residual.to(features), classifier.with_bias(features))


def _all_gradients(classifier: Classifier, x: Any, classes: Tensor) -> Tensor:
    """Gradients (B, P) of the loss by all trainable parameters, for inputs and classes (B,)."""
    gradients = Gradients(classifier)
    batches = batches_of(classifier, x, classes)
    return torch.cat([rows for batch in batches for rows in gradients(*batch)])
