"""TRAK: influence on the margin, in a random projection of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.attribution.parameters import Params, a_seed, one_of, parameter
from whence.core.checks import check_count, check_number
from whence.core.contents import Layout
from whence.core.projection import Dimension, check_dimension, projection_for
from whence.errors import InvalidInputError
from whence.features import FeatureBank
from whence.features.training import Classifier, Training
from whence.gradients.bank import GradientBank, Kind, check_gradients, collect, training_rows
from whence.gradients.checkpoints import UNSAVED, read_checkpoints
from whence.gradients.gradients import MEMORY, Weights, margin
from whence.gradients.products import LastLayerGradients, Stored

_BLOCK = 1024  # rows per block in float64


@register
@dataclass(eq=False)
class TRAK(Attributor):
    """Attribute predictions by a linear model of the margin in projected gradients.

    Where m(x, c) = log(p_c / (1 − p_c)) is the margin of class c, φ(x, c) = S ∇m(x, c) its gradient in k
    random projections, and Φ (N, k) has the rows φ_i = φ(x_i, y_i) of the training set, the score of training
    sample i for class c at x is

        τ_c(x, i) = φ(x, c)ᵀ (ΦᵀΦ + λI)⁻¹ φ_i (1 − p_i),

    where p_i is the probability of the training label: the first-order decrease of the margin without
    sample i. **Positive is evidence for the target class.** With several checkpoints, the mean over them of
    φᵀ(ΦᵀΦ + λI)⁻¹φ_i is multiplied by the mean of 1 − p_i.

    Besides the arguments of all methods, ``fit`` takes ``checkpoints``: an ensemble instead of the model's
    own weights, which then only predict the class for ``target=None``: models of its architecture, state
    dicts, or paths of files with one. Or ``gradients``: the result of ``collect`` for the bank passed as
    ``features``, at the model's own weights, so that several ridges share one pass through the model.

    Parameters
    ----------
    params
        "all": gradients by all parameters with ``requires_grad``. "last": by the last layer's weight and
        bias, frozen or not.
    projection
        k, at most the number of parameters. "auto" is 2,048, or no projection for fewer parameters. None: no
        projection.
    ridge
        λ as a multiple of tr(ΦᵀΦ) / min(k, N), the mean of the eigenvalues of ΦᵀΦ that can be nonzero.
        Without it, the inverse of ΦᵀΦ is dominated by noise for k near N.
    seed
        Seed of the projection; checkpoint j uses seed + j.
    memory
        Limit in bytes for gradients and activations.

    Examples
    --------
    >>> import torch, whence
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> whence.methods.TRAK(show_progress=False).fit(model, (x, y)).attribute(x[:3]).shape
    torch.Size([3, 20])
    """

    name: ClassVar[str] = "trak"
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_loss=True,
        memory="N × k projections, k × k while fitting, for each model of an ensemble its weights too",
        cost=0.25,
    )

    params: Params = parameter("all", one_of(Params))
    projection: Dimension = parameter("auto", check_dimension)
    ridge: float = parameter(1.0, partial(check_number, least=0))
    seed: int = parameter(0, a_seed)
    memory: int = parameter(MEMORY, check_count)

    def learn(
        self,
        training: Training,
        points: Sequence[Weights | None] = (None,),
        gradients: GradientBank | None = None,
        **given: Any,
    ) -> dict[str, Tensor]:
        arrays: dict[str, Tensor] = {}
        residuals, squares = [], []
        for j, stored in enumerate(self._stored(training.classifier, points)):
            collected = training_rows(training, stored, gradients, self.show_progress)
            solved = self._solve(collected.rows)
            arrays[f"{j}.solved"] = solved
            residuals.append(torch.sigmoid(-collected.values))  # 1 − p, from log(p / (1 − p))
            squares.append(torch.einsum("nk,nk->n", collected.rows, solved))
        arrays["doubt"] = torch.stack(residuals).mean(0)
        arrays["own"] = torch.stack(squares).mean(0) * arrays["doubt"]
        return arrays

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        scores: Tensor | float = 0.0
        for j, stored in enumerate(fitted.scorer):
            kept = {"rows": fitted.arrays[f"{j}.solved"]}
            scores = stored.between(kept, tests.x, tests.features, tests.targets) + scores
        return scores * (fitted.arrays["doubt"] / len(fitted.scorer))

    def score_self(self, fitted: Fitted) -> Tensor:
        return fitted.arrays["own"]

    @property
    def kind(self) -> Kind | None:
        """The kind of stored gradients at the model's own weights; None for the last layer."""
        return Kind(margin, self.projection, self.seed) if self.params == "all" else None

    def collect(self, features: FeatureBank) -> GradientBank:
        """Compute the gradients of a training set for all methods with the same kind."""
        self._check_parameters()
        return collect(self, features)

    def _check_given(self, model: Any, checkpoints: Any = None, gradients: Any = None) -> dict[str, Any]:
        if checkpoints is not None and gradients is not None:
            raise InvalidInputError(
                "'gradients' must be None with 'checkpoints', because gradients are at the model's own "
                "weights. Got both."
            )
        if checkpoints is not None:
            return {"points": read_checkpoints(model, checkpoints)}
        return check_gradients(self, gradients)

    def _open(self, fitted: Fitted) -> list[Stored]:
        return self._stored(fitted.classifier, fitted.given.get("points", (None,)))

    def _layout(self, classifier: Classifier) -> Layout:
        (stored,) = self._stored(classifier, (None,))
        return {"0.solved": ("N", stored.width), "doubt": ("N",), "own": ("N",)}

    def _unsaved(self, fitted: Fitted | None) -> str:
        ensemble = fitted is not None and "points" in fitted.given
        return UNSAVED.format(type(self).__name__) if ensemble else ""

    def _stored(self, classifier: Classifier, points: Sequence[Weights | None]) -> list[Stored]:
        """Return the computation of gradients and products at each set of weights."""
        if self.params == "all":
            kinds = [Kind(margin, self.projection, self.seed + j) for j in range(len(points))]
            how = classifier, self.memory, self.show_progress
            return [kind.stored(*how, weights) for kind, weights in zip(kinds, points, strict=True)]
        gradients = LastLayerGradients(classifier, margin, self.memory)
        projections = (
            projection_for(self.projection, gradients.n_parameters, self.seed + j) for j in range(len(points))
        )
        pairs = zip(projections, points, strict=True)
        return [Stored(gradients, projection, weights) for projection, weights in pairs]

    def _solve(self, rows: Tensor) -> Tensor:
        """Compute (ΦᵀΦ + λI)⁻¹φ_i for each row φ_i of Φ (N, k), in float64."""
        k = rows.shape[1]
        square = torch.zeros(k, k, dtype=torch.float64, device=rows.device)
        for part in map(Tensor.double, torch.split(rows, _BLOCK)):
            square.addmm_(part.T, part)
        square.diagonal().add_(self.ridge * square.trace() / min(rows.shape))
        factor, fault = torch.linalg.cholesky_ex(square)
        if fault:
            raise InvalidInputError(
                f"'ridge' must be above 0 if ΦᵀΦ is singular, as with {k:,} projections of "
                f"{len(rows):,} samples' gradients. Got {self.ridge!r}. Choose a ridge, or fewer projections."
            )
        solved = torch.empty_like(rows)
        for part, out in zip(torch.split(rows, _BLOCK), torch.split(solved, _BLOCK), strict=True):
            out.copy_(torch.cholesky_solve(part.double().T, factor).T)
        return solved
