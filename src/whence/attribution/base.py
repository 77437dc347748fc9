"""The base class of every attribution method, what a method declares, and the methods by name."""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from torch import Tensor

from whence.attribution.fitted import Fitted, Tests
from whence.attribution.fitting import read_training, record
from whence.attribution.parameters import changed_params, check_fields, parameter, read_params, write_params
from whence.core import contents, store
from whence.core.checks import check_choice, check_count, check_flag, check_path
from whence.core.contents import Layout
from whence.core.display import brief, line, table
from whence.core.machine import BATCH_SIZE
from whence.core.naming import app_import
from whence.core.ranking import TopK, padded, rank_blocks
from whence.core.registry import Registry
from whence.data import OnError
from whence.errors import InvalidInputError, NotFittedError, StoreError, UnsupportedError
from whence.features import FeatureBank
from whence.features.training import Classifier, Training
from whence.model.inputs import check_device
from whence.tasks import Task

if TYPE_CHECKING:
    import torch

    from whence.explanation import Explanations
    from whence.features import Novelty
    from whence.relevance.xda import Method
    from whence.surrogate.surrogate import Surrogate


@dataclass(frozen=True)
class Capabilities:
    """What a method supports, needs and costs.

    Attributes
    ----------
    needs_checkpoints : whether ``fit`` must be given weights from the course of training
    needs_loss : whether it uses gradients or curvature of the training loss, which is taken to be the
        cross-entropy
    last_layer_only : whether it sees the model as features and a last linear layer, and so nothing of how
        the layers before were trained
    memory : what its memory grows with, in a phrase; N training samples, d features, K classes, P parameters
    cost : CPU-seconds of fitting and of explaining 200 tests, for 1,000 training samples and a small
        convolutional network, per checkpoint where it takes some, roughly: an evaluation plans with it
    own_class_only : whether, with features that are nowhere negative, only samples of the target class can
        score above 0
    new_layer : whether it fits a linear layer of its own, ``coef_``, instead of the model's last one
    tasks : kinds of task it supports: "class", "label" (several labels per sample), "number"
    explains : whether ``explain`` works: relevance maps on both samples of a pair
    dual : whether scores are parts of a logit from a dual solution, which audits, updates, what-if questions
        and concepts need
    effects : whether scores are predicted changes of an output
    members : whether it consists of several fitted attributors, ``members_``
    """

    needs_checkpoints: bool = False
    needs_loss: bool = False
    last_layer_only: bool = False
    memory: str = "what it keeps of each training sample"
    cost: float = 1.0
    own_class_only: bool = False
    new_layer: bool = False
    tasks: tuple[str, ...] = ("class",)
    explains: bool = False
    dual: bool = False
    effects: bool = False
    members: bool = False


