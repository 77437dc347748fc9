"""DualDA: attribution by the dual coefficients of a support vector machine on the model's last features."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from whence.attributors.base import Limits, TopK, padded
from whence.attributors.dual.agreement import agreement, warn_of_data, warn_of_low
from whence.attributors.dual.solutions import Solved, Solving, changed_labels
from whence.attributors.dual.surrogate import Faithfulness, Surrogate
from whence.attributors.explainer import Explainer
from whence.attributors.explaining import Explaining
from whence.attributors.registry import register
from whence.core import contents, store
from whence.core.checks import check_count, check_flag, check_names
from whence.data import TrainingSet, as_training_set
from whence.errors import InvalidInputError
from whence.features import OnError, as_float32, extract
from whence.model.bound import BoundModel
from whence.model.extractor import Outputs, check_model
from whence.model.extractor import class_names as model_class_names
from whence.model.heads import Head
from whence.model.inputs import check_device, to_model
from whence.relevance.xda import Method
from whence.svm import held_back
from whence.svm.crammer_singer.problem import check_labels, check_n_classes
from whence.svm.inputs import check_C, check_features, check_head
from whence.svm.problem import Floats, Ints
from whence.svm.solve import check_options
from whence.tasks import Classes, Task


@register
class DualDA(Explainer):
    """Attribute predictions to training samples by the dual of a multiclass support vector machine.

    A Crammer–Singer machine with weights W = Σ_i λ_i f_iᵀ replaces the model's last linear layer. The score
    of training sample i for class c at x is τ_c(x, i) = λ_ic f_i·f(x), **positive is evidence for the target
    class**, and the scores of all samples sum to the surrogate's logit w_c·f(x). Most λ_i are zero, and only
    the support vectors' features are kept.

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
        Inputs a forward pass.
    device
        Where the features and scores are computed; None is the model's device, or the CPU for features.
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
    labels_ : (train,) int64, −1 for skipped samples
    task_ : Task, what the outputs stand for; ``class_names_``, tuple of str or None, come from the model's
        id2label, the data, or a folder's subfolders
    skipped_ : int64, samples that could not be read and took no part in the fit
    seconds_, origins_ : dict, how long ``fit`` took for "features" and "solution", and where they come from:
        computed, and why; resumed; reused
    n_train_, n_classes_ : int
    cache_bytes_ : int, size of λ, W, the support vectors' features and the head
    fit_seconds_ : float, the sum of ``seconds_``
    head_ : Head or None, the model's own last layer

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
    limits: ClassVar[Limits] = Limits(
        needs_checkpoints=False,
        needs_loss=False,
        last_layer_only=True,
        memory="d numbers a support vector, often a small part of N; N × d while fitting",
        cost=0.1,
        own_class_only=True,
        new_layer=True,
    )

    def __init__(
        self,
        C: float | Literal["auto"] = "auto",
        bias: bool = True,
        tol: float = 1e-6,
        seed: int = 0,
        n_threads: int | None = None,
        max_seconds: float | None = None,
        batch_size: int = 256,
        device: str | torch.device | None = None,
        show_progress: bool = True,
    ) -> None:
        self.C: float | Literal["auto"] = C
        self.bias = bias
        self.tol = tol
        self.seed = seed
        self.n_threads = n_threads
        self.max_seconds = max_seconds
        self.batch_size = batch_size
        self.device = device
        self.show_progress = show_progress

    def fit(
        self,
        model: nn.Module,
        data: Any,
        layer: str | None = None,
        *,
        preprocess: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        cache_dir: str | PathLike[str] | None = None,
        dtype: str = "float32",
        autocast: str | None = None,
        num_workers: int = 0,
        on_error: OnError = "raise",
        class_names: Sequence[str] | None = None,
    ) -> Self:
        """Fit to a trained classifier and its training set.

        Parameters
        ----------
        model
            A torch classifier that maps a batch to logits (B, K) by a last linear layer. It is run in eval
            mode and left as it was.
        data
            A Dataset, map-style or iterable, a DataLoader, a datasets.Dataset, a tuple (X, y) of arrays or
            tensors, or the path of a folder with a subfolder of images a class. Samples are pairs (input,
            label), or mappings or dataclasses with a label: 0 … K−1 or the name of a class.
        layer
            Name of the last linear layer, when the model does something after it, such as a softmax.
        preprocess
            Makes the model's inputs of a batch of inputs: a tokeniser, an image processor, or any function.
            New inputs go through it as well.
        collate_fn
            Makes a batch of a list of samples, as in a DataLoader.
        cache_dir
            Folder that keeps features and solutions. A fit that was killed resumes there, and one with the
            same model, data and options takes what is there; see ``whence cache ls``.
        dtype
            Of the features: "float32", or "float16" for half the room.
        autocast
            "bfloat16" or "float16": run the model in mixed precision.
        num_workers
            Processes that read samples.
        on_error
            What to do with a sample that cannot be read: "raise" names it; "skip" leaves it out of the fit,
            lists it in ``skipped_``, and its scores are 0.
        class_names
            One name a class, in order; None takes those of the model or of the data, if they have any.
        """
        self._check_parameters()
        check_model(model, layer)
        if class_names is not None:
            class_names = check_names("class_names", class_names)
        started = time.perf_counter()
        samples = as_training_set(
            data,
            self.batch_size,
            names=model_class_names(model) if class_names is None else class_names,
            preprocess=preprocess,
            collate_fn=collate_fn,
        )
        bank = extract(
            model,
            samples,
            layer=layer,
            batch_size=self.batch_size,
            cache_dir=cache_dir,
            dtype=dtype,
            device=self.device,
            autocast=autocast,
            num_workers=num_workers,
            on_error=on_error,
            show_progress=self.show_progress,
        )
        extracted = time.perf_counter()
        features, head = as_float32(bank.features), bank.extractor.head()
        if class_names is not None:
            check_names("class_names", class_names, len(head.weight))
        task = Classes.of(samples.class_names, len(head.weight))
        solved, note = self._solving().of_bank(bank, features, head, cache_dir)
        fitted = BoundModel(bank.extractor, prepare=samples.prepare)
        surrogate = self._of(solved, features, bank.labels, head, fitted)
        bank.verify()  # what was read, now that all is read
        self.seconds_ = {"features": extracted - started, "solution": time.perf_counter() - extracted}
        self.origins_ = {"features": bank.note, "solution": note}
        self._keep(surrogate, solved, fitted, task)
        self.data_ = samples
        self._measure(features)
        self._warn(features)
        return self

    def fit_features(
        self,
        features: Any,
        labels: Any,
        *,
        head: tuple[Any, Any] | None = None,
        n_classes: int | None = None,
    ) -> Self:
        """Fit to features (N, d) and labels (N,), arrays or tensors.

        Parameters
        ----------
        features, labels
            One row and one integer label a training sample.
        head
            The model's last layer, weight (K, d) and bias (K,) or None. With it ``target=None`` is the
            model's class and ``faithfulness_features`` works; without it the surrogate's class is taken.
        n_classes
            K, read off the head or the labels when None.
        """
        self._check_parameters()
        X = check_features(features)
        y = check_labels(labels, len(X))
        if n_classes is not None:
            check_n_classes(n_classes, y)
        checked = None if head is None else Head(*check_head(head, X.shape[1], n_classes))
        started = time.perf_counter()
        solved = self._solving().of_features(X, y, checked, n_classes)
        self.seconds_ = {"solution": time.perf_counter() - started}
        self.origins_ = {"solution": "computed"}
        task = Classes(solved.lam.shape[1])
        self._keep(self._of(solved, X, y, checked, None), solved, None, task)
        self._measure(X)
        self._warn(X)
        return self

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
            The class to explain: None (the class the model predicts), one class, or one class a test.
        sparse
            Return a CSR matrix of the target's support vectors instead of the dense tensor.

        Returns
        -------
        Tensor or csr_array (B, train). Positive is evidence for the target class; a row sums to the
        surrogate's logit of the target. float32, or float64 where float32 could not hold that sum.
        """
        return self._scores(*self._read(x, target), sparse)

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
        return self._scores(*self._given(features, target), sparse)

    def top_k(self, x: Any, k: int = 5, target: Any = None) -> TopK:
        """Find the k strongest proponents and opponents of each test, without the (test, train) matrix.

        Proponents have positive scores, evidence for the target class, largest first; opponents have
        negative ones, most negative first. Where a test has fewer than k of a sign, the rest is padded with
        index −1 and score 0.

        Parameters
        ----------
        x
            A batch of model inputs (B, …).
        k
            Samples a side.
        target
            As for ``attribute``.
        """
        k = check_count("k", k, 1, padded(self.surrogate_.lam.shape[0]))
        return self._top_k(*self._read(x, target), k)

    def top_k_features(self, features: Any, k: int = 5, target: Any = None) -> TopK:
        """``top_k`` of features (B, d)."""
        k = check_count("k", k, 1, padded(self.surrogate_.lam.shape[0]))
        return self._top_k(*self._given(features, target), k)

    def self_influence(self) -> Tensor:
        """Score of each training sample for its own label at itself, λ_{i,y_i}‖f_i‖², shape (train,).

        Zero for samples that are no support vectors, never negative. A bias counts as a feature of 1.
        """
        return self.surrogate_.self_influence()

    def global_attribution(self) -> csr_array:
        """Global attributions λ (train, class): positive is evidence for the class, whatever the test."""
        return self.surrogate_.lam

    def predict(self, x: Any) -> Tensor:
        """Classify inputs by the surrogate, shape (B,)."""
        return self.surrogate_.logits(self._outputs(x).features).argmax(1)

    def predict_features(self, features: Any) -> Tensor:
        """Classify features (B, d) by the surrogate, shape (B,)."""
        surrogate = self.surrogate_
        return surrogate.logits(surrogate.check_features(features)).argmax(1)

    def faithfulness(self, x: Any) -> Faithfulness:
        """How well the surrogate stands for the model, by its own output for a batch of inputs."""
        return self.surrogate_.faithfulness(*self._outputs(x))

    def faithfulness_features(self, features: Any) -> Faithfulness:
        """Compare the surrogate with the head on features (B, d), where there is no model to run."""
        surrogate = self.surrogate_
        return surrogate.faithfulness(surrogate.check_features(features))

    def what_if(
        self,
        features: Any,
        *,
        remove: Sequence[int] = (),
        relabel: Mapping[int, int] | None = None,
        C: float | None = None,
    ) -> DualDA:
        """Give the explainer of the same model with other training samples, labels or C, solved anew.

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
            New classes of training samples.
        C
            Another C; None keeps this one's.
        """
        started = time.perf_counter()
        before = self.surrogate_
        X = check_features(features)
        labels = changed_labels(before.labels, len(X), self.n_classes_, remove, relabel or {})
        before.check_training(X)
        solved = self._solving().again(
            X, labels, before.lam, self.C_ if C is None else check_C(C), before.constant
        )
        other = DualDA(**{name: getattr(self, name) for name in _PARAMETERS}, device=self.device)
        other.seconds_ = {"solution": time.perf_counter() - started}
        other.origins_ = {"solution": "solved again"}
        # The sketch is of the training set as it is, whatever is asked about it.
        surrogate = other._of(solved, X, labels, before.head, self.model_, before.sketch)
        other._keep(surrogate, solved, self.model_, self.task_)
        other._measure(X, self._unseen[labels[self._unseen] >= 0])
        other.data_ = self.data_
        return other

    def explaining(self, k: int, method: Method | None) -> Explaining:
        """Give what explains one test sample, by the k strongest pairs of either sign."""
        return Explaining(
            model=self.require_model(),
            surrogate=self.surrogate_,
            data=self.require_data(),
            method=method,
            class_names=self.task_.called,
            gap=self.gap_,
            batch_size=self.batch_size,
            choose=lambda f, c: self._top_k(f, torch.tensor([c]), k),
        )

    def _solving(self) -> Solving:
        return Solving(
            self.C, self.bias, self.tol, self.seed, self.n_threads, self.max_seconds, self.show_progress
        )

    def _of(
        self,
        solved: Solved,
        features: Floats,
        labels: Ints,
        head: Head | None,
        model: BoundModel | None,
        sketch: Floats | None = None,
    ) -> Surrogate:
        """Make the surrogate of a solution on the features (N, d) of samples with labels (N,)."""
        device = self._device(model)
        return Surrogate.from_solution(
            solved.lam, solved.weight, features, labels, head, device, sketch, solved.constant
        )

    def _keep(self, surrogate: Surrogate, solved: Solved, model: BoundModel | None, task: Task) -> None:
        """Take over a surrogate and what there is to know about it."""
        self.C_, self.C_path_, self.gap_ = solved.C, solved.choice, solved.gap
        self.task_ = task
        self.fit_seconds_ = sum(self.seconds_.values())
        self._adopt(surrogate, model)

    def _measure(self, features: Floats, unseen: Ints | None = None) -> None:
        """Measure agreement with the head on samples that had no part in choosing C, by their features."""
        self._unseen = self._without_part_in_C() if unseen is None else unseen
        self.agreement_ = None
        if self.head_ is not None and len(self._unseen):
            self.agreement_ = agreement(self.coef_, self.head_, np.asarray(features[self._unseen]))

    def _without_part_in_C(self) -> Ints:
        used = np.flatnonzero(self.labels_ >= 0)
        rows = held_back(self.labels_[used], self.seed)
        return used if not len(rows) and self.C_path_ is None else used[rows]

    def _warn(self, features: Floats) -> None:
        """Warn of what the fit shows about data and surrogate, in the name of the user's call of fit."""
        warn_of_data(features, self.labels_, self.n_classes_, stacklevel=3)
        if self.agreement_ is not None:
            warn_of_low(self.agreement_, len(self._unseen), stacklevel=3)

    def _adopt(self, surrogate: Surrogate, model: BoundModel | None) -> None:
        self.surrogate_, self.model_ = surrogate, model
        self.data_ = None
        self.cache_bytes_ = sum(array.nbytes for array in surrogate.arrays().values())
        self.lam_, self.coef_, self.support_ = surrogate.lam, surrogate.coef, surrogate.support
        self.vectors_, self.constant_ = surrogate.vectors, surrogate.constant
        self.labels_, self.head_ = surrogate.labels, surrogate.head
        self.skipped_ = np.flatnonzero(surrogate.labels < 0)
        self.n_train_ = len(surrogate.labels)

    def take_data(self, data: TrainingSet) -> None:
        """Take the training set, after a look at some of its samples."""
        fitted, surrogate = self.require_model(), self.surrogate_
        labels = np.full(len(data), -1)
        surrogate.check_labels(labels, "data")  # as many as there were
        possible = surrogate.support if surrogate.sketch is None else np.flatnonzero(surrogate.labels >= 0)
        rows = np.sort(np.r_[possible[:1], np.random.default_rng().permutation(possible[1:])[:_KNOWN_BY]])
        batch = data.read(rows.tolist())
        known = data.known_labels()
        if known is not None and np.array_equal(known[rows], batch.labels):
            labels = known.copy()
        labels[rows] = batch.labels
        surrogate.check_labels(labels, "data")
        found = fitted.read_batch(to_model(fitted.extractor.model, batch.inputs)).features
        surrogate.check_training(found.float().cpu().numpy(), rows, "data")
        self.data_, fitted.prepare = data, data.prepare

    def _device(self, model: BoundModel | None) -> str | torch.device | None:
        return model.device if self.device is None and model is not None else self.device

    def _scores(self, features: Tensor, classes: Tensor, sparse: bool) -> Tensor | csr_array:
        sparse = check_flag("sparse", sparse)
        expansion = self.surrogate_.expansion
        return expansion.sparse(features, classes) if sparse else expansion.dense(features, classes)

    def _top_k(self, features: Tensor, classes: Tensor, k: int) -> TopK:
        return TopK(*self.surrogate_.expansion.top_k(features, classes, k), classes)

    def classes(self, x: Any, target: Any) -> Tensor:
        """Give the class (B,) that is explained for each input."""
        return self._read(x, target)[1]

    def _read(self, x: Any, target: Any) -> tuple[Tensor, Tensor]:
        """Features (B, d) of inputs, and one class per test (B,) on the CPU, by default the model's own."""
        features, logits = self._outputs(x)
        return features, self.task_.explained(logits, target)

    def _given(self, features: Any, target: Any) -> tuple[Tensor, Tensor]:
        """Features (B, d) as a tensor, and one class per test (B,), by default the head's."""
        tests = self.surrogate_.check_features(features)
        return tests, self.task_.explained(self.surrogate_.model_logits(tests), target)

    def _outputs(self, x: Any) -> Outputs:
        """Features (B, d) of inputs, and the model's own output (B, K)."""
        surrogate = self.surrogate_
        found = self.require_model().read(x, self.batch_size)
        return Outputs(surrogate.check_features(found.features, "x"), found.logits)

    def _check_parameters(self) -> None:
        if isinstance(self.C, str) and self.C != "auto":
            raise InvalidInputError(f"'C' must be \"auto\" or a number above 0. Got {self.C!r}.")
        if self.C != "auto":
            check_C(self.C)  # the solver would say so after the features are computed
        self.bias = check_flag("bias", self.bias)
        check_options(self.tol, self.max_seconds, self.n_threads, self.seed)
        self.batch_size = check_count("batch_size", self.batch_size)
        self.show_progress = check_flag("show_progress", self.show_progress)
        if self.device is not None:
            check_device(self.device)

    def _state(self) -> tuple[store.Arrays, dict[str, Any]]:
        surrogate = self.surrogate_
        manifest = {
            "parameters": {name: getattr(self, name) for name in _PARAMETERS},
            "C": self.C_,
            "C_path": None if self.C_path_ is None else dataclasses.asdict(self.C_path_),
            "gap": self.gap_,
            "agreement": self.agreement_,
            "constant": self.constant_,
            "class_names": self.class_names_,
            "fingerprint": None if self.model_ is None else self.model_.fingerprint,
        }
        return surrogate.arrays(), manifest

    @classmethod
    def restored(cls, arrays: store.Arrays, values: dict[str, Any], model: nn.Module | None) -> Self:
        """Rebuild the attributor from its state."""
        from whence.attributors.saved import DualDAManifest, choice_of  # pydantic takes a while to import

        manifest = contents.manifest(DualDAManifest, values)
        fitted = None if model is None else BoundModel.match(model, manifest.fingerprint)
        contents.check_names(manifest.parameters, set(_PARAMETERS))
        with contents.restoring():
            self = cls(**manifest.parameters)
            self._check_parameters()
        surrogate = Surrogate.from_arrays(arrays, self._device(fitted), manifest.constant)
        shape = len(surrogate.coef), surrogate.vectors.shape[1]
        if fitted is not None and fitted.extractor.head().weight.shape != shape:
            raise contents.refused(
                f"'coef' must fit the model's layer {fitted.extractor.layer!r}, and does not"
            )
        if surrogate.bias != self.bias:
            raise contents.refused(
                "'coef' must have a column for the bias where 'bias' is set, and only there"
            )
        self.C_, self.gap_, self.agreement_ = manifest.C, manifest.gap, manifest.agreement
        self.task_ = Classes(len(surrogate.coef), manifest.names(len(surrogate.coef)))
        self.C_path_ = choice_of(manifest.C_path)
        self._adopt(surrogate, fitted)
        self._unseen = self._without_part_in_C()
        return self


_KNOWN_BY = 7  # random samples by which a training set is known again, beside the first

# The device is left out: it names a part of the machine that saved.
_PARAMETERS = ("C", "bias", "tol", "seed", "n_threads", "max_seconds", "batch_size", "show_progress")
