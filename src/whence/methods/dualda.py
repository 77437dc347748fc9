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
from whence.attribution.parameters import parameter
from whence.core.checks import check_count, check_flag
from whence.core.ranking import TopK
from whence.features.training import Training
from whence.model.layers import Asked, check_layers
from whence.surrogate.agreement import Faithfulness
from whence.surrogate.fitting import fit_surrogate
from whence.surrogate.shards import strongest
from whence.surrogate.solving import HingeSolver
from whence.surrogate.surrogate import Surrogate
from whence.tasks import Task

if TYPE_CHECKING:
    from whence.explanation import Bands, ConceptExplanation, Trace
    from whence.features import Novelty
    from whence.relevance.concepts import Concepts
    from whence.relevance.xda import Method
    from whence.surrogate.stability import Stability


@register
@dataclass(eq=False)
class DualDA(Attributor):
    """Attribute predictions to training samples by the dual of a multiclass support vector machine.

    A Crammer–Singer machine with weights W = Σ_i λ_i f_iᵀ replaces the model's last linear layer. The score
    of training sample i for class c at x is τ_c(x, i) = λ_ic f_i·f(x), **positive is evidence for the target
    class**, and the scores of all samples sum to the surrogate's logit w_c·f(x). Most λ_i are zero, and only
    the support vectors' features are kept. Self-influence is λ_{i,y_i}‖f_i‖², never negative.

    Of other tasks (``whence.tasks``) the machine is another: of many labels a binary one per label; of
    numbers a support vector regression, whose scores are positive where they pull the prediction up, and sum
    to the prediction less its base, ``task_.base``.

    Parameters
    ----------
    C
        Weight of the loss in ½‖W‖² + C Σ_i loss_i. ``"auto"`` chooses the value whose surrogate agrees best
        with the model (see ``C_path_``); a number is taken as it is. Smaller is denser.
    bias
        Append a constant to the features, so that the bias is attributed too. It is as long as the features,
        the root of their mean squared norm (``constant_``), so that features in other units give the same
        attributions at the C that belongs to them, and features with a common offset nearly the same
        surrogate; C itself weighs the loss as ever.
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
        What goes into which layers is a feature: "last", the last linear one's, as the paper has it; "all",
        every distinct tensor that a linear or convolutional layer reads; a number, so many of these from
        the end; a list of names; "auto", up to 5 of all. Several are put side by side, each at a mean
        squared norm of 1 (``layers_``), and scores then sum over layers too.
    normalise
        Divide the features of every sample, of training and of tests, by their Euclidean length before the
        surrogate reads them, so that long feature vectors do not lead every list. Scores are then
        τ_c(x, i) = λ_ic f_i·f(x)/(‖f_i‖‖f(x)‖) and still sum to the surrogate's logit; a vector of zeros
        stays one. What is given and kept as features is as the model makes it.
    show_progress
        Show progress bars.

    Attributes
    ----------
    lam_ : csr_array (train, class), λ: the global attributions
    coef_ : (class, d) float64 weights W, with the bias as a last column when ``bias`` is set: logits are
        ``f @ coef_[:, :d].T + coef_[:, d]``, with ``normalise`` of f at unit length
    support_ : (S,) int64, training samples with λ_i ≠ 0, ascending
    vectors_ : (S, d) float32 tensor, the support vectors' features; with ``normalise`` at unit length
    gap_ : float, relative duality gap (P(W) − D(λ))/P(W) of ``coef_`` and ``lam_``
    constant_ : float, what follows the features to carry the bias, 0 without one: τ = λ_ic (f_i·f(x) + b²)
    C_ : float, the C that was used
    kappa_ : float or None, C·N·mean‖f‖², by which C compares across data sets; None without a bias
    C_path_ : CChoice or None, how C was chosen; print it
    agreement_ : float or None, share of training samples for which the surrogate names the model's class,
        among up to 3,000 that had no part in choosing C; of many labels the share of labels, of numbers R²;
        None without a head, or where C was chosen on fewer than 100. The surrogate is fitted on them as on
        all others: for new inputs ask ``faithfulness``
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
    normalise: bool = parameter(False, check_flag)

    name: ClassVar[str] = "dualda"
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
        self, x: Any = None, target: Any = None, *, features: Any = None, sparse: Literal[False] = False
    ) -> Tensor: ...
    @overload
    def attribute(
        self, x: Any = None, target: Any = None, *, features: Any = None, sparse: Literal[True]
    ) -> csr_array: ...
    def attribute(
        self, x: Any = None, target: Any = None, *, features: Any = None, sparse: bool = False
    ) -> Tensor | csr_array:
        """Return scores τ_c(x, i) = λ_ic f_i·f(x) of a batch of inputs.

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

        Returns
        -------
        Tensor or csr_array (B, train). Positive supports the target class; a row sums to the surrogate's
        logit of the target, or to what a prediction is above its base. float32, or float64 where float32
        could not hold that sum.
        """
        tests = self._tests(x, target, features)
        expansion = self.fitted_.require_surrogate().expansion
        score = expansion.sparse if check_flag("sparse", sparse) else expansion.dense
        return score(tests.features, tests.targets)

    def what_if(
        self,
        features: Any,
        *,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        C: float | None = None,
    ) -> Self:
        """Return the explainer of the same model with other training samples, labels or C, solved again.

        The surrogate is exact, not an estimate: the solver starts from this one's solution and goes on to
        ``tol``. The model and its features stay as they are.

        Parameters
        ----------
        features : (train, d)
            Of all training samples in their order, such as ``whence.features.extract`` gives; an explainer
            itself keeps those of the support vectors only, and a sketch of the others, by which features of
            another set are refused.
        remove
            Training samples to leave out.
        relabel
            New labels of training samples.
        C
            Another C; None keeps this one's.
        """
        from whence.attribution import updating

        fitted = self._check_fitted()
        other = type(self)(**self.get_params(deep=False))
        other.fitted_ = updating.what_if(fitted, self._solver(fitted.task), features, remove, relabel, C)
        return other

    def update(
        self,
        *,
        add: Any = None,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        features: Any = None,
        cache_dir: str | PathLike[str] | None = None,
    ) -> Self:
        """Change the training set: add samples, leave some out, give some other labels. C stays as it is.

        The surrogate is that of a fit on the changed set with the same C, to ``tol``: only the features of
        what is added are computed, and the solver starts from the solution there is. **Every sample keeps its
        place**: what is left out scores 0 and is listed in ``skipped_``, what is added comes after the last
        sample. ``history_`` says what was changed, and is saved. The model stays as it is, also where it was
        not trained on what is added.

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
        ``Stability.top_k`` then tells in how many halves that hold it it is among the k strongest again.

        Parameters
        ----------
        features : (train, d)
            Of all training samples, or a FeatureBank; None has the model compute them from its training set.
        halves
            How often the training set is divided.

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
        halves = check_count("halves", halves)

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
        """Make what shows how typical tests are of the training set, by their nearest training samples.

        Features are brought to unit length, and the distance of a test to its k-th nearest training sample is
        compared with that of training samples to the others: beyond what ``quantile`` of these have, nothing
        like the test was in the training set. It does not depend on classes, and is the same for every task.

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
        >>> why[0].typicality.neighbours[0].index, why[0].typicality.novel
        (0, False)
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
        """Take the score of a pair apart into concepts: τ_c(x, i | v) = λ_ic (f(x)·v)(f_i·v).

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
            Samples to show for each concept, the support vectors that show it most.
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
        """Trace what a language model writes to the passages of the corpus that it was tuned on.

        Every logit of every token of the answer is a sum over places of the corpus; ``Trace`` has the
        strongest of them, and the sums of whole documents. The model runs once for all tokens.

        Parameters
        ----------
        prompt
            A text.
        continuation
            What follows it; None has the model write, always the token of the largest logit.
        k
            Passages for and against each token, and documents for and against the answer.
        max_new_tokens
            The longest that the model writes.
        bands
            What ``faithfulness_by_frequency`` gave, to tell beside each token how often the surrogate is
            right in places like it; None leaves it out.
        """
        from whence.attribution.tracing import PassageTracer

        k = check_count("k", k)
        return PassageTracer(self).trace(
            prompt, continuation, k, check_count("max_new_tokens", max_new_tokens), bands
        )

    def faithfulness_by_frequency(self, documents: Any = None) -> Bands:
        """Return in which share of places the surrogate names the token that a language model would write.

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
        """Label inputs, or features (B, d), by the surrogate; where labels are classes, (B,)."""
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
        """Compute λ_{i,y_i}‖f_i‖² (M,)."""
        return fitted.require_surrogate().self_influence()[torch.as_tensor(fitted.used)]

    def _needs_inputs(self) -> bool:
        return False

    def _open(self, fitted: Fitted) -> Surrogate:
        return fitted.require_surrogate()

    def _rank(self, fitted: Fitted, tests: Tests, k: int) -> TopK:
        sides = strongest(fitted.require_surrogate(), tests.features, tests.targets, k)
        return TopK(*sides, tests.targets)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        surrogates.check_solving(self)

    def _facts(self, fitted: Fitted) -> dict[str, Any]:
        return surrogates.facts(fitted)

    def _solver(self, task: Task) -> HingeSolver:
        return HingeSolver(task, surrogates.solver_options(self, self.normalise))
