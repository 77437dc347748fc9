"""DualDA: attribution by the dual coefficients of a support vector machine on the model's last features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, overload

import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.attribution import surrogates
from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.attribution.parameters import MOST_PAIRS, parameter
from whence.core.checks import check_count, check_flag
from whence.core.ranking import TopK, padded
from whence.features.metric import LearnsMap, MetricName, check_metric
from whence.features.training import Training
from whence.model.layers import Asked, check_layers
from whence.surrogate.agreement import Faithfulness
from whence.surrogate.bounds import typical_bound
from whence.surrogate.fitting import fit_surrogate
from whence.surrogate.shards import strongest
from whence.surrogate.solving import HingeSolver
from whence.surrogate.surrogate import Surrogate
from whence.tasks import Task

if TYPE_CHECKING:
    from whence.attribution.what_if import WhatIf
    from whence.explanation import Bands, ConceptExplanation, Trace
    from whence.features import Novelty
    from whence.relevance.concepts import Concepts
    from whence.relevance.xda import Method
    from whence.surrogate.stability import Stability


_MOST_HALVES, _MOST_TOKENS = 1_000, 16_384


@register
@dataclass(eq=False)
class DualDA(Attributor):
    """Attribute predictions to training samples by the dual of a multiclass support vector machine.

    A Crammer–Singer support vector machine, the surrogate, replaces the model's last linear layer. Its
    weights are a sum over training samples, W = Σ_i λ_i z_iᵀ, with features z = φ(f) read by a ``metric``.
    The score of training sample i for class c at x is τ_c(x, i) = λ_ic z_i·z(x). **Positive supports the
    target class.** The scores of all samples sum to the surrogate's logit w_c·z(x). Most λ_i are zero, and
    only features of support vectors, the others, are kept. Self-influence is λ_{i,y_i}‖z_i‖² ≥ 0. ``top_k``
    and ``explain`` rank by λ_ic z_i·(z(x) − z̄), relative to the mean of the training set: it shows what is
    specific to the input, and sums to the logit less a base value.

    Other tasks (``whence.tasks``) have other surrogates. With many labels it is a binary machine per label.
    For regression it is a support vector regression: scores are positive where they pull the prediction up,
    and sum to the prediction less ``task_.base``.

    Parameters
    ----------
    C
        Weight of the loss in ½‖W‖² + C Σ_i loss_i. ``"auto"`` chooses a value at which the surrogate agrees
        with the model and the strongest samples depend on the input; print ``C_path_`` to see the
        alternatives. A smaller C has more support vectors and is more specific to the input.
    bias
        Append a constant to the features, so that the bias is attributed too. The constant is the root mean
        square norm of the features (``constant_``), so that attributions do not depend on their units.
    tol
        Relative duality gap to reach; at 1e-6 the top proponents no longer change.
    seed
        Makes a run repeatable.
    n_threads
        Threads of the solver; None leaves it to the solver.
    max_seconds
        Time limit of the solver, which then warns with the gap it reached.
    batch_size
        Inputs per forward pass.
    device
        Where the features and scores are computed; None is the model's device, or the CPU for features.
    layers
        Layers whose inputs are the features: "last", the last linear layer, as in the paper; "all", every
        linear and convolutional layer; an int n, the last n of these; a list of names; "auto", up to 5 of
        all. Inputs of several layers are concatenated, each scaled to a mean squared norm of 1
        (``layers_``). "tangent": gradients of the logits, next to what goes into each layer, see
        ``whence.model.tangents.Tangents``; without relevance maps.
    metric
        How features are read before they are compared: "whitened", less the mean of the training set, with
        the directions of largest spread scaled down, and divided by their length; "centred", less the mean;
        "unit", divided by their length; "raw", unchanged, as in the paper. "auto" is "whitened" for classes
        and labels, and "centred" for numbers, which depend on the length of features. Or a
        ``whence.features.Metric``, or an object whose ``fit(features)`` returns a
        ``whence.features.FeatureMap``. Raw dot products are dominated by the mean and by long vectors, so
        that few samples lead the lists of all inputs.
    show_progress
        Show progress bars.

    Attributes
    ----------
    lam_ : csr_array (train, class), λ: the global attributions
    coef_ : (class, d) float64 weights W, with the bias as a last column when ``bias`` is set: logits are
        ``z @ coef_[:, :d].T + coef_[:, d]`` with z = ``metric_(f)``
    metric_ : FeatureMap, the metric that was learned: z = φ(f)
    support_ : (S,) int64, training samples with λ_i ≠ 0, ascending
    vectors_ : (S, d) float32 tensor, the support vectors' features z_i as read
    gap_ : float, relative duality gap (P(W) − D(λ))/P(W) of ``coef_`` and ``lam_``
    constant_ : float, what follows the features to carry the bias, 0 without one: τ = λ_ic (z_i·z(x) + b²)
    C_ : float, the C that was used
    kappa_ : float or None, C·N·mean‖z‖², by which C compares across data sets; None without a bias
    C_path_ : CChoice or None, how C was chosen; print it
    agreement_ : float or None, share of training samples for which the surrogate predicts the model's class,
        among up to 3,000 that had no part in choosing C; with many labels the share of labels, for
        regression R²; None without a head, or where C was chosen on fewer than 100. The surrogate is fitted
        on them, too: for new inputs call ``faithfulness``
    cache_bytes_ : int, size of λ, W, the support vectors' features and the head
    history_ : tuple of Change, what ``update`` changed since the fit, the oldest first; print one

    Also what every method has, see ``Attributor``.

    Examples
    --------
    >>> import torch, whence
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> explainer = whence.DualDA(C=1e-2, show_progress=False).fit(model, (x, y))
    >>> explainer.attribute(x[:3]).shape
    torch.Size([3, 20])
    """

    C: float | Literal["auto"] = "auto"
    bias: bool = True
    tol: float = 1e-6
    seed: int = 0
    n_threads: int | None = None
    max_seconds: float | None = None
    device: str | torch.device | None = None
    layers: Asked | list[str] = parameter("last", check_layers)
    metric: MetricName | LearnsMap = parameter("auto", check_metric)

    name: ClassVar[str] = "dualda"
    learned: ClassVar[tuple[str, ...]] = surrogates.LEARNED
    capabilities: ClassVar[Capabilities] = Capabilities(
        last_layer_only=True,
        memory="d numbers per support vector, often a small part of N; N × d while fitting",
        cost=0.1,
        own_class_only=True,
        new_layer=True,
        tasks=("class", "label", "number"),
        explains=True,
        dual=True,
    )

    @overload
    def attribute(
        self,
        x: Any = None,
        target: Any = None,
        *,
        features: Any = None,
        sparse: Literal[False] = False,
        against: Any = None,
        relative: bool = False,
    ) -> Tensor: ...
    @overload
    def attribute(
        self,
        x: Any = None,
        target: Any = None,
        *,
        features: Any = None,
        sparse: Literal[True],
        against: Any = None,
        relative: bool = False,
    ) -> csr_array: ...
    def attribute(
        self,
        x: Any = None,
        target: Any = None,
        *,
        features: Any = None,
        sparse: bool = False,
        against: Any = None,
        relative: bool = False,
    ) -> Tensor | csr_array:
        """Return scores τ_c(x, i) = λ_ic z_i·z(x) of a batch of inputs.

        Parameters
        ----------
        x
            A batch of inputs: a tensor or array (B, …), a mapping of these such as a tokenizer returns, or a
            list of samples as they are in the training set. Where ``fit`` was given ``preprocess``, inputs
            before it.
        target
            The class to explain: None (the class the model predicts), one class, or one class per test.
        features
            Features (B, d) of the tests instead of ``x``.
        sparse
            Return a CSR matrix of the target's support vectors instead of the dense tensor.
        against
            Another class, by number or name, or one per test, or "runner-up": score evidence for the target
            over that class, (λ_ic − λ_ic') z_i·z(x).
        relative
            Score what sets the tests apart: λ_ic z_i·(z(x) − z̄), relative to the mean z̄ of the training
            set, or of class ``against``. A row then sums to the logit less ``base_values``.

        Returns
        -------
        Tensor or csr_array (B, train). Positive supports the target class; a row sums to the surrogate's
        logit of the target, or to what a prediction is above its base. float32, or float64 where float32
        could not hold that sum.
        """
        tests = self._tests(x, target, features)
        expansion = self.fitted_.require_surrogate().expansion
        score = expansion.sparse if check_flag("sparse", sparse) else expansion.dense
        rivals = surrogates.rivals(self.fitted_, tests, against)
        return score(tests.features, tests.targets, rivals, check_flag("relative", relative))

    def top_k(
        self,
        x: Any = None,
        k: int = 5,
        target: Any = None,
        *,
        features: Any = None,
        against: Any = None,
        relative: bool = True,
    ) -> TopK:
        """Find the k strongest proponents and opponents of each test, without the (test, train) matrix.

        Proponents have positive scores, evidence for the target class, largest first; opponents have
        negative ones, most negative first. Where a test has fewer than k of a sign, the rest is padded with
        index −1 and score 0.

        Parameters
        ----------
        x, target, features, against
            As for ``attribute``.
        k
            Samples per side.
        relative
            Rank by what sets the tests apart from the mean of the training set, as ``explain`` does; False
            ranks by the τ that ``attribute`` returns unless asked otherwise.
        """
        fitted = self._check_fitted()
        k = check_count("k", k, 1, padded(fitted.n_train))
        tests = self._tests(x, target, features)
        rivals = surrogates.rivals(fitted, tests, against)
        sides = strongest(
            fitted.require_surrogate(), tests.features, tests.targets, k, rivals,
            check_flag("relative", relative),
        )  # fmt: skip
        return TopK(*sides, tests.targets)

    def base_values(
        self, x: Any = None, target: Any = None, *, features: Any = None, against: Any = None
    ) -> Tensor:
        """Return the base value of each test, (B,): its logit less the sum of its relative scores.

        It is the surrogate's logit of the target at the mean of the training set; with ``against`` the
        difference of two logits at the mean of that class. Arguments are those of ``attribute``.
        """
        tests = self._tests(x, target, features)
        return surrogates.base_values(self.fitted_, tests, surrogates.rivals(self.fitted_, tests, against))

    def what_if(
        self,
        x: Any = None,
        *,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        C: float | None = None,
        features: Any = None,
        training_features: Any = None,
    ) -> WhatIf:
        """Report what would change without some training samples, with other labels, or with another C.

        The surrogate is re-solved to ``tol``, starting from this one's solution: what it predicts is exact,
        not an estimate. The model is not trained again, and its features stay unchanged.

        Parameters
        ----------
        x
            Tests, as for ``attribute``. None compares predictions for the training samples that are left.
        remove
            Training samples to leave out.
        relabel
            New labels, by the places of training samples.
        C
            Another C; None keeps this one's.
        features
            Features (B, d) of the tests instead of ``x``.
        training_features : (train, d)
            Of all training samples in their order, for an explainer that was loaded without its model and
            data, or fitted on features. None finds or computes them.

        Returns
        -------
        WhatIf: ``print`` says which predictions change; its ``explainer`` is the explainer with the change.

        Examples
        --------
        >>> import torch, whence
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> explainer = whence.DualDA(C=1e-2, show_progress=False).fit(torch.nn.Linear(4, 2), (x, y))
        >>> answer = explainer.what_if(x[:3], remove=[4, 8])
        >>> answer.question, answer.explainer.skipped_.tolist()
        ('Without training samples 4 and 8', [4, 8])
        """
        from whence.attribution import updating
        from whence.attribution.training_features import all_features
        from whence.attribution.what_if import ask

        fitted, relabel = self._check_fitted(), {} if relabel is None else relabel
        tests = None
        if x is not None or features is not None:
            tests = surrogates.read_features(fitted, x, features)[0]
        X = all_features(fitted, training_features, "training_features")
        other = type(self)(**self.get_params(deep=False))
        other.fitted_ = updating.what_if(fitted, self._solver(fitted.task), X, remove, relabel, C)
        return ask(fitted, other, tests, X, remove, relabel)

    def update(
        self,
        *,
        add: Any = None,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        features: Any = None,
        cache_dir: str | PathLike[str] | None = None,
    ) -> Self:
        """Change the training set: add samples, remove some, or correct labels. C stays the same.

        The surrogate is that of a fit on the changed set with the same C, to ``tol``. Only the features of
        what is added are computed, and the solver starts from the present solution. **Every sample keeps its
        place**: removed samples score 0 and are listed in ``skipped_``; added ones come after the last
        sample. ``history_`` lists the changes, and is saved. The model is not trained again.

        Parameters
        ----------
        add
            Samples with their labels, in any form that ``fit`` takes, or a bank that
            ``whence.features.extract`` made of them; (features, labels) where the explainer has no model;
            documents where it is of a language model.
        remove
            Places of training samples to leave out.
        relabel
            New labels, by the places of training samples; none of documents.
        features
            Of the training set before the change: an array (train, d) or a FeatureBank. None takes them from
            ``cache_dir``; where they are not there, the model computes them again.
        cache_dir
            Folder that keeps features; None takes that of ``fit``, if it had one.

        Examples
        --------
        >>> import torch, whence
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> explainer = whence.DualDA(C=1e-2, show_progress=False).fit(torch.nn.Linear(4, 2), (x, y))
        >>> more = torch.randn(3, 4), torch.tensor([0, 1, 1])
        >>> explainer.update(add=more, remove=[5], relabel={7: 0}).attribute(x[:2]).shape
        torch.Size([2, 23])
        >>> explainer.skipped_.tolist(), explainer.history_[0].added
        ([5], 3)
        """
        from whence.attribution import updating

        fitted = self._check_fitted()
        self._check_parameters()
        relabel = {} if relabel is None else relabel
        solver = self._solver(fitted.task)
        self.fitted_ = updating.update(fitted, solver, add, remove, relabel, features, cache_dir)
        return self

    def stability(self, features: Any = None, *, halves: int = 20) -> Stability:
        """Solve the surrogate on random halves of the training set, to measure how stable a top k is.

        The training set is divided in two ``halves`` times, and the surrogate solved with the same C on
        either half, so that every sample is in as many of them. Of each of the k strongest samples
        ``Stability.top_k`` then counts the halves with the sample in which it is among the k strongest again.

        Parameters
        ----------
        features : (train, d)
            Of all training samples, or a FeatureBank; None has the model compute them from its training set.
        halves
            How often the training set is divided, at most 1,000 times.

        Examples
        --------
        >>> import torch, whence
        >>> x, y = torch.randn(40, 3), torch.arange(40) % 2
        >>> model = torch.nn.Linear(3, 2)
        >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(model, (x, y))
        >>> found = explainer.stability(halves=4).top_k(x[:2], k=3)
        >>> found.proponents.shape, bool((found.proponents <= found.halves).all())
        (torch.Size([2, 3]), True)
        """
        from whence.attribution.training_features import training_features
        from whence.surrogate.stability import Stability

        fitted = self._check_fitted()
        fitted.task.require_classes("An explainer whose stability is asked for")
        halves = check_count("halves", halves, 1, _MOST_HALVES)

        def read_tests(x: Any, target: Any, given: Any) -> tuple[Tensor, Tensor]:
            tests = self._tests(x, target, given)
            return tests.features, tests.targets

        return Stability(
            fitted.require_surrogate(),
            training_features(fitted, features, as_read=True),
            read_tests,
            halves=halves,
            seed=self.seed,
            show_progress=self.show_progress,
        )

    def novelty(self, training: Any = None, *, k: int = 5, quantile: float = 0.99) -> Novelty:
        """Make what checks whether tests resemble the training set, by their nearest training samples.

        Compared are the features at unit length and, where the explainer has its model and data, the inputs:
        their values, direction and statistics (``whence.features.InputViews``). The distance of a test to its
        k-th nearest training sample is set against that of training samples to the others: beyond what
        ``quantile`` of these have, by all together, the test is unlike the training set. Inputs are those of
        up to 20,000 training samples, at most 40 MB; tokens, and data that can only be read in order, are
        compared by features alone. It does not depend on classes, and is the same for every task.

        Parameters
        ----------
        training
            Features of the training set, an array (train, d) or a FeatureBank; None has the model compute
            them, a pass over the training set.
        k
            Neighbours that must be near.
        quantile
            The share of training samples that count as typical.

        Examples
        --------
        >>> import torch, whence
        >>> x, y = torch.randn(40, 3), torch.arange(40) % 2
        >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(torch.nn.Linear(3, 2), (x, y))
        >>> why = explainer.explain(x[:2], novelty=explainer.novelty())
        >>> why[0].typicality.neighbours[0].index
        0
        """
        from whence.attribution.typicality import make_novelty

        return make_novelty(self._check_fitted(), training, k, quantile, self.seed)

    def explain_concepts(
        self,
        x: Any,
        concepts: Concepts | None = None,
        index: int | None = None,
        n: int = 3,
        k: int = 9,
        target: Any = None,
        *,
        method: Method | None = None,
    ) -> list[ConceptExplanation]:
        """Split the score of a pair into concepts: τ_c(x, i | v) = λ_ic (f(x)·v)(f_i·v).

        Parameters
        ----------
        x
            A batch of inputs, as for ``attribute``.
        concepts
            Directions in feature space, see ``whence.relevance.Concepts``; None takes the single features.
        index
            The training sample, a support vector; None takes each test's strongest proponent.
        n
            Concepts to show, those with the largest parts of the score.
        k
            Samples to show for each concept, the support vectors that show it most; at most 10,000.
        target, method
            As for ``explain``.

        Returns
        -------
        list of ConceptExplanation, one per test sample. Positive parts are evidence for the target class.
        """
        from whence.attribution.concepts import explain_concepts

        return explain_concepts(self._check_fitted(), x, concepts, index, n, k, target, method)

    def trace(
        self,
        prompt: str,
        continuation: str | None = None,
        *,
        k: int = 5,
        max_new_tokens: int = 20,
        bands: Bands | None = None,
    ) -> Trace:
        """Trace what a language model generates to passages of the corpus that it was fine-tuned on.

        Every logit of every token of the answer is a sum over places of the corpus; ``Trace`` has the
        strongest of them, and the sums of whole documents. The model runs once for all tokens.

        Parameters
        ----------
        prompt
            A text.
        continuation
            What follows it; None has the model write, always the token of the largest logit.
        k
            Passages for and against each token, and documents for and against the answer, at most 10,000.
        max_new_tokens
            The longest that the model writes, at most 16,384.
        bands
            What ``faithfulness_by_frequency`` returned, to show next to each token how often the surrogate
            is right in places like it; None leaves it out.
        """
        from whence.attribution.tracing import PassageTracer

        k = check_count("k", k, most=MOST_PAIRS)
        longest = check_count("max_new_tokens", max_new_tokens, most=_MOST_TOKENS)
        return PassageTracer(self).trace(prompt, continuation, k, longest, bands)

    def faithfulness_by_frequency(self, documents: Any = None) -> Bands:
        """Measure how often the surrogate predicts the token that a language model generates.

        Up to 3,000 places are looked at, of whole documents chosen at random by ``seed``, and sorted by how
        often the model's token was learned in the corpus.

        Parameters
        ----------
        documents
            That the model was not tuned on, as for ``Corpus``; None takes the corpus itself, which the
            surrogate was fitted on.
        """
        from whence.attribution.tracing import PassageTracer

        return PassageTracer(self).bands(documents, self.seed)

    def predict(self, x: Any = None, *, features: Any = None) -> Tensor:
        """Predict labels of inputs, or of features (B, d), by the surrogate; classes as (B,)."""
        fitted = self._check_fitted()
        return fitted.task.predict(surrogates.outputs(fitted, x, features))

    def decision_function(self, x: Any = None, *, features: Any = None) -> Tensor:
        """Compute the surrogate's outputs for inputs, or features (B, d), as scikit-learn shapes them.

        They are logits (B, K), float64; of two classes (B,), how far the second is above the first.

        Examples
        --------
        >>> import torch, whence
        >>> x, y = torch.randn(30, 4), torch.arange(30) % 3
        >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(torch.nn.Linear(4, 3), x, y)
        >>> bool((explainer.decision_function(x).argmax(1) == explainer.predict(x)).all())
        True
        """
        return surrogates.decision(self._check_fitted(), x, features)

    def score(self, x: Any, y: Any = None) -> float:
        """Compute how right the surrogate is on labelled inputs: the share of right labels, or R².

        Parameters
        ----------
        x
            As for ``attribute``.
        y
            The true labels, for classes numbers or names; None takes those of a data set or ``DataLoader``.
        """
        return surrogates.accuracy(self._check_fitted(), x, y)

    def faithfulness(self, x: Any = None, *, features: Any = None) -> Faithfulness:
        """Measure how well the surrogate represents the model on inputs, or the head on features (B, d)."""
        return surrogates.faithfulness(self._check_fitted(), x, features)

    def learn(self, training: Training, **given: Any) -> Surrogate:
        """Solve the support vector machine."""
        return fit_surrogate(training, self._solver(training.task), self.C, self.device)

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        """Compute scores (B, M)."""
        scores = fitted.require_surrogate().expansion.dense(tests.features, tests.targets)
        return scores[:, torch.as_tensor(fitted.used)] if len(fitted.skipped) else scores

    def score_self(self, fitted: Fitted) -> Tensor:
        """Compute λ_{i,y_i}‖z_i‖² (M,)."""
        return fitted.require_surrogate().self_influence()[torch.as_tensor(fitted.used)]

    def _needs_inputs(self) -> bool:
        return False

    def _open(self, fitted: Fitted) -> Surrogate:
        return fitted.require_surrogate()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        surrogates.check_solving(self)

    def _facts(self, fitted: Fitted) -> dict[str, Any]:
        return surrogates.facts(fitted) | {"logit_bound": typical_bound(fitted.require_surrogate())}

    def _solver(self, task: Task) -> HingeSolver:
        return HingeSolver(task, surrogates.solver_options(self))
