"""The contract of every attribution method, and the methods by name: whence's own, and those of users."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from whence.attribution.classifier import Training
from whence.attribution.frame import Reading
from whence.attribution.ranking import Ranked, TopK, padded, rank
from whence.attribution.saving import Saveable
from whence.core.checks import check_count, check_names, shown
from whence.core.registry import Registry
from whence.data import OnError, as_training_set
from whence.errors import InvalidInputError
from whence.features import FeatureBank, extract
from whence.model.holders import held_by
from whence.model.inputs import take
from whence.model.language import of_documents
from whence.model.modules import check_model
from whence.model.modules import class_names as model_class_names
from whence.tasks import Task, Tokens, as_task

_BLOCK = 1 << 22  # scores that top_k holds at a time
_USUAL = {"dtype": "float32", "autocast": None, "num_workers": 0, "on_error": "raise"}  # reading of samples


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
    new_layer : whether it puts a linear layer of its own, ``coef_``, instead of the model's last one
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


class Attributor(Saveable):
    """Scores every training sample by what it contributes to a prediction.

    Scores have shape (test, train). A positive score is evidence for the target class. ``target`` is None
    (the class the model predicts), one class by its number or name, or one class per test. The
    constructor only stores hyper-parameters; ``fit`` returns the attributor itself; what it learned ends in
    an underscore.

    A method writes ``_learn``, ``_scores`` and ``_self_influence`` for the samples that took part in the fit;
    the frame does the rest. What ``_learn`` returns is kept as ``_cache``, measured as ``cache_bytes_``, and
    is all that ``save`` writes. ``whence.register`` makes a method known by its ``name``.

    Parameters
    ----------
    batch_size
        Inputs per forward pass.
    show_progress
        Show progress bars.

    Attributes
    ----------
    n_train_ : int, samples of the training set
    task_ : Task, what the model's outputs stand for; ``n_classes_`` and ``class_names_`` are read from it
    labels_ : (train, …), of classes int64, −1 for skipped samples
    used_ : (train,) bool, samples that took part in the fit
    skipped_ : int64, the others, which could not be read and score 0
    head_ : Head or None, the model's own last layer
    model_ : BoundModel or None, the model as it was when fitted
    data_ : TrainingSet or None, the training set
    cache_bytes_ : int, size of what ``fit`` keeps for attributing, without the model and the training set
    seconds_, origins_ : dict, how long ``fit`` took for "features" and "solution", which is what is learned
        of them, and where they come from: computed, and why; resumed; reused; given
    fit_seconds_ : float, the sum of ``seconds_``; 0 for an attributor that was loaded
    reading_ : dict, how the training features were read, such as ``cache_dir``, so that they are found again
    """

    capabilities: ClassVar[Capabilities] = Capabilities()
    """What the method asks for, and what it leaves out."""

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
        cache_dir: str | PathLike[str] | None = None,
        dtype: str = "float32",
        autocast: str | None = None,
        num_workers: int = 0,
        on_error: OnError = "raise",
        class_names: Sequence[str] | None = None,
        **given: Any,
    ) -> Self:
        """Fit to a trained classifier and its training set, or to features that were extracted before.

        Parameters
        ----------
        model
            A torch classifier that maps a batch to logits (B, K) by a last linear layer. It is run in eval
            mode and left as it was. A ``Trainer`` of transformers brings its training set and its collator
            along, a ``pipeline`` its tokeniser or image processor.
        data
            A Dataset, map-style or iterable, a DataLoader, a datasets.Dataset, a tuple (X, y) of arrays or
            tensors, or the path of a folder with a subfolder of images per class. Samples are pairs (input,
            label), or mappings or dataclasses with a label: 0 … K−1, the name of a class, or what the task
            takes. Inputs alone where ``y`` has the labels.
        y
            The labels, one per sample, beside inputs as ``data``: ``fit(model, X, y)``.
        layer
            Name of the last linear layer, when the model does something after it, such as a softmax.
        features
            A bank instead of model and data: of ``whence.features.extract``, by which several methods
            share one pass over the training set, or of arrays, by ``FeatureBank.of(features, labels)``.
        task
            What labels and outputs stand for: "classes" for one class per sample, "one-logit" for two by one
            output, "many-labels" for zeros and ones, "regression" for numbers, or a task of one's own
            (``whence.tasks.Task``), its class or its name; None finds it by the labels, or says what is not
            clear. A bank has its own.
        preprocess
            Makes the model's inputs of a batch of inputs: a tokeniser, an image processor, or any function.
            New inputs go through it as well.
        collate_fn
            Makes a batch of a list of samples, as in a DataLoader.
        tokenizer
            Of transformers: explanations show tokens by it as text. None looks for it in ``preprocess`` and
            ``collate_fn``. Of a causal language model ``data`` are documents then: every token of them is a
            sample, and what comes before it the input; ``whence.data.Corpus`` has more of this.
        cache_dir
            Folder that keeps features and solutions. A fit that was killed resumes there, and one with the
            same model, data and options takes what is there; see ``whence cache ls``. It is remembered: what
            needs the training features later finds them there.
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
            One name per class, in order; None takes those of the model or of the data, if they have any.
        given
            What some methods ask for beside these: checkpoints, learning rates.
        """
        self._check_parameters()
        started = time.perf_counter()
        names = None if class_names is None else check_names("class_names", class_names)
        data = _labelled(data, y)
        if features is None:
            written = of_documents(model, data, tokenizer)
            if written is not None:
                model, data = written
                _check_documents(as_task(task), preprocess, collate_fn)
                preprocess, tokenizer, task = data.prompts, None, Tokens
                names = data.prompts.names(model.n_tokens) if names is None else names
            held = held_by(model, data)
            data = held.data
            if preprocess is None and collate_fn is None:
                preprocess, collate_fn = held.preprocess, held.collate_fn
        form: dict[str, Any] = {
            "task": as_task(task),
            "preprocess": preprocess,
            "collate_fn": collate_fn,
            "tokenizer": tokenizer,
        }
        reading: Reading = {
            "cache_dir": cache_dir,
            "dtype": dtype,
            "autocast": autocast,
            "num_workers": num_workers,
            "on_error": on_error,
        }
        if features is None:
            more = self._check_given(check_model(model, layer), **given)
            known = model_class_names(model) if names is None else names
            samples = as_training_set(data, self.batch_size, names=known, **form)
            self._check_task(samples.task)
            bank = extract(
                model,
                samples,
                layer=layer,
                layers=self.layers,
                batch_size=self.batch_size,
                device=self.device,
                show_progress=self.show_progress,
                **reading,
            )
        else:
            made_by = {"model": model, "data": data, "layer": layer, **form}
            told = [name for name, value in made_by.items() if value is not None]
            told += [name for name, usual in _USUAL.items() if reading.get(name) != usual]
            bank = self._check_bank(features, told)
            more = self._check_given(None if bank.model is None else bank.extractor.model, **given)
        training = Training(bank, self._task(bank, names), self.batch_size, cache_dir)
        return self._fit(training, time.perf_counter() - started, reading, more)

    def attribute(self, x: Any, target: Any = None) -> Tensor:
        """Scores (test, train) of a batch of inputs; positive is evidence for the target class.

        Parameters
        ----------
        x
            A batch of inputs: a tensor or array (B, …), a mapping of these such as a tokeniser gives, or a
            list of samples as they are in the training set. Where ``fit`` was given ``preprocess``, inputs
            before it. Or a data set or ``DataLoader`` in any form that ``fit`` takes but folders: its labels
            are left aside, and row i is its sample i.
        target
            The class to explain, by number or name: None (the class the model predicts), one class, or one
            class per test.
        """
        return self._for_all(self._scores(*self._read(x, target), x))

    def attribute_features(self, features: Any, target: Any = None) -> Tensor:
        """Scores (test, train) of features (B, d); otherwise as ``attribute``."""
        return self._for_all(self._scores(*self._given(features, target), None))

    def self_influence(self) -> Tensor:
        """Score of each training sample for its own label at itself, shape (train,)."""
        self.check_fitted()
        return self._for_all(self._self_influence()[None])[0]

    def top_k(self, x: Any, k: int = 5, target: Any = None) -> TopK:
        """Find the k strongest proponents and opponents of each test, without the (test, train) matrix.

        Proponents have positive scores, evidence for the target class, largest first; opponents have
        negative ones, most negative first. Where a test has fewer than k of a sign, the rest is padded with
        index −1 and score 0.

        Parameters
        ----------
        x
            A batch of inputs, as for ``attribute``.
        k
            Samples per side.
        target
            As for ``attribute``.
        """
        k = check_count("k", k, 1, padded(self.n_train_))
        return self._strongest(*self._read(x, target), x, k)

    def top_k_features(self, features: Any, k: int = 5, target: Any = None) -> TopK:
        """``top_k`` of features (B, d)."""
        k = check_count("k", k, 1, padded(self.n_train_))
        return self._strongest(*self._given(features, target), None, k)

    def classes(self, x: Any, target: Any) -> Tensor:
        """Class (B,) that is explained for each input, int64 on the CPU; the model's own for None."""
        return self._read(x, target)[1]

    def _strongest(self, features: Tensor, classes: Tensor, x: Any, k: int) -> TopK:
        """Rank the samples, a few tests at a time."""
        width = max(1, _BLOCK // self.n_train_)
        parts = []
        for start in range(0, len(features), width):
            rows = slice(start, start + width)
            scores = self._scores(features[rows], classes[rows], None if x is None else take(x, rows))
            parts.append(rank(self._for_all(scores), k))
        sides = zip(*parts, strict=True)
        proponents, opponents = (Ranked(*map(torch.cat, zip(*side, strict=True))) for side in sides)
        return TopK(proponents, opponents, classes)


def _labelled(data: Any, y: Any) -> Any:
    """Return inputs with the labels that were given apart, or raise."""
    if y is None:
        return data
    if isinstance(y, str) or not hasattr(y, "__len__"):
        raise InvalidInputError(
            f"'y' must be labels, one per sample of 'data'. Got {shown(y)}. A layer is named by 'layer'."
        )
    pair = isinstance(data, tuple) and len(data) == 2
    if pair or data is None:
        raise InvalidInputError(
            f"'data' must be the inputs that 'y' has the labels of. Got {'a pair' if pair else 'None'}. Pass "
            "fit(model, X, y) or fit(model, (X, y))."
        )
    return data, y


def _check_documents(task: Task | None, preprocess: Any, collate_fn: Any) -> None:
    """Raise where documents come with what makes samples of something else."""
    others = {"preprocess": preprocess, "collate_fn": collate_fn}
    told = [name for name, value in others.items() if value is not None]
    if told or not (task is None or task.of_documents):
        raise InvalidInputError(
            f"'{(told or ['task'])[0]}' must be left out where 'data' are documents of a language model: "
            "their tokens are the samples, and the tokeniser makes the inputs. Got one."
        )


def share_options(fit: Callable[..., Any]) -> Any:
    """Describe in a method's own ``fit`` what it shares with every other."""
    _, _, shared = inspect.cleandoc(Attributor.fit.__doc__ or "").partition("----------\n")
    fit.__doc__ = f"{inspect.cleandoc(fit.__doc__ or '')}\n{shared}"
    return fit


def _is_method(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Attributor) and not inspect.isabstract(thing)


METHODS: Registry[type[Attributor]] = Registry("attribution method", _is_method, lambda method: method.name)
"""The command line, the evaluation, ``load`` and the contract tests read this table."""

register, get, names = METHODS.add, METHODS.get, METHODS.names