@dataclass(eq=False, kw_only=True, repr=False)
class Attributor(ABC):
    """Scores every training sample by what it contributes to a prediction.

    Scores have shape (test, train). A positive score supports the target class. ``target`` is None (the class
    the model predicts), one class by its number or name, or one class per test. The constructor only stores
    hyper-parameters; ``fit`` returns the attributor itself; what it learned is one record, ``fitted_``, whose
    fields are read as attributes that end in an underscore: ``explainer.labels_`` is
    ``explainer.fitted_.labels``.

    A method is a dataclass whose fields are its hyper-parameters, with three functions for the M samples that
    took part in the fit: ``learn``, ``score_tests`` and ``score_self``. ``whence.register`` makes it known by
    its ``name``.

    Parameters
    ----------
    batch_size
        Inputs per forward pass.
    show_progress
        Show progress bars.

    Attributes
    ----------
    fitted_ : Fitted, what the fit learned. Among others:
    n_train_ : int, samples of the training set
    task_ : Task, what the model's outputs stand for; ``n_classes_``, ``classes_`` (0 … K−1) and
        ``class_names_`` are read from it
    labels_ : (train, …), for classes int64, −1 for skipped samples
    used_ : (train,) bool, samples that took part in the fit
    skipped_ : int64, the others, which could not be read and score 0
    head_, model_, data_ : the model's last layer, the model as it was when fitted, the training set, or None
    cache_bytes_ : int, size of what ``fit`` keeps for attributing, without the model and the training set
    seconds_, origins_ : dict, how long ``fit`` took for "features" and "solution", and where they come from:
        computed, and why; resumed; reused; given
    fit_seconds_ : float, the sum of ``seconds_``; 0 for an attributor that was loaded
    reading_ : dict, how the training features were read, such as ``cache_dir``, so that they are found again
    """

    name: ClassVar[str]
    """The method's name in the registry and in saved files."""

    capabilities: ClassVar[Capabilities] = Capabilities()
    """What the method supports, needs and costs."""

    learned: ClassVar[tuple[str, ...]] = (
        "n_train", "task", "n_classes", "classes", "class_names", "labels", "used", "skipped", "head",
        "model", "data", "cache_bytes", "seconds", "origins", "fit_seconds", "reading",
    )  # fmt: skip
    """What is read of a fit as attributes, each with an underscore at its end."""

    batch_size: int = parameter(BATCH_SIZE, check_count)
    show_progress: bool = parameter(True, check_flag)
    fitted_: Fitted = field(init=False)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = Attributor.__repr__  # type: ignore[method-assign]  # a dataclass would write its own

    # What a method writes

    @abstractmethod
    def learn(self, training: Training, **given: Any) -> dict[str, Tensor] | Surrogate:
        """Learn from the training set: return tensors by name, or a surrogate, which ``save`` can write.

        ``given`` is what ``_check_given`` returned.
        """

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        """Return scores (B, M) of tests for the M training samples that took part."""
        scores: Tensor = fitted.scorer.between(tests)
        return scores

    def score_self(self, fitted: Fitted) -> Tensor:
        """Return the score of each of the M samples for its own label at itself, (M,)."""
        scores: Tensor = fitted.scorer.squares()
        return scores

    # What a method may write

    def _check_parameters(self) -> None:
        """Raise where a hyper-parameter is wrong, before any work is done."""
        check_fields(self)
        if self._placed is not None:
            check_device(self._placed)

    def _check_given(self, model: Any) -> dict[str, Any]:
        """Check what ``fit`` takes besides the arguments of all methods, as keywords, before any work.

        Returns what ``learn`` takes besides the training set. ``model`` is inside its wrappers, or None.
        """
        return {}

    def _check_task(self, task: Task) -> None:
        """Raise where the method does not support a task."""
        if task.label_kind not in self.capabilities.tasks:
            task.require_classes(f"The model of {type(self).__name__}")

    def _needs_inputs(self) -> bool:
        """Whether scores need inputs and the model, not features alone."""
        return not self.capabilities.last_layer_only

    def _open(self, fitted: Fitted) -> Any:
        """Build what scores are computed with, after a fit and after ``load``.

        By default its ``between(tests)`` are the scores, and its ``squares()`` the self-influence.
        """
        return None

    def _rank(self, fitted: Fitted, tests: Tests, k: int) -> TopK:
        """Rank the training samples of each test, a few tests at a time."""
        return rank_blocks(
            lambda rows: fitted.for_all(self.score_tests(fitted, tests[rows])),
            tests.targets,
            k,
            fitted.n_train,
        )

    def _layout(self, classifier: Classifier) -> Layout | None:
        """Return the shapes of what ``learn`` returns for N samples, K classes and d features; with bias, e.

        None asks nothing of a file but whole numbers, flags, or finite numbers of either precision.
        """
        return None

    def _doubles(self) -> tuple[str, ...]:
        """Return the names of arrays that have double precision, whatever the model's."""
        return ()

    def _unsaved(self, fitted: Fitted | None) -> str:
        """Return why a fit with these parameters is not saved, without a full stop; empty where it is."""
        return ""

    def _facts(self, fitted: Fitted) -> dict[str, Any]:
        """Return what a fit found, for display: the data, and how well the surrogate agrees."""
        width = {} if fitted.head is None else {"features": fitted.head.weight.shape[1]}
        return {"samples": fitted.n_train, **width, fitted.task.outputs: fitted.n_classes}

    # What users call

    def fit(
        self,
        model: Any = None,
        data: Any = None,
        y: Any = None,
        *,
        layer: str | None = None,
        features: FeatureBank | None = None,
        task: str | type[Task] | Task | None = None,
        preprocess: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        tokenizer: Any = None,
        feature_names: Sequence[str] | None = None,
        cache_dir: str | PathLike[str] | None = None,
        cache_key: str | None = None,
        dtype: str = "float32",
        autocast: str | None = None,
        num_workers: int = 0,
        on_error: OnError = "raise",
        class_names: Sequence[str] | None = None,
        **given: Any,
    ) -> Self:
        """Fit to a trained model and its training set, or to features that were extracted before.

        Parameters
        ----------
        model
            A torch classifier that maps a batch to logits (B, K) by a last linear layer; a softmax,
            log_softmax or sigmoid after it is found by value. It is run in eval mode and left unchanged. A
            ``Trainer`` of transformers brings its training set and its collator along, a ``pipeline`` its
            tokenizer or image processor. A fitted estimator or pipeline of scikit-learn works if it ends in a
            linear model: features are what enters that, and relevance maps are on these.
        data
            A Dataset, map-style or iterable, a DataLoader, a datasets.Dataset, a tuple (X, y) of arrays or
            tensors, a table of pandas with a column of labels, or the path of a folder with a subfolder of
            images per class. Samples are pairs (input, label), or mappings or dataclasses with a label: 0 …
            K−1, the name of a class, or what the task takes. Inputs alone where ``y`` has the labels.
        y
            The labels, one per sample: ``fit(model, X, y)``.
        layer
            Name of the last linear layer, when the model does something else after it.
        features
            A bank instead of model and data: of ``whence.features.extract``, by which several methods share
            one pass over the training set, or of arrays, by ``FeatureBank.of(features, labels)``.
        task
            What labels and outputs stand for: "classes" for one class per sample, "one-logit" for two by one
            output, "many-labels" for zeros and ones, "regression" for numbers, or a task of your own
            (``whence.tasks.Task``), its class or its name; None finds it by the labels, or says what is not
            clear. A bank has its own.
        preprocess
            Makes the model's inputs of a batch of inputs: an image processor, or any function. New inputs go
            through it as well.
        collate_fn
            Makes a batch of a list of samples, as in a DataLoader.
        tokenizer
            Of transformers: makes the model's inputs of texts, and shows tokens as text in explanations. None
            looks for the one that ``preprocess`` or ``collate_fn`` uses, to show tokens. For a causal
            language model ``data`` are documents: every token of them is a sample, and what comes before it
            the input; see ``whence.data.Corpus``.
        feature_names
            One name per feature of samples that are rows of numbers: figures and pages label bars with them.
            None takes the columns of a table of pandas.
        cache_dir
            Folder that keeps features and solutions. A fit that was killed resumes there, and one with the
            same model, data and options takes what is there, once it has read all samples again and compared
            them with those of then; see ``whence cache ls``. It is remembered: what needs the training
            features later finds them there.
        cache_key
            A word that stands for the inputs of all samples and for what of the model cannot be read, such as
            objects of a library in C. As long as it is the same, features in the cache are taken without
            reading the samples again: you vouch for it.
        dtype
            Of the features: "float32", or "float16" for half the memory.
        autocast
            "bfloat16" or "float16": run the model in mixed precision.
        num_workers
            Processes that read samples.
        on_error
            What to do with a sample that cannot be read: "raise" names it; "skip" leaves it out of the fit,
            lists it in ``skipped_``, and its scores are 0.
        class_names
            One name per class, in order; None takes those of the model or of the data, if they have any.
        given
            What some methods take besides these, such as checkpoints: see the method.
        """
        reading = {
            "cache_dir": cache_dir,
            "cache_key": cache_key,
            "dtype": dtype,
            "autocast": autocast,
            "num_workers": num_workers,
            "on_error": on_error,
        }
        form = {
            "task": task,
            "preprocess": preprocess,
            "collate_fn": collate_fn,
            "tokenizer": tokenizer,
            "feature_names": feature_names,
        }
        self._check_parameters()
        started = time.perf_counter()
        training, options = read_training(
            self, model, data, y, layer, features, form, reading, class_names, given,
            check_given=self._check_given, check_task=self._check_task, needs_inputs=self._needs_inputs(),
        )  # fmt: skip
        took = {"features": time.perf_counter() - started}
        started = time.perf_counter()
        learned = self.learn(training, **options)
        training.bank.verify()  # what was read, now that all is read
        took["solution"] = time.perf_counter() - started
        self.fitted_ = self._opened(record(training, learned, type(self).__name__, took, reading, options))
        return self

    def attribute(self, x: Any = None, target: Any = None, *, features: Any = None) -> Tensor:
        """Return scores (test, train); positive supports the target class.

        Parameters
        ----------
        x
            One sample or a batch: a tensor or array, a mapping of these such as a tokenizer returns, a table
            of pandas or a row of it, a text, an image of PIL, or a list of samples as in the training set. A
            shape that may be one sample or a batch is read by the shape of a training sample. Where ``fit``
            was given ``preprocess`` or ``tokenizer``, inputs before it. Or a data set or ``DataLoader`` in a
            form that ``fit`` takes but folders: its labels are dropped, and row i is its sample i.
        target
            The class to explain, by number or name: None (the class the model predicts), one class, or one
            class per test.
        features
            Features (B, d) of the tests instead of ``x``, where the method needs no inputs.
        """
        fitted = self._check_fitted()
        return fitted.for_all(self.score_tests(fitted, self._tests(x, target, features)))

    def self_influence(self) -> Tensor:
        """Return the score of each training sample for its own label at itself, (train,)."""
        fitted = self._check_fitted()
        return fitted.for_all(self.score_self(fitted)[None])[0]

    def top_k(self, x: Any = None, k: int = 5, target: Any = None, *, features: Any = None) -> TopK:
        """Find the k strongest proponents and opponents of each test, without the (test, train) matrix.

        Proponents have positive scores, evidence for the target class, largest first; opponents have
        negative ones, most negative first. This is the plain ranking: ``explain`` shows near-duplicates once.
        Where a test has fewer than k of a sign, the rest is padded with index −1 and score 0.

        Parameters
        ----------
        x, target, features
            As for ``attribute``.
        k
            Samples per side.
        """
        fitted = self._check_fitted()
        k = check_count("k", k, 1, padded(fitted.n_train))
        return self._rank(fitted, self._tests(x, target, features), k)

    def explain(
        self,
        x: Any = None,
        k: int = 5,
        target: Any = None,
        *,
        features: Any = None,
        index: int | Sequence[int] | None = None,
        truth: Any = None,
        method: Method | None = None,
        novelty: Novelty | Literal[False] | None = None,
        against: Any = None,
        relative: bool | None = None,
    ) -> Explanations:
        """Explain predictions by their strongest training samples, and these by relevance maps on both.

        The score of a pair is linear in the features of either sample; with raw features the relevance of
        feature j is λ_ic f(x)_j f(x_i)_j. It is propagated to the input of the
        test sample and to that of the training sample. A test sample costs one forward pass, its training
        samples one in a batch, and either one pass back. Effects are linear in the features of either sample
        too, so that on both the relevance is all of the effect but the part of the bias.

        Parameters
        ----------
        x
            A batch of inputs, as for ``attribute``.
        k
            Proponents and opponents to show, at most 10,000; fewer where there are fewer. They differ from
            each other: of near-duplicates the strongest is shown, and says how many are like it.
        target
            As for ``attribute``.
        features
            Features (B, d) of the tests instead of ``x``, where there is no model: the maps are then on the
            features themselves. A table of pandas has their names.
        index
            Training samples to explain by, all of them, instead of the k strongest. Those that have a score
            of 0 for a test are not shown there.
        truth
            The true classes (B,), or labels of another task (B, …), where they are known, for display.
        method
            How relevance goes from features to inputs: "epsilon_plus_flat", "attn_lrp", "attn_lrp_cp",
            "epsilon", ``whence.relevance.Rules``, or a class of ``captum.attr``. None takes attn_lrp_cp for
            a model with attention, epsilon_plus_flat for other convolutional ones, epsilon for the rest.
        novelty
            What ``novelty()`` returned, to check whether the test resembles the training set. None makes it
            on first use and keeps it, where the explainer has its model and data: for 100 to 10,000 training
            samples, or more with a ``cache_dir``, since it takes a pass over the training set. Elsewhere, and
            with False, the check is left out.
        against
            Another class, by number or name, or one per test, or "runner-up": explain the evidence for the
            target over that class. Scores then sum to the difference of the two logits, less their base
            value.
        relative
            Whether scores say what sets the test apart: relative to the mean of the training set, or of class
            ``against``, as SHAP values are to a base value. They are parts of one sum,
            logit = base value + Σ scores. False leads with τ as in the paper, whose base value is 0. None is
            True for ``DualDA``; effects are never relative.

        Returns
        -------
        Explanations, one per test sample. Positive scores and relevance support the target class.
        """
        from whence.attribution.explaining import explain

        fitted = self._check_fitted()
        if not self.capabilities.explains:
            raise UnsupportedError(
                f"{fitted.method} has no relevance maps of pairs. Use DualDA or Effects, or top_k here."
            )
        return explain(self, x, k, target, index, truth, method, novelty, against, relative, features)

    def serve(
        self,
        tests: Any = None,
        *,
        compare: Attributor | None = None,
        port: int = 0,
        open_browser: bool = True,
        block: bool | None = None,
    ) -> Any:
        """Show tests, training samples and audits in the explorer, a page that this machine alone can open.

        Parameters
        ----------
        tests
            Samples with labels, in any form that ``fit`` takes, or inputs alone, as for ``explain``. None
            shows up to 1,000 training samples, evenly spread over the training set.
        compare
            Another fitted explainer, of another method, model or training set: both are shown side by side
            on the same tests.
        port
            Of the address; 0 takes one that is free.
        open_browser
            Open the page in the browser.
        block
            Return only after Ctrl-C. None does so in scripts, whose end would end the page, and returns at
            once in notebooks and at the prompt.

        Returns
        -------
        The server: ``url`` is its address, ``close()`` ends it.
        """
        self._check_fitted()
        return _explorer().serve_explainer(
            self, tests, port, compare=compare, open_browser=open_browser, block=block
        )

    def report(
        self, path: str | PathLike[str], tests: Any = None, *, k: int = 5, effects: bool = False
    ) -> str:
        """Write tests and audits as one page of the explorer, which opens from disk without a server.

        Parameters
        ----------
        path
            Of the page.
        tests
            As for ``serve``, all of them on the page; None shows 20 training samples.
        k
            Proponents and opponents of each test.
        effects
            Also fit ``Effects``, and show what would change without each sample.

        Returns
        -------
        The path, as a string.
        """
        self._check_fitted()
        written: str = _explorer().report_explainer(self, path, tests, k, effects=effects)
        return written

    def save_scores(
        self,
        path: str | PathLike[str],
        x: Any = None,
        target: Any = None,
        *,
        features: Any = None,
        test_ids: Sequence[Any] | None = None,
        train_ids: Sequence[Any] | None = None,
    ) -> str:
        """Write scores to a file that other programs read, with what they mean as metadata.

        The metadata names the axes, the sign, the method, the outputs, the model by a digest of its weights
        and the training set by one of its labels. Values that are not texts are JSON.

        Parameters
        ----------
        path
            A name that ends in ".safetensors", for ``scores`` (test, train) and ``target`` (test,); or in
            ".parquet", for one row per score that is not 0: test, target, train, score. The latter needs
            pyarrow.
        x, target, features
            As for ``attribute``.
        test_ids, train_ids
            Your names of the samples, texts or whole numbers; None writes their places.

        Returns
        -------
        The path, as a string.
        """
        from whence.attribution.score_files import check_score_path, write_scores

        fitted, written = self._check_fitted(), check_score_path(path)
        tests = self._tests(x, target, features)
        scores = fitted.for_all(self.score_tests(fitted, tests))
        write_scores(fitted, written, scores, tests.targets, test_ids, train_ids)
        return written

    def save(self, path: str | PathLike[str], *, features: Literal["copy", "bank"] = "copy") -> None:
        """Write the fitted attributor to one file, which ``whence.load`` reads.

        Parameters
        ----------
        path
            Of the file.
        features
            "copy" puts the support vectors' features into the file. "bank" names the bank in the cache that
            they lie in, by its fingerprint and checksum: a small file, which ``whence.load`` opens with the
            ``cache_dir`` of the fit. Attribution then reads rows from the bank as it needs them.
        """
        in_bank = check_choice("features", features, ("copy", "bank")) == "bank"
        store.write(check_path("path", path), *self.packed(in_bank))

    @classmethod
    def restored(cls, arrays: store.Arrays, values: dict[str, Any], model: Any) -> Self:
        """Rebuild an attributor from what ``save`` wrote, or raise StoreError for another model."""
        from whence.attribution import saving

        manifest = saving.read_manifest(cls, values)
        with contents.restoring():
            self = cls(**saving.saved_parameters(manifest, arrays))
            self._check_parameters()
        if why := self._unsaved(None):
            raise contents.refused(why)
        self.fitted_ = self._opened(
            saving.restore_surrogate(self, arrays, manifest, model)
            if cls.capabilities.dual or cls.capabilities.effects
            else saving.restore_arrays(self, arrays, manifest, model, self._layout, self._doubles())
        )
        return self

    def packed(self, in_bank: bool = False) -> tuple[store.Arrays, dict[str, Any]]:
        """Return what ``save`` writes: arrays and manifest; with ``in_bank`` features stay in the cache."""
        from whence.attribution import saving

        fitted = self._check_fitted()
        if why := self._unsaved(fitted):
            raise StoreError(f"{why}. Fit it again where it is needed.")
        if fitted.surrogate is not None or in_bank:
            return saving.pack_surrogate(self, fitted, in_bank=in_bank)
        return saving.pack_arrays(self, fitted, self._layout(fitted.classifier) is not None)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return hyper-parameters by name; with ``deep`` also those of a method in them, as ``name__own``.

        Examples
        --------
        >>> import whence
        >>> whence.DualDA(C=0.1).get_params()["C"]
        0.1
        >>> whence.Ensemble(whence.DualDA(C=0.1)).get_params()["members__C"]
        0.1
        """
        return read_params(self, deep)

    def set_params(self, **parameters: Any) -> Self:
        """Set hyper-parameters by name, of a method in them as ``name__own``; the next ``fit`` uses them.

        Examples
        --------
        >>> import whence
        >>> whence.DualDA().set_params(C=0.1).C
        0.1
        """
        write_params(self, parameters)
        return self

    def __repr__(self) -> str:
        """Return the parameters that are not the defaults and, once it is fitted, what the fit found."""
        own = line(type(self).__name__, changed_params(self))
        if "fitted_" not in self.__dict__:
            return own
        facts = self._facts(self.fitted_)
        return f"{own} fitted: {', '.join(f'{name}={brief(value)}' for name, value in facts.items())}"

    def _repr_html_(self) -> str:
        if "fitted_" not in self.__dict__:
            return table(f"{type(self).__name__}, not fitted", self.get_params(deep=False))
        facts = {**self._facts(self.fitted_), "parameters": changed_params(self)}
        return table(type(self).__name__, facts)

    def __getattr__(self, name: str) -> Any:
        """Read what the fit learned: ``name_`` is ``fitted_.name``, or that of the surrogate."""
        if name.endswith("_") and not name.startswith("_"):
            fitted = self._check_fitted()
            for record in (fitted, fitted.scorer, fitted.surrogate):
                if hasattr(record, name[:-1]):
                    return getattr(record, name[:-1])
            if name[:-1] in fitted.arrays:
                return fitted.arrays[name[:-1]]
        message = f"{type(self).__name__} has no {name!r}."
        if not name.startswith("_"):
            having = [method.__name__ for method in METHODS if hasattr(method, name)]
            message += f" {having[0]} has it." if having else ""
        raise AttributeError(message)

    def __dir__(self) -> list[str]:
        """List what users call: verbs, hyper-parameters and, once fitted, what was learned."""
        learned = []
        if "fitted_" in self.__dict__:
            names = (*self.learned, *self.fitted_.arrays)
            learned = [f"{name}_" for name in names] + ["fitted_"]
        public = {name for name in super().__dir__() if not name.startswith("_")}
        return sorted({*public, *learned} - _HIDDEN)

    def _check_fitted(self) -> Fitted:
        """Return what the fit learned, or raise NotFittedError before ``fit``."""
        if "fitted_" not in self.__dict__:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet. Call fit first.")
        return self.fitted_

    def _opened(self, fitted: Fitted) -> Fitted:
        """Return what was learned together with what scores are computed with."""
        fitted = replace(fitted, needs_inputs=self._needs_inputs())
        return replace(fitted, scorer=self._open(fitted))

    def _tests(self, x: Any, target: Any, features: Any) -> Tests:
        """Read tests: inputs, or features instead."""
        fitted = self._check_fitted()
        if (x is None) == (features is None):
            raise InvalidInputError(
                f"Either 'x' or 'features' must be given. Got {'neither' if x is None else 'both'}."
            )
        return fitted.read(x, target) if features is None else fitted.take(features, target)

    @property
    def _placed(self) -> str | torch.device | None:
        """The device that was asked for, None where there is no such parameter."""
        return self.__dict__.get("device")


_HIDDEN = {"learn", "score_tests", "score_self", "restored", "packed", "name", "capabilities", "learned"}
"""Public names for those who write a method; users do not call them."""


def _explorer() -> Any:
    with app_import("The explorer"):
        # By name: it lies above the methods, and takes a while to import.
        return import_module("whence.ui.server")


def _is_method(thing: Any) -> bool:
    """Whether something is a class that declares what a method supports, and has all that a method has."""
    declared = isinstance(getattr(thing, "capabilities", None), Capabilities)
    return isinstance(thing, type) and declared and not inspect.isabstract(thing)


METHODS: Registry[type[Attributor]] = Registry(
    "attribution method", _is_method, lambda method: method.name, package="whence.methods"
)
"""The command line, the evaluation, ``load`` and the contract tests read this table."""

register, get, names = METHODS.add, METHODS.get, METHODS.names
