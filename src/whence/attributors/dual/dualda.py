"""DualDA: attribution by the dual coefficients of a support vector machine on the model's last features."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.attributors.base import Limits, register
from whence.attributors.classifier import Training
from whence.attributors.dual.agreement import agreement, warn_of_data, warn_of_low, without_part
from whence.attributors.dual.faithfulness import Faithfulness
from whence.attributors.dual.sketch import sketch
from whence.attributors.dual.solutions import SurrogateSolver, changed_labels
from whence.attributors.dual.surrogate import Surrogate
from whence.attributors.pairs import PairAttributor
from whence.attributors.parameters import parameter
from whence.attributors.ranking import TopK
from whence.core import contents, store
from whence.core.arrays import Floats, Ints
from whence.core.checks import check_flag
from whence.data import TrainingSet
from whence.errors import InvalidInputError
from whence.features import as_float32
from whence.model.bound import BoundModel
from whence.model.layers import Asked, check_layers
from whence.svm.inputs import check_C, check_features
from whence.svm.solve import check_options


@register
@dataclass(eq=False)
class DualDA(PairAttributor):
    """Attribute predictions to training samples by the dual of a multiclass support vector machine.

    A Crammer–Singer machine with weights W = Σ_i λ_i f_iᵀ replaces the model's last linear layer. The score
    of training sample i for class c at x is τ_c(x, i) = λ_ic f_i·f(x), **positive is evidence for the target
    class**, and the scores of all samples sum to the surrogate's logit w_c·f(x). Most λ_i are zero, and only
    the support vectors' features are kept. Self-influence is λ_{i,y_i}‖f_i‖², never negative.

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
    show_progress
        Show progress bars.

    Attributes
    ----------
    lam_ : csr_array (train, class), λ: the global attributions
    coef_ : (class, d) float64 weights W, with the bias as a last column when ``bias`` is set: logits are
        ``f @ coef_[:, :d].T + coef_[:, d]``
    support_ : (S,) int64, training samples with λ_i ≠ 0, ascending
    vectors_ : (S, d) float32 tensor, the support vectors' features
    gap_ : float, relative duality gap (P(W) − D(λ))/P(W) of ``coef_`` and ``lam_``
    constant_ : float, what follows the features to carry the bias, 0 without one: τ = λ_ic (f_i·f(x) + b²)
    C_ : float, the C that was used
    C_path_ : CChoice or None, how C was chosen; print it
    agreement_ : float or None, share of training samples for which the surrogate names the model's class,
        among up to 3,000 that had no part in choosing C; None without a head, or where C was chosen on fewer
        than 100. The surrogate is fitted on them as on all others: for new inputs ask ``faithfulness``
    cache_bytes_ : int, size of λ, W, the support vectors' features and the head

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

    name: ClassVar[str] = "dualda"
    classes_only = False
    _manifest: ClassVar[str] = "DualDAManifest"
    _of_features = True
    limits: ClassVar[Limits] = Limits(
        last_layer_only=True,
        memory="d numbers per support vector, often a small part of N; N × d while fitting",
        cost=0.1,
        own_class_only=True,
        new_layer=True,
    )

    C: float | Literal["auto"] = "auto"
    bias: bool = True
    tol: float = 1e-6
    seed: int = 0
    n_threads: int | None = None
    max_seconds: float | None = None
    device: str | torch.device | None = None
    layers: Asked | list[str] = parameter("last", check_layers)

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
        surrogate's logit of the target. float32, or float64 where float32 could not hold that sum.
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

    def predict(self, x: Any) -> Tensor:
        """Label inputs by the surrogate; where labels are classes, (B,)."""
        found = self.require_model().read(x, self.batch_size)
        return self.predict_features(found.features)

    def predict_features(self, features: Any) -> Tensor:
        """Label features (B, d) by the surrogate; where labels are classes, (B,)."""
        return self.task_.decided(self.surrogate_.logits(self.check_features(features)))

    def faithfulness(self, x: Any) -> Faithfulness:
        """How well the surrogate stands for the model, by its own output for a batch of inputs."""
        found = self.require_model().read(x, self.batch_size)
        return self.surrogate_.faithfulness(self.check_features(found.features, "x"), found.logits)

    def faithfulness_features(self, features: Any) -> Faithfulness:
        """Compare the surrogate with the head on features (B, d), where there is no model to run."""
        return self.surrogate_.faithfulness(self.check_features(features))

    def what_if(
        self,
        features: Any,
        *,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        C: float | None = None,
    ) -> DualDA:
        """Give the explainer of the same model with other training samples, labels or C, solved again.

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
        other = type(self)(**{name: getattr(self, name) for name in self._parameters()}, device=self.device)
        place = self._place(self.model_)
        # The sketch is of the training set as it is, whatever is asked about it.
        known = sketch(X, before.labels) if before.sketch is None else before.sketch
        vectors = X[solution.support]
        surrogate = Surrogate(self.task_, solution, vectors, labels, before.head, place, known)
        seconds = {"solution": time.perf_counter() - started}
        other._adopt(self.task_, labels, before.head, self.model_, self.data_, seconds)
        other._keep(surrogate)
        other._measure(X, self._unseen[other.used_[self._unseen]])
        return other

    def take_data(self, data: TrainingSet) -> None:
        """Take the training set, after a look at some of its samples."""
        bound = self.require_model()
        self.surrogate_.check_data(data, bound)
        self.data_, bound.prepare = data, data.prepare

    def _learn(self, training: Training, **given: Any) -> Surrogate:
        bank = training.bank
        features, place = as_float32(bank.features), self._place(bank.model)
        solution = SurrogateSolver(training.task, self).of_bank(bank, features, training.cache_dir)
        vectors, known = np.asarray(features[solution.support]), sketch(features, bank.labels)
        return Surrogate(training.task, solution, vectors, bank.labels, bank.head, place, known)

    def _keep(self, surrogate: Surrogate) -> None:
        solution = surrogate.solution
        self.origins_["solution"] = solution.note
        self.C_, self.C_path_, self.gap_ = solution.C, solution.choice, solution.gap
        self.surrogate_, self.lam_, self.coef_ = surrogate, surrogate.lam, surrogate.coef
        self.support_, self.vectors_ = surrogate.support, surrogate.vectors
        self.constant_ = surrogate.constant
        self.cache_bytes_ = sum(array.nbytes for array in surrogate.arrays().values())

    def _finish(self, training: Training) -> None:
        self._measure(training.bank.features)
        warn_of_data(self.task_, training.bank.features, self.labels_)
        if self.agreement_ is not None and self.task_.has_classes:
            warn_of_low(self.agreement_, len(self._unseen))

    def _measure(self, features: Floats, unseen: Ints | None = None) -> None:
        """Measure agreement with the head on samples that had no part in choosing C, by their features."""
        given = self.C_path_ is None
        if unseen is None:
            unseen = without_part(self.task_, self.labels_, self.seed, given)
        self._unseen = unseen
        self.agreement_ = None
        if self.head_ is not None and len(self._unseen):
            some = np.asarray(features[unseen]), self.labels_[unseen]
            self.agreement_ = agreement(self.task_, self.coef_, self.head_, *some)

    def _self_influence(self) -> Tensor:
        return self.surrogate_.self_influence()[torch.as_tensor(self.used_)]

    def _scores(self, features: Tensor, classes: Tensor, x: Any) -> Tensor:
        return self.surrogate_.expansion.dense(features, classes)[:, torch.as_tensor(self.used_)]

    def _like(self) -> Tensor:
        return self.surrogate_.vectors

    def _logits(self, features: Tensor) -> Tensor:
        return self.surrogate_.model_logits(features)

    def _strongest(self, features: Tensor, classes: Tensor, x: Any, k: int) -> TopK:
        return TopK(*self.surrogate_.expansion.top_k(features, classes, k), classes)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.C, str) and self.C != "auto":
            raise InvalidInputError(f"'C' must be \"auto\" or a number above 0. Got {self.C!r}.")
        elif self.C != "auto":
            check_C(self.C)  # the solver would say so after the features are computed
        self.bias = check_flag("bias", self.bias)
        check_options(self.tol, self.max_seconds, self.n_threads, self.seed)

    def _state(self) -> tuple[store.Arrays, dict[str, Any]]:
        return self.surrogate_.arrays(), {
            "C": self.C_,
            "C_path": None if self.C_path_ is None else dataclasses.asdict(self.C_path_),
            "gap": self.gap_,
            "agreement": self.agreement_,
            "constant": self.constant_,
        }

    def _restore(self, arrays: store.Arrays, manifest: Any, bound: BoundModel | None) -> None:
        surrogate = Surrogate.from_arrays(arrays, manifest, self._place(bound))
        shape = len(surrogate.coef), surrogate.vectors.shape[1]
        if manifest.layers is not None and sum(manifest.layers.widths) != shape[1]:
            raise contents.refused(f"'layers' must have as many features as 'vectors', {shape[1]}")
        if bound is not None and bound.extractor.head().weight.shape != shape:
            raise contents.refused(f"'coef' must fit the layer {bound.extractor.layer!r}, and does not")
        if surrogate.bias != self.bias:
            raise contents.refused("'coef' must have a column for the bias where 'bias' is set, only there")
        self._adopt(surrogate.task, surrogate.labels, surrogate.head, bound, None, {})
        self._keep(surrogate)
        self.agreement_ = manifest.agreement
        self._unseen = without_part(self.task_, self.labels_, self.seed, self.C_path_ is None)
