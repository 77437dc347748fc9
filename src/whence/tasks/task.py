"""The contract of a task, and the tasks by name: those of whence, and those of users."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from whence.core import contents
from whence.core.arrays import Array, Doubles, Ints, Mask
from whence.core.checks import check_count, check_shape, check_that, outside, shown, to_array
from whence.core.display import number
from whence.core.registry import Registry
from whence.errors import DataWarning, InvalidInputError, ModelError, SampleError, UnsupportedError, warn
from whence.svm.likeness import CLASSES

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from whence.svm import CChoice, Makes

LabelKind = Literal["class", "label", "number"]
"""What a sample is labelled with: one of several classes, any of several labels, or numbers."""


class Verdict(NamedTuple):
    """What a model and its surrogate predict for one test sample, in words.

    Attributes
    ----------
    predicted : by the model
    probability : of that by the model, or of the label that is explained; None for numbers
    truth : the true label, None where it is not known
    right : whether the prediction is true; None where it is a matter of degree, or not known
    surrogate : what the surrogate predicts
    agrees : whether that is the model's prediction, as far as it is explained
    """

    predicted: str
    probability: float | None
    truth: str | None
    right: bool | None
    surrogate: str
    agrees: bool


@dataclass(frozen=True)
class Task(ABC):
    """Defines what labels and outputs mean, which dual problem is solved and which output is explained.

    A task of your own is one class in one file, which ``whence.register`` makes known by its name. Code reads
    what a task declares below and never asks for its class. Fields other than ``n_outputs`` and ``names`` are
    parameters of the task, which have defaults; they are saved.

    Attributes
    ----------
    n_outputs : K, how many outputs the model has; 0 until the model or the labels decide
    names : one per output, or None where neither the model nor the data name them
    """

    n_outputs: int = 0
    names: tuple[str, ...] | None = None

    name: ClassVar[str]
    """In saved files, and for ``fit(…, task=name)``."""

    outputs: ClassVar[str] = "outputs"
    """What outputs are, in messages."""

    output: ClassVar[str] = "output"
    """The same, singular."""

    label_kind: ClassVar[LabelKind] = "number"
    """What a sample is labelled with. For "class" the largest output is the prediction."""

    loss: ClassVar[Literal["cross-entropy", "squared"] | None] = None
    """The loss that such models are trained with, for methods that need it. A task with "squared" has fields
    ``centre`` and ``scale``, the labels' mean and standard deviation per output."""

    of_documents: ClassVar[bool] = False
    """Whether samples are positions in the documents of a corpus."""

    paired: ClassVar[bool] = False
    """Whether the model has one logit z for two classes, whose logits are −z/2 and z/2."""

    measures: ClassVar[tuple[str, str]] = CLASSES
    """What agreement and likeness are."""

    def __post_init__(self) -> None:
        check_count("n_outputs", self.n_outputs, 0)
        plain = self.names is None or isinstance(self.names, tuple | list)
        fits = plain and all(isinstance(name, str) for name in self.names or ())
        check_that(fits, "names", "be a tuple of texts, one per output, or None", self.names)

    @property
    @abstractmethod
    def problem(self) -> Makes:
        """The dual problem of the surrogate: a class of problems, or what makes one with parameters.

        Tasks of whence import it here: compiled loops take long to import.
        """

    @property
    def problems(self) -> tuple[Makes, ...]:
        """The problems to choose from together with C; they differ in one parameter."""
        return (self.problem,)

    @property
    def has_classes(self) -> bool:
        """Whether outputs are classes of which a sample has one."""
        return self.label_kind == "class"

    @property
    def base(self) -> Doubles:
        """Outputs (K,) where no sample has a score; scores sum to the difference from it."""
        return np.zeros(self.n_outputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, or their numbers where they have none."""
        return self.names or tuple(map(str, range(self.n_outputs)))

    @property
    def labels(self) -> str:
        """What labels are, in messages."""
        return self.outputs

    @property
    def saved(self) -> dict[str, Any]:
        """What the manifest of a saved file says of the task, besides K and the names."""
        more = [field.name for field in fields(self) if field.name not in ("n_outputs", "names")]
        return {"task": {"name": self.name, **{name: getattr(self, name) for name in more}}}

    # From what the user chose to the task of one fit

    def with_names(self, model_names: Sequence[str] | None, data_names: Sequence[str] | None) -> Self:
        """Return the task with the names that the model or the data have for the outputs."""
        return self if model_names is None else replace(self, names=tuple(model_names))

    def check_head(self, layer: str, d: int, n_outputs: int) -> None:
        """Raise where labels do not fit a model whose last layer makes K outputs of d features."""
        if self.n_outputs not in (0, n_outputs):
            raise InvalidInputError(
                f"'task' must have as many outputs as the model, {n_outputs} of layer {layer!r}. "
                f"Got {self.n_outputs}."
            )

    def check_activation(self, activation: str, layer: str) -> None:
        """Raise where what a model does with its logits, such as a softmax, does not fit the labels."""
        kinds = {"": True, "sigmoid": self.paired or self.label_kind == "label"}
        if not kinds.get(activation, self.has_classes and not self.paired):
            advice = {
                "class": "A sigmoid fits one output, or several labels per sample: pass "
                'task="many-labels" with labels of zeros and ones, or a model that returns logits.',
                "label": 'For one class per sample pass integer labels or task="classes".',
                "number": "A regression ends in a linear layer: pass a model that returns its output.",
            }
            raise ModelError(
                f"The model's {activation} after layer {layer!r} must fit the labels, {self.labels}. "
                f"It does not. {advice[self.label_kind]}"
            )

    def for_head(self, layer: str, d: int, n_outputs: int) -> Task:
        """Return the task of a model whose last layer makes K outputs of d features, or raise."""
        self.check_head(layer, d, n_outputs)
        return replace(self, n_outputs=n_outputs)

    def with_outputs(self, n_outputs: int, names: Sequence[str] | None) -> Self:
        """Return the task with K outputs and their names; without names, and with a warning, if not K."""
        if names is not None and len(names) != n_outputs:
            warn(
                f"The data name {len(names)} {self.outputs}, {first_names(names)}, and the model has "
                f"{n_outputs}. They are shown by their numbers. Set model.config.id2label, or pass "
                "class_names to DualDA.fit.",
                DataWarning,
            )
            names = None
        # Names of folders need not be text: a page or a file cannot hold halves of characters.
        plain = [name.encode("utf-8", "replace").decode() for name in names or ()]
        return replace(self, n_outputs=n_outputs, names=tuple(plain) or None)

    def with_labels(self, labels: Array) -> Self:
        """Return the task with what it needs to know of a training set's known labels (N, …)."""
        return self

    def with_choice(self, choice: CChoice | None) -> Self:
        """Return the task with what was chosen together with C."""
        return self

    def require_classes(self, who: str) -> None:
        """Raise where outputs are not classes; ``who`` names what needs them."""
        if not self.has_classes:
            raise UnsupportedError(
                f"{who} must have classes, of which every sample has one. Got the task {self.name!r}: fit, "
                "attribute, top_k, explain and what_if of DualDA can do it, save, load, 'whence attribute' "
                "and 'whence explain' too."
            )

    # Labels

    @abstractmethod
    def encode(self, labels: Any, indices: Sequence[int] | None = None) -> Array:
        """Return labels as an array (N, …) of one dtype and shape, or raise.

        ``indices`` are the samples' places, for the error; None counts from 0.
        """

    @abstractmethod
    def blank(self, n: int) -> Array:
        """Return labels (n, …) of samples that could not be read, in the form that ``encode`` returns."""

    @abstractmethod
    def known(self, labels: Array) -> Mask:
        """Return which labels (N, …) are not blank."""

    def check(self, labels: Array, indices: Ints, n_outputs: int, layer: str) -> None:
        """Raise where a model with K outputs, those of ``layer``, cannot have such a label."""
        tail = self.blank(0).shape[1:]
        if labels.shape[1:] != tail:
            raise SampleError(
                int(indices[0]), f"its label must have shape {tail}; it has {labels.shape[1:]}", "Reshape it."
            )

    def check_labels(self, labels: Any, n_samples: int, n_outputs: int | None) -> tuple[Array, int]:
        """Return labels (N, …) as the problem takes them, and K, taken from them where it is None."""
        encoded = self.encode(labels)
        if len(encoded) != n_samples:
            raise InvalidInputError(f"'labels' must be {n_samples:,}, one per row. Got {len(encoded):,}.")
        K = n_outputs or int(np.prod(encoded.shape[1:]))
        replace(self, n_outputs=K).check(encoded, np.arange(n_samples), K, "head")
        return encoded, K

    def check_saved(self, name: str, labels: Array) -> None:
        """Raise StoreError where labels (N, …) of a file are not what ``encode`` and ``blank`` return."""
        like = self.blank(labels.shape[0] if labels.ndim else 0)
        narrowed = like.dtype.kind == labels.dtype.kind == "i"  # integers are saved as small as they can be
        if labels.shape != like.shape or not (narrowed or labels.dtype == like.dtype):
            wanted, got = (f"{array.dtype} {array.shape}" for array in (like, labels))
            raise contents.refused(f"{name!r} must be {wanted}, and is {got}")
        with contents.restoring():
            self.encode(labels[self.known(labels)])

    def label_warning(self, labels: Array) -> str | None:
        """Return what makes the labels (N, …) of a training set look wrong, in half a sentence, or None."""
        return None

    def label_weights(self, lam: csr_array) -> Doubles:
        """Return how strongly samples with λ (S, K) hold on to their own labels, (S,)."""
        return np.asarray(abs(lam).sum(axis=1), np.float64)

    # Outputs

    @abstractmethod
    def predict(self, outputs: Tensor) -> Tensor:
        """Return the labels (B, …) that a model's outputs (B, K) predict."""

    def compare_outputs(self, ours: Doubles, theirs: Doubles) -> tuple[float, float]:
        """Return how well outputs (B, K) agree with a model's, and how alike they are, both at most 1."""
        raise UnsupportedError(f"The task {self.name!r} must say how outputs compare. It does not.")

    def score(self, predicted: Array, labels: Array) -> float:
        """Return how right predicted labels (B, …) are: the share that is right in all parts."""
        return float((predicted == labels).reshape(len(labels), -1).all(axis=1).mean())

    def default_target(self, outputs: Tensor) -> Tensor:
        """Return the output (B,) to explain where the user names none, by the model's outputs (B, K)."""
        if self.has_classes:
            return self.predict(outputs)
        if self.n_outputs > 1:
            raise InvalidInputError(
                f"'target' must name one of the {self.n_outputs} {self.outputs}. Got None."
            )
        return torch.zeros(len(outputs), dtype=torch.int64)

    def choose_target(self, outputs: Tensor, target: Any) -> Tensor:
        """Return the output to explain per test, int64 (B,) on the CPU; for None the default."""
        if target is None:
            return self.default_target(outputs).cpu()
        return self.check_target(target, len(outputs))

    def check_target(self, target: Any, n_tests: int, name: str = "target") -> Tensor:
        """Return the output to explain per test, int64 (B,) on the CPU, of one or one per test, or raise.

        Outputs go by their numbers or by their names. ``name`` is what the error calls the argument.
        """
        K, what = self.n_outputs, f"the model's {self.outputs}"
        places = self._places(to_array(name, target), name)
        if places.dtype.kind not in "iu":
            raise InvalidInputError(
                f"'{name}' must be None or integers in [0, {K}), {what}, or their names. Got {shown(target)} "
                f"of dtype {places.dtype}."
            )
        if places.ndim == 0:
            places = np.broadcast_to(places, n_tests)
        check_shape(name, places, (n_tests,), f"be None, one of {what}, or one per test, ")
        i = outside(places, 0, K)
        if i is not None:
            raise InvalidInputError(f"'{name}' must lie in [0, {K}), {what}. Got {places[i]} for test {i}.")
        return torch.from_numpy(places.astype(np.int64))

    def _places(self, places: Array, argument: str) -> Array:
        """Return the places of outputs given by name; numbers stay unchanged."""
        if places.dtype.kind not in "UTO" or not all(isinstance(name, str) for name in places.flat):
            return places
        known = {name: place for place, name in enumerate(self.names or ())}
        for name in places.flat:
            if name not in known:
                like = get_close_matches(name, known, 1, 0.5)
                rule = f"one of {first_names(self.names)}" if self.names else "a number: they have no names"
                hint = f" Did you mean {like[0]!r}?" if like else ""
                raise InvalidInputError(
                    f"'{argument}' must be {rule}, of the model's {self.outputs}. Got {str(name)!r}.{hint}"
                )
        return np.array([known[name] for name in places.flat], np.int64).reshape(places.shape)

    def check_truth(self, truth: Any, n_tests: int) -> list[Any]:
        """Return the true labels of tests in plain types, or raise."""
        if self.has_classes:
            return self.check_target(truth, n_tests, "truth").tolist()
        labels = self.encode(truth)
        rule = f"be {self.labels} per test, for {n_tests} tests, "
        check_shape("truth", labels, (n_tests, *self.blank(0).shape[1:]), rule)
        return labels.tolist()  # type: ignore[no-any-return]

    # In words

    def label_text(self, label: Any) -> str:
        """Write a label, as ``encode`` returns one."""
        return ", ".join(number(float(value)) for value in np.ravel(label))

    def differs(self, label: Any, target: int) -> bool:
        """Return whether a training sample's label is another than the output that is explained."""
        return False

    def outputs_agree(self, ours: Doubles, theirs: Doubles) -> Mask:
        """Return for which outputs (K,) a surrogate's are as good as a model's."""
        spread = np.maximum(np.abs(theirs - self.base), np.abs(ours - self.base))
        return np.asarray(np.abs(ours - theirs) <= 0.5 * np.maximum(spread, 1e-12))

    def verdict(self, theirs: Doubles, ours: Doubles, target: int, truth: Any) -> Verdict:
        """Return in words what outputs (K,) of a model and its surrogate mean for a sample, and the truth."""
        known = None if truth is None else np.ravel(truth)
        return Verdict(
            number(float(theirs[target])),
            None,
            None if known is None else number(float(known[target])),
            None,
            number(float(ours[target])),
            bool(self.outputs_agree(ours, theirs)[target]),
        )


def is_task_class(thing: Any) -> bool:
    """Return whether a thing is a class of tasks that objects can be made of."""
    return Task in getattr(thing, "__mro__", ()) and not inspect.isabstract(thing)


TASKS: Registry[type[Task]] = Registry("task", is_task_class)
"""``fit`` and ``load`` read this table."""


def label_array(labels: Any, *, flat: bool = False) -> Array:
    """Return a user's labels as one array; ``flat`` takes tensors and arrays of one number as that number."""
    if isinstance(labels, list | tuple):
        labels = [_plain_label(label, flat) for label in labels]
    return to_array("data", labels)


def _plain_label(label: Any, flat: bool) -> Any:
    if not isinstance(label, Tensor | np.ndarray | np.generic):
        return label
    return label.item() if flat and np.prod(label.shape) == 1 else label.tolist()


def refuse_sample(
    wrong: Mask, indices: Sequence[int] | Ints | None, reason: Callable[[int], str], remedy: str
) -> None:
    """Raise SampleError for the first row that is wrong, if one is; ``indices`` are the samples' places."""
    if wrong.any():
        i = int(wrong.argmax())
        raise SampleError(i if indices is None else int(indices[i]), reason(i), remedy)


def first_names(names: Sequence[str]) -> str:
    """Write the first eight names, and how many more there are."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
