"""DualDA: attribution by the dual coefficients of a support vector machine on the model's last features."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.attribution.base import Capabilities, register
from whence.attribution.classifier import Training
from whence.attribution.explainer import Parts, Scored
from whence.attribution.parameters import parameter
from whence.attribution.ranking import TopK
from whence.attribution.updating import Updating
from whence.core.checks import check_count, check_flag
from whence.explanation.trace import Bands, Trace
from whence.surrogate.shards import strongest
from whence.surrogate.sketch import sketch
from whence.surrogate.solutions import SurrogateSolver, changed_labels
from whence.surrogate.stability import Stability
from whence.surrogate.surrogate import Surrogate
from whence.surrogate.tracing import PassageTracer
from whence.surrogate.training import fitted_features
from whence.surrogate.vectors import Vectors
from whence.svm.inputs import check_C, check_features


@register
@dataclass(eq=False)
class DualDA(Updating):
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

    normalise: bool = parameter(False, check_flag)

    name: ClassVar[str] = "dualda"
    classes_only = False
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
    def attribute(self, x: Any, target: Any = None, *, sparse: Literal[False] = False) -> Tensor: ...
    @overload
    def attribute(self, x: Any, target: Any = None, *, sparse: Literal[True]) -> csr_array: ...
    def attribute(self, x: Any, target: Any = None, *, sparse: bool = False) -> Tensor | csr_array:
        """Scores τ_c(x, i) = λ_ic f_i·f(x) of a batch of inputs.

        Parameters
        ----------
        x
            A batch of inputs: a tensor or array (B, …), a mapping of these such as a tokeniser gives, or a
            list of samples as they are in the training set. Where ``fit`` was given ``preprocess``, inputs
            before it.
        target
            The class to explain: None (the class the model predicts), one class, or one class per test.
        sparse
            Return a CSR matrix of the target's support vectors instead of the dense tensor.

        Returns
        -------
        Tensor or csr_array (B, train). Positive is evidence for the target class; a row sums to the
        surrogate's logit of the target, or to what a prediction is above its base. float32, or float64 where
        float32 could not hold that sum.
        """
        return self._products(*self._read(x, target), sparse)

    @overload
    def attribute_features(
        self, features: Any, target: Any = None, *, sparse: Literal[False] = False
    ) -> Tensor: ...
    @overload
    def attribute_features(
        self, features: Any, target: Any = None, *, sparse: Literal[True]
    ) -> csr_array: ...
    def attribute_features(
        self, features: Any, target: Any = None, *, sparse: bool = False
    ) -> Tensor | csr_array:
        """Scores of features (B, d); otherwise as ``attribute``."""
        return self._products(*self._given(features, target), sparse)

    def _products(self, features: Tensor, classes: Tensor, sparse: bool) -> Tensor | csr_array:
        expansion = self.surrogate_.expansion
        scored = expansion.sparse if check_flag("sparse", sparse) else expansion.dense
        return scored(features, classes)

    def global_attribution(self) -> csr_array:
        """Global attributions λ (train, class): positive is evidence for the class, whatever the test."""
        return self.surrogate_.lam

    def what_if(
        self,
        features: Any,
        *,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        C: float | None = None,
    ) -> DualDA:
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
        started = time.perf_counter()
        before = self.surrogate_
        X = check_features(features)
        labels = changed_labels(self.task_, before.labels, len(X), remove, relabel or {})
        before.check_training(X)
        C = self.C_ if C is None else check_C(C)
        solution = SurrogateSolver(self.task_, self).again(X, labels, before.lam, C, before.constant)
        # The sketch is of the training set as it is, whatever is asked about it.
        known = sketch(X, before.labels) if before.sketch is None else before.sketch
        vectors = Vectors.of(X, solution.support, self._place(self.model_), self.normalise)
        surrogate = Surrogate(self.task_, solution, vectors, labels, before.head, known)
        other = self._with(surrogate, X, time.perf_counter() - started)
        other.history_ = self.history_
        return other

    def stability(self, features: Any = None, *, halves: int = 20) -> Stability:
        """Solve the surrogate on random halves of the training set, to tell how stable a top k is.

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
        self.check_fitted()
        self.task_.require_classes("An explainer whose stability is asked for")
        return Stability(self, fitted_features(self, features), check_count("halves", halves))

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
        return PassageTracer(self).bands(documents, self.seed)

    def scored(self, features: Tensor, target: int) -> Scored:
        """Score the support vectors of a class for one test with features (1, d)."""
        row = self.surrogate_.expansion.sparse(features, torch.tensor([target]))
        return Scored(row.indices.astype(np.int64), row.data.astype(np.float64))

    def parts(self, features: Tensor, target: int, indices: Sequence[int]) -> Parts:
        """Return what scores are at the features: λ_ic f_i on the test, λ_ic f(x) on the training sample."""
        surrogate = self.surrogate_
        vectors = surrogate.stored[surrogate.rows(indices)]
        lam = torch.as_tensor(
            surrogate.lam[list(indices)][:, [target]].toarray()[:, 0], device=vectors.device
        )
        each, test = lam[:, None].to(vectors), surrogate.stored.as_read(features).to(vectors)
        return Parts(vectors, each * vectors, each * test, lam * surrogate.constant**2, lam)

    def _learn(self, training: Training, **given: Any) -> Surrogate:
        return self._surrogate(training)

    def _self_influence(self) -> Tensor:
        return self.surrogate_.self_influence()[torch.as_tensor(self.used_)]

    def _scores(self, features: Tensor, classes: Tensor, x: Any) -> Tensor:
        return self.surrogate_.expansion.dense(features, classes)[:, torch.as_tensor(self.used_)]

    def _strongest(self, features: Tensor, classes: Tensor, x: Any, k: int) -> TopK:
        return TopK(*strongest(self.surrogate_, features, classes, k), classes)
