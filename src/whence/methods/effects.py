"""Effects: what would change without a sample, foretold by a surrogate that answers to each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from whence.attribution.base import Capabilities, register
from whence.attribution.classifier import Training, task_of
from whence.attribution.explainer import Parts, Scored
from whence.attribution.parameters import one_of, parameter
from whence.attribution.progress import watched
from whence.attribution.surrogate_attributor import SurrogateAttributor
from whence.core import store
from whence.core.arrays import Array, Doubles
from whence.data import Targets
from whence.errors import InvalidInputError
from whence.explanation import EffectOf
from whence.model.bound import BoundModel
from whence.model.layers import Asked, check_layers
from whence.surrogate.groups import GroupEffect, foretold, group_effect
from whence.surrogate.outputs import Output, slopes
from whence.surrogate.response import Response
from whence.surrogate.ridge import RidgeResponse, RidgeSolver
from whence.surrogate.softmax import SoftmaxSolver
from whence.surrogate.solutions import SurrogateSolver
from whence.surrogate.surrogate import Surrogate
from whence.tasks import Regression, Task

_HELD = 1 << 22  # numbers of pulls at the weights, or of scores, that are held at a time


@register
@dataclass(eq=False)
class Effects(SurrogateAttributor):
    """Foretell what would change if a training sample were gone and the model trained again.

    The score of sample i for class c at x is what its presence adds to the output for c: **positive when
    the sample raises the output of the target class**. τ of ``DualDA`` says what a logit is made of; an
    effect says what would be missing, which others may make up for.

    The surrogate is softmax regression on the model's features, min_W ½‖W‖² + C Σ_i ℓ(W f_i, y_i), whose
    W = Σ_i λ_i f_iᵀ with λ_i = C (e_{y_i} − p_i). When sample i goes, W changes by −H⁻¹ (λ_i ⊗ f_i) to first
    order, with H the Hessian: the others take up what they can. An output whose derivative by the logits is
    s changes by −(s ⊗ f(x))ᵀ H⁻¹ (λ_i ⊗ f_i), and the score is the opposite of that.

    Of numbers the surrogate is ridge regression, with ½‖t_i − W f_i‖² instead of ℓ, t being the targets
    less their mean and in units of their deviation, and effects are on the prediction, in the targets' own
    units. What one sample does exactly is then its score over 1 − C f_iᵀH⁻¹f_i.

    Features of several layers foretell best: the last layer's alone leaves out how those before it learn.

    Parameters
    ----------
    C
        Weight of the loss; "auto" is 10,000/Σ_i‖f_i‖², or the smaller one at which the surrogate's loss on
        the training set is the network's own: it should not know better.
    bias
        Append a constant to the features, as ``DualDA`` does.
    layers
        Which layers features come from, as for ``DualDA``; "auto" takes up to 5 of all.
    tol
        Relative duality gap of the surrogate. Newton's method comes to a small one in a step more, and what
        ``effect_of`` calls exact is the difference of two surrogates.
    seed
        Draws the samples that tell how well the surrogate agrees with the model.
    n_threads
        Threads of the solver; None leaves it to the solver.
    max_seconds
        Limit of each solution: of those that choose C, and of the surrogate's own.
    device
        Where the features and scores are computed; None is the model's device, or the CPU for features.
    output
        What is foretold of the target class: "logit", its logit; "margin", that less the largest other;
        "log_prob", the logarithm of its probability.
    batch_size, show_progress
        As for every method, see ``Attributor``.

    Attributes
    ----------
    response_ : Response, how the surrogate's weights answer to a pull at them, H⁻¹

    Also what ``DualDA`` has of its surrogate, here of the softmax surrogate: ``lam_``, ``coef_``, ``C_``,
    ``gap_``, ``agreement_`` and so on. Every sample is a support vector.

    Examples
    --------
    >>> import torch, whence
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> explainer = whence.Effects(show_progress=False).fit(model, (x, y))
    >>> explainer.attribute(x[:3]).shape
    torch.Size([3, 20])
    """

    name: ClassVar[str] = "effects"
    classes_only = False
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_loss=True,
        last_layer_only=False,
        memory="N × (d + K), and the square of d, or of N where that is less",
        cost=20.0,
        new_layer=True,
        tasks=("class", "number"),
        explains=True,
        effects=True,
    )

    tol: float = 1e-10
    layers: Asked | list[str] = parameter("auto", check_layers)
    output: Output = parameter("logit", one_of(Output))

    @property
    def _of_numbers(self) -> bool:
        return isinstance(self.task_, Regression)

    def _check_task(self, targets: Targets) -> None:
        task = task_of(targets)
        if not isinstance(task, Regression):
            task.require_classes("The model of Effects")
        elif self.output != "logit":
            raise InvalidInputError(
                f"'output' must be \"logit\" where labels are numbers: the prediction itself. "
                f"Got {self.output!r}."
            )

    def effect_of(
        self,
        x: Any,
        target: Any = None,
        *,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        training_features: Any = None,
    ) -> GroupEffect:
        """Foretell what becomes of a batch of inputs without a set of samples, or with other labels.

        To first order that is the sum of what each of them does; exactly, the surrogate is solved again from
        there. **Negative where the samples raise the target's output.** Print the record to see both, and
        whether they part.

        Parameters
        ----------
        x, target
            As for ``attribute``.
        remove
            Training samples to leave out.
        relabel
            New labels of training samples.
        training_features
            Features (train, d) of all training samples, an array or a FeatureBank; None computes them again.
        """
        return group_effect(self, self._read(x, target), remove, relabel, training_features)

    def effect_of_features(
        self,
        features: Any,
        target: Any = None,
        *,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        training_features: Any = None,
    ) -> GroupEffect:
        """``effect_of`` of features (B, d)."""
        return group_effect(self, self._given(features, target), remove, relabel, training_features)

    def foretold_of_features(
        self,
        features: Any,
        target: Any = None,
        *,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        training_features: Any = None,
    ) -> Doubles:
        """``first_order`` of ``effect_of_features`` alone, (B,): nothing is solved again."""
        return foretold(self, self._given(features, target), remove, relabel, training_features)

    def total(self, parts: Iterable[tuple[Tensor, Tensor]]) -> Doubles:
        """Effects (train,) of every sample on the sum of the outputs for tests, in one answer of W.

        Parameters
        ----------
        parts : features (b, d) of tests and their classes (b,), some at a time
        """
        vectors = self._extended(self.surrogate_.vectors)
        pull = torch.zeros(self.n_classes_, vectors.shape[1], dtype=torch.float64, device=vectors.device)
        for features, classes in parts:
            f = self._extended(features.to(vectors)).double()
            pull += self._slopes(features.to(vectors), classes).T @ f
        answer = self.response_(pull[None])[0]
        found = ((vectors.double() @ answer.T) * self._coefficients).sum(1)
        out = np.zeros(self.n_train_)
        out[self.support_] = found.cpu().numpy()
        return out

    @cached_property
    def response_(self) -> Response | RidgeResponse:
        """How the surrogate's W answers to a pull at it: H⁻¹."""
        self.check_fitted()
        if self._of_numbers:
            return RidgeResponse(self._extended(self.surrogate_.vectors), self.C_)
        own = torch.as_tensor(self.labels_[self.support_], device=self._coefficients.device)
        chances = -self._coefficients / self.C_
        chances[torch.arange(len(own), device=own.device), own] += 1.0
        return Response(self._extended(self.surrogate_.vectors), chances.clamp(0.0, 1.0), self.C_)

    @property
    def foretold_(self) -> EffectOf:
        """What the effects are on."""
        self.check_fitted()
        return EffectOf(self.output, "ridge regression" if self._of_numbers else "softmax surrogate")

    def scored(self, features: Tensor, target: int) -> Scored:
        """Effects of all samples on one test with features (1, d)."""
        found = self._effects(features, torch.tensor([target]))[0]
        return Scored(self.support_, found.cpu().numpy())

    def parts(self, features: Tensor, target: int, indices: Sequence[int]) -> Parts:
        """Return what effects are at the features of either sample, which they are linear in."""
        test, d = self._extended(features).double(), features.shape[1]
        slopes = self._slopes(features, torch.tensor([target]))[0]  # (K,)
        rows = self.surrogate_.rows(indices)
        vectors, lam = self.surrogate_.vectors[rows], self._coefficients[rows]
        answer = self.response_((slopes[:, None] * test)[None])[0]  # (K, D)
        pulls = lam[:, :, None] * self._extended(vectors).double()[:, None]  # (m, K, D)
        on_test = torch.einsum("k,mkd->md", slopes, self.response_(pulls))
        bias = self.constant_ * on_test[:, d:].sum(1)
        return Parts(vectors, on_test[:, :d], (lam @ answer)[:, :d], bias, None)

    def _effects(self, features: Tensor, classes: Tensor) -> Tensor:
        """Effects (B, S) on tests with features (B, d), in float64, some tests at a time."""
        vectors, lam = self._extended(self.surrogate_.vectors), self._coefficients
        width = max(1, _HELD // (max(vectors.shape) * self.n_classes_))
        parts = []
        for f, c in zip(torch.split(features, width), torch.split(classes, width), strict=True):
            pulls = self._slopes(f, c)[:, :, None] * self._extended(f).double()[:, None]
            answers = self.response_(pulls)  # (b, K, D)
            found = answers.new_zeros(len(f), len(vectors))
            for k in range(self.n_classes_):  # class by class: no array of tests, samples and classes
                found += (answers[:, k].to(vectors) @ vectors.T) * lam[:, k]
            parts.append(found)
        return torch.cat(parts) if parts else lam.new_zeros(0, len(vectors))

    def _scores(self, features: Tensor, classes: Tensor, x: Any) -> Tensor:
        out = features.new_zeros(len(features), len(self._labels))
        out[:, self._places] = self._effects(features, classes).to(out)
        return out

    def _self_influence(self) -> Tensor:
        vectors, own = self.surrogate_.vectors, self._labels[self._places].cpu()
        width = max(1, _HELD // (max(vectors.shape) * self.n_classes_))
        parts = []
        rows = torch.split(torch.arange(len(vectors)), width)
        for some in watched(rows, len(vectors), "Self-influence", self.show_progress):
            f, lam = vectors[some], self._coefficients[some]
            pulls = self._slopes(f, own[some])[:, :, None] * self._extended(f).double()[:, None]
            moves = lam[:, :, None] * self._extended(f).double()[:, None]
            parts.append((self.response_(pulls) * moves).sum((1, 2)))
        out = vectors.new_zeros(len(self._labels))
        out[self._places] = torch.cat(parts).to(out)
        return out

    def _slopes(self, features: Tensor, classes: Tensor) -> Tensor:
        """Return the output's derivative (B, K) by the surrogate's logits of features (B, d)."""
        return slopes(self.output, self.surrogate_.logits(features), classes)

    def _extended(self, features: Tensor) -> Tensor:
        """Return features (B, D) with the constant that carries the bias."""
        if not self.constant_:
            return features
        return torch.cat([features, features.new_full((len(features), 1), self.constant_)], dim=1)

    def solver(self, task: Task) -> SurrogateSolver:
        """Return what solves the surrogate of a task."""
        return RidgeSolver(task, self) if isinstance(task, Regression) else SoftmaxSolver(task, self)

    def turned(self, labels: Array, before: Array) -> Doubles:
        """Return what other labels (n, …) add to the pull of samples, (n, K), for features as they are."""
        if isinstance(self.task_, Regression):
            return self.C_ * (labels - before).reshape(len(labels), self.n_classes_).astype(np.float64)
        found, at = np.zeros((len(labels), self.n_classes_)), np.arange(len(labels))
        found[at, labels] += self.C_
        found[at, before] -= self.C_
        return found

    def _learn(self, training: Training, **given: Any) -> Surrogate:
        return self._surrogate(training)

    def _keep(self, surrogate: Surrogate) -> None:
        self._take(surrogate)
        self.__dict__.pop("response_", None)  # of a fit before
        place = surrogate.stored.like.device
        self._coefficients = torch.as_tensor(self.lam_[self.support_].toarray(), device=place)  # (S, K)
        among = np.searchsorted(np.flatnonzero(self.used_), self.support_)
        self._places = torch.as_tensor(among, device=place)

    def _restore(self, arrays: store.Arrays, manifest: Any, bound: BoundModel | None) -> None:
        self._keep(self._restore_surrogate(arrays, manifest, bound))
