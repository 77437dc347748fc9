"""Effects: what would change without a training sample, predicted by a softmax surrogate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from whence.attribution import surrogates
from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.attribution.parameters import one_of, parameter
from whence.attribution.training_features import all_features
from whence.core.arrays import Doubles
from whence.core.checks import check_count, check_flag, check_is, check_places
from whence.errors import InvalidInputError
from whence.features.metric import LearnsMap, MetricName, check_metric
from whence.features.training import Training
from whence.model.layers import Asked, check_layers
from whence.surrogate.agreement import Faithfulness
from whence.surrogate.effects import EffectScorer, Output
from whence.surrogate.fitting import fit_surrogate
from whence.surrogate.flips import Flip, find_flips
from whence.surrogate.group_effects import GroupEffect, first_order_effect, group_effect, logit_changes
from whence.surrogate.smooth import RidgeSolver, SoftmaxSolver
from whence.surrogate.solving import SurrogateSolver
from whence.surrogate.surrogate import Surrogate
from whence.tasks import Task

if TYPE_CHECKING:
    from whence.features import Novelty


@register
@dataclass(eq=False)
class Effects(Attributor):
    """Predict what would change if a training sample were removed and the model retrained.

    The score of sample i for class c at x is what its presence adds to the output for c: **positive when
    the sample raises the output of the target class**. τ of ``DualDA`` says what a logit is made of; an
    effect says what would be missing after the other samples have partly replaced it.

    The surrogate is softmax regression on the model's features, min_W ½‖W‖² + C Σ_i ℓ(W f_i, y_i), with
    W = Σ_i λ_i f_iᵀ and λ_i = C (e_{y_i} − p_i). Without sample i, W changes by −H⁻¹ (λ_i ⊗ f_i) to first
    order, where H is the Hessian. An output whose derivative by the logits is s changes by
    −(s ⊗ f(x))ᵀ H⁻¹ (λ_i ⊗ f_i), and the score is the negative of that.

    For regression the surrogate is ridge regression, with ½‖t_i − W f_i‖² instead of ℓ, where t are the
    standardised targets; effects are on the prediction, in the targets' own units. The exact effect of one
    sample is then its score over 1 − C f_iᵀH⁻¹f_i.

    Features of several layers predict best: the last layer alone ignores how earlier layers learn.

    Parameters
    ----------
    C
        Weight of the loss; "auto" is 10,000/Σ_i‖f_i‖², or a smaller value if the surrogate's loss on the
        training set would otherwise be below the network's.
    bias
        Append a constant to the features, as ``DualDA`` does.
    layers
        Layers of the features, as for ``DualDA``; "auto" takes up to 5 of all. "tangent", gradients of the
        logits next to what goes into each layer, predicts retraining as well or better and costs more.
    tol
        Relative duality gap of the surrogate. A small gap costs Newton's method one more step, and the exact
        result of ``effect_of`` is a difference of two surrogates.
    seed
        Draws the samples on which agreement with the model is measured.
    n_threads
        Threads of the solver; None lets the solver choose.
    max_seconds
        Time limit of each solution, including those that choose C.
    device
        Device of features and scores; None is the model's device, or the CPU for features.
    output
        Output of the target class: "logit"; "margin", the logit minus the largest other one; "log_prob", the
        logarithm of its probability.
    metric
        The feature metric, as for ``DualDA``.
    batch_size, show_progress
        As for every method, see ``Attributor``.

    Attributes
    ----------
    Those of ``DualDA``'s surrogate, here for the softmax surrogate: ``lam_``, ``coef_``, ``C_``,
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
    learned: ClassVar[tuple[str, ...]] = surrogates.LEARNED
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_loss=True,
        last_layer_only=False,
        memory="N × (d + K), and a factor of up to 1 GB",
        cost=20.0,
        new_layer=True,
        tasks=("class", "number"),
        explains=True,
        effects=True,
    )

    C: float | Literal["auto"] = "auto"
    bias: bool = True
    tol: float = 1e-10
    seed: int = 0
    n_threads: int | None = None
    max_seconds: float | None = None
    device: str | torch.device | None = None
    layers: Asked | list[str] = parameter("auto", check_layers)
    output: Output = parameter("logit", one_of(Output))
    metric: MetricName | LearnsMap = parameter("raw", check_metric)

    def effect_of(
        self,
        x: Any = None,
        target: Any = None,
        *,
        features: Any = None,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        training_features: Any = None,
    ) -> GroupEffect:
        """Predict how outputs change for a batch of inputs without some samples, or with other labels.

        The first-order prediction is the sum of the samples' effects. The corrected one is one Newton step,
        which allows for samples that stand in for each other. The exact one re-solves the surrogate.
        **Negative if the samples raise the target's output.** Print the result to see all three, and whether
        the first and the last disagree.

        Parameters
        ----------
        x, target, features
            As for ``attribute``.
        remove
            Training samples to leave out.
        relabel
            New labels of training samples.
        training_features
            Features (train, d) of all training samples, an array or a FeatureBank; None takes those
            of the fit.
        """
        fitted, tests, X = self._question(x, target, features, training_features)
        solver = self._solver(fitted.task)
        return group_effect(fitted.scorer, solver, tests.features, tests.targets, remove, relabel, X)

    def first_order(
        self,
        x: Any = None,
        target: Any = None,
        *,
        features: Any = None,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        training_features: Any = None,
        corrected: bool = False,
    ) -> Doubles:
        """Compute ``first_order`` or ``corrected`` of ``effect_of``, (B,), without re-solving."""
        fitted, tests, X = self._question(x, target, features, training_features)
        check_flag("corrected", corrected)
        return first_order_effect(fitted.scorer, tests.features, tests.targets, remove, relabel, X, corrected)

    def logit_changes(
        self,
        x: Any = None,
        *,
        features: Any = None,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        training_features: Any = None,
    ) -> Doubles:
        """Predict how all logits change, (B, K), to first order: for many inputs as fast as for one.

        Added to the surrogate's logits they predict which inputs change class. ``effect_of`` re-solves the
        surrogate to check a prediction.

        Parameters
        ----------
        x, features, remove, relabel, training_features
            As for ``effect_of``.

        Examples
        --------
        >>> import torch, whence
        >>> x, y = torch.tensor([[-2.0], [-1.0], [1.0]]), torch.tensor([0, 0, 1])
        >>> bank = whence.features.FeatureBank.of(x, y)
        >>> effects = whence.Effects(show_progress=False).fit(features=bank)
        >>> change = effects.logit_changes(features=torch.tensor([[0.5]]), remove=[2])
        >>> bool(change[0, 1] < 0)
        True
        """
        fitted = self._check_fitted()
        fitted.task.require_classes("logit_changes")
        tests, X = self._tests(x, None, features), None
        remove = check_places("remove", remove, len(fitted.used)).tolist()
        check_is(
            "relabel", {} if relabel is None else relabel, Mapping, "a mapping of training samples to labels"
        )
        stored = np.isin([*remove, *(relabel or ())], fitted.require_surrogate().support).all()
        if training_features is not None or not stored:
            X = all_features(fitted, training_features, "training_features")
        return logit_changes(fitted.scorer, tests.features, remove, relabel, X)

    def find_flips(
        self, x: Any = None, *, features: Any = None, limit: int = 50, training_features: Any = None
    ) -> list[Flip]:
        """Find, for each input, a smallest set of training samples whose removal changes its prediction.

        Samples are tried by their effect on the margin, every set is confirmed by re-solving the surrogate,
        and samples that are not needed are put back. Predictions are those of the surrogate, which is
        re-solved some tens of times per input; your model is not trained again. Print the results.

        Parameters
        ----------
        x, features, training_features
            As for ``effect_of``.
        limit
            Maximum number of samples in a set.

        Examples
        --------
        >>> import torch, whence
        >>> x, y = torch.tensor([[-2.0], [-1.0], [1.0]]), torch.tensor([0, 0, 1])
        >>> bank = whence.features.FeatureBank.of(x, y)
        >>> effects = whence.Effects(show_progress=False).fit(features=bank, class_names=["left", "right"])
        >>> print(effects.find_flips(features=torch.tensor([[0.5]]))[0])
        Removing training sample 2 changes the prediction from right to left.
        """
        self._check_fitted().task.require_classes("find_flips")
        limit = check_count("limit", limit)
        fitted, tests, X = self._question(x, None, features, training_features)
        solver = self._solver(fitted.task)
        return find_flips(fitted.scorer, solver, tests.features, X, limit, self.show_progress)

    def total(self, parts: Iterable[tuple[Tensor, Tensor]]) -> Doubles:
        """Compute effects (train,) of every sample on the sum of the outputs for tests, by one linear solve.

        Parameters
        ----------
        parts : batches of features (b, d) of tests and their classes (b,)
        """
        totals: Doubles = self._check_fitted().scorer.total(parts)
        return totals

    def novelty(self, training: Any = None, *, k: int = 5, quantile: float = 0.99) -> Novelty:
        """Make the check of whether tests resemble the training set; as for ``DualDA``."""
        from whence.attribution.typicality import make_novelty

        return make_novelty(self._check_fitted(), training, k, quantile, self.seed)

    def predict(self, x: Any = None, *, features: Any = None) -> Tensor:
        """Predict labels of inputs, or features (B, d), by the surrogate; as for ``DualDA``."""
        fitted = self._check_fitted()
        return fitted.task.predict(surrogates.outputs(fitted, x, features))

    def decision_function(self, x: Any = None, *, features: Any = None) -> Tensor:
        """Compute the surrogate's outputs in scikit-learn's shape; as for ``DualDA``."""
        return surrogates.decision(self._check_fitted(), x, features)

    def score(self, x: Any, y: Any = None) -> float:
        """Compute the surrogate's accuracy on labelled inputs; as for ``DualDA``."""
        return surrogates.accuracy(self._check_fitted(), x, y)

    def faithfulness(self, x: Any = None, *, features: Any = None) -> Faithfulness:
        """Measure how well the surrogate matches the model; as for ``DualDA``."""
        return surrogates.faithfulness(self._check_fitted(), x, features)

    def learn(self, training: Training, **given: Any) -> Surrogate:
        """Solve the softmax regression, or the ridge regression."""
        return fit_surrogate(training, self._solver(training.task), self.C, self.device)

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        """Compute effects (B, M)."""
        effects: Tensor = fitted.scorer.scores(tests.features, tests.targets)
        return effects

    def score_self(self, fitted: Fitted) -> Tensor:
        """Compute the effect of each sample on its own label, (M,)."""
        effects: Tensor = fitted.scorer.self_influence(self.show_progress)
        return effects

    def _needs_inputs(self) -> bool:
        return False

    def _open(self, fitted: Fitted) -> EffectScorer:
        return EffectScorer(fitted.require_surrogate(), self.output)

    def _question(
        self, x: Any, target: Any, features: Any, training_features: Any
    ) -> tuple[Fitted, Tests, Any]:
        """Return the fitted record, the tests, and the features of all training samples."""
        tests, fitted = self._tests(x, target, features), self.fitted_
        return fitted, tests, all_features(fitted, training_features, "training_features")

    def _check_task(self, task: Task) -> None:
        if task.loss != "squared":
            task.require_classes("The model of Effects")
        elif not isinstance(self.output, str) or self.output != "logit":
            raise InvalidInputError(
                f"'output' must be \"logit\", the prediction itself, for regression. Got {self.output!r}."
            )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        surrogates.check_solving(self)

    def _facts(self, fitted: Fitted) -> dict[str, Any]:
        return surrogates.facts(fitted)

    def _solver(self, task: Task) -> SurrogateSolver:
        solver = RidgeSolver if task.loss == "squared" else SoftmaxSolver
        return solver(task, surrogates.solver_options(self))
