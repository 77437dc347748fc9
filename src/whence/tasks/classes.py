"""Classification: labels are classes 0 … K−1, and the largest output is the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from whence.core import contents
from whence.core.arrays import Array, Doubles, Ints, Mask
from whence.core.checks import check_dense, check_is, check_shape, check_that
from whence.errors import DataWarning, InvalidInputError, ModelError, warn
from whence.svm.inputs import check_labels, check_n_classes
from whence.tasks.task import TASKS, LabelKind, Task, Verdict, first_names, label_array, refuse_sample

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from whence.svm import CrammerSinger

_LARGEST = np.iinfo(np.int64).max


def probabilities(output: Tensor) -> Tensor:
    """Return probabilities (B, K) of classes by a model's output: its softmax, unless it is probabilities."""
    check_is("output", output, Tensor, "a tensor (B, K)")
    check_dense("output", output)
    check_shape("output", output, (None, None))
    check_that(not output.is_complex(), "output", "hold real numbers", output.dtype)
    output = output.double()
    given = bool((output >= 0).all()) and bool(((output.sum(1) - 1).abs() < 1e-3).all())
    return output if given else output.softmax(1)


@TASKS.add
@dataclass(frozen=True)
class Classes(Task):
    """A sample has one of K classes: its number, or its name; −1 where a sample could not be read."""

    name: ClassVar[str] = "classes"
    outputs: ClassVar[str] = "classes"
    output: ClassVar[str] = "class"
    label_kind: ClassVar[LabelKind] = "class"
    loss = "cross-entropy"

    @property
    def problem(self) -> type[CrammerSinger]:
        """The machine of Crammer and Singer."""
        from whence.svm import CrammerSinger

        return CrammerSinger

    @property
    def labels(self) -> str:
        """Integers."""
        return f"classes in [0, {self.n_outputs})"

    @property
    def saved(self) -> dict[str, Any]:
        """Nothing for classes, which a file without a task has. A task that derives from this has a name."""
        return {} if self.name == Classes.name else super().saved

    def with_names(self, model_names: Sequence[str] | None, data_names: Sequence[str] | None) -> Self:
        """Return the task with the model's names, or its own, or the data's; warn where they disagree."""
        model_names = self.names if model_names is None else model_names
        if model_names is None or data_names is None:
            names = data_names if model_names is None else model_names
            return replace(self, names=None if names is None else tuple(names))
        if set(model_names) == set(data_names) and list(model_names) != list(data_names):
            i = next(
                i for i, pair in enumerate(zip(model_names, data_names, strict=False)) if pair[0] != pair[1]
            )
            warn(
                f"The model calls class {i} {model_names[i]!r}, the data {data_names[i]!r}. Integers are "
                "taken unchanged; where the model is right about the names, give labels as text, where "
                "the data are, set model.config.id2label.",
                DataWarning,
            )
        return replace(self, names=tuple(model_names))

    def check_head(self, layer: str, d: int, n_outputs: int) -> None:
        """Raise where there is only one output."""
        if n_outputs == 1:
            raise ModelError(
                f"The model must give one logit per class. Layer {layer!r} gives one in all. Say what it is: "
                "task=whence.tasks.OneLogit() where labels are 0 and 1, task=whence.tasks.Regression() where "
                "they are numbers."
            )
        super().check_head(layer, d, n_outputs)

    def for_head(self, layer: str, d: int, n_outputs: int) -> Task:
        """Return the task with K classes; with one output, two classes by one logit."""
        if n_outputs == 1 and type(self) is Classes:
            return OneLogit(self.n_outputs, self.names).for_head(layer, d, n_outputs)
        return super().for_head(layer, d, n_outputs)

    def encode(self, labels: Any, indices: Sequence[int] | None = None) -> Ints:
        """Return the classes of labels: integers, whose range the head decides, or names."""
        try:
            array = label_array(labels, flat=True)
        except InvalidInputError as error:
            raise InvalidInputError(f"'data' must give one label per sample. {error}") from error
        if array.ndim != 1:
            raise InvalidInputError(
                "'data' must give one label per sample, a number or a name. "
                f"Got labels of shape {array.shape}."
            )
        if array.dtype.kind in "UTO" and all(isinstance(label, str) for label in array):
            array = self._by_name(array, indices)
        if array.dtype.kind not in "iu":
            raise InvalidInputError(
                "'data' must give integer labels in [0, n_classes), or names of classes. "
                f"Got dtype {array.dtype}, such as {array[0]}. Map the labels to 0 … K−1 first."
            )
        if array.dtype.kind == "u":
            refuse_sample(
                array > _LARGEST,
                indices,
                lambda i: f"its label must be below 2⁶³; it is {array[i]}",
                "Map the labels to 0 … K−1.",
            )
        return array.astype(np.int64)

    def _by_name(self, array: Array, indices: Sequence[int] | None) -> Ints:
        if self.names is None:
            raise InvalidInputError(
                f"'data' has labels of text, such as {str(array[0])!r}, and neither model nor data say which "
                "class they are. Set model.config.id2label, or map the labels to 0 … K−1."
            )
        names, classes = self.names, {name: i for i, name in enumerate(self.names)}
        refuse_sample(
            np.array([name not in classes for name in array], bool),
            indices,
            lambda i: f"its label {str(array[i])!r} is not a class of the model: {first_names(names)}",
            "Rename it, set model.config.id2label, or give integer labels.",
        )
        return np.array([classes[name] for name in array], dtype=np.int64)

    def blank(self, n: int) -> Ints:
        """Return −1, n times."""
        return np.full(n, -1, dtype=np.int64)

    def known(self, labels: Array) -> Mask:
        """Return where labels are at least 0."""
        return labels >= 0

    def check(self, labels: Array, indices: Ints, n_outputs: int, layer: str) -> None:
        """Raise SampleError where a label is not in [0, K)."""
        refuse_sample(
            (labels < 0) | (labels >= n_outputs),
            indices,
            lambda i: (
                f"its label must be in [0, {n_outputs}), the classes of layer {layer!r}; it is {labels[i]}"
            ),
            "Map the labels to 0 … K−1, or leave the sample out.",
        )

    def check_labels(self, labels: Any, n_samples: int, n_outputs: int | None) -> tuple[Ints, int]:
        """Return labels as int64 (N,) in [0, K), and K, or raise."""
        classes = check_labels(labels, n_samples)
        return classes, check_n_classes(n_outputs, classes)

    def check_saved(self, name: str, labels: Array) -> None:
        """Raise StoreError unless labels are integers (N,) from −1 to K − 1."""
        contents.check_integers(name, labels, ("N",), {}, -1, self.n_outputs - 1)

    def label_warning(self, labels: Array) -> str | None:
        """Return which classes have no samples, or that there is one class only."""
        present = np.unique(labels[self.known(labels)])
        if len(present) == 1:
            return f"All training samples have class {present[0]}, so nothing contradicts it"
        absent = np.setdiff1d(np.arange(self.n_outputs), present).tolist()
        if not absent:
            return None
        listed = ", ".join(map(str, absent[:10])) + (" …" if len(absent) > 10 else "")
        return f"No training sample has class {listed}, so nothing supports " + (
            "it" if len(absent) == 1 else "them"
        )

    def label_weights(self, lam: csr_array) -> Doubles:
        """Return λ_{i,y_i}, the only one that is ever positive."""
        return np.asarray(lam.maximum(0).sum(axis=1), np.float64)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the class of the largest output, (B,)."""
        return outputs.argmax(1)

    def label_text(self, label: Any) -> str:
        """Return the class's name."""
        return self.output_names[int(label)]

    def differs(self, label: Any, target: int) -> bool:
        """Return whether it is another class."""
        return int(label) != target

    def verdict(self, theirs: Doubles, ours: Doubles, target: int, truth: Any) -> Verdict:
        """Name the classes, with the probability of the model's."""
        chances = probabilities(torch.from_numpy(theirs)[None])[0]
        predicted, surrogate = int(chances.argmax()), int(ours.argmax())
        return Verdict(
            self.output_names[predicted],
            float(chances[predicted]),
            None if truth is None else self.output_names[truth],
            None if truth is None else truth == predicted,
            self.output_names[surrogate],
            surrogate == predicted,
        )


@TASKS.add
@dataclass(frozen=True)
class OneLogit(Classes):
    """Two classes by one logit z, (B,) or (B, 1), which stands for the logits −z/2 and z/2.

    Their softmax is z's sigmoid and their cross-entropy the binary one, so that all that can be done with two
    classes can be done here. The surrogate's two outputs are each other's negative too: w₁ = −w₀, where
    2 w₁ is the binary machine whose C is twice as large.
    """

    name: ClassVar[str] = "one-logit"
    paired: ClassVar[bool] = True

    @property
    def labels(self) -> str:
        """Zeros and ones."""
        return "0 or 1"

    def check_head(self, layer: str, d: int, n_outputs: int) -> None:
        """Raise where there is not one output."""
        if n_outputs != 1:
            raise ModelError(
                f"The model must give one logit where labels are 0 and 1 as numbers. Layer {layer!r} gives "
                f"{n_outputs} outputs. For classes give integers, 0 … {n_outputs - 1}; for another task pass "
                f'task=, such as task="regression".'
            )

    def for_head(self, layer: str, d: int, n_outputs: int) -> Task:
        """Return the task with two classes, or raise where there is not one output."""
        self.check_head(layer, d, n_outputs)
        return replace(self, n_outputs=2)

    def check(self, labels: Array, indices: Ints, n_outputs: int, layer: str) -> None:
        """Raise SampleError where a label is not 0 or 1."""
        refuse_sample(
            (labels != 0) & (labels != 1),
            indices,
            lambda i: f"its label must be 0 or 1, as the model has one output; it is {labels[i]}",
            'Pass task="regression" where labels are quantities; where they are classes, the model must have '
            "one output for each.",
        )

    def check_labels(self, labels: Any, n_samples: int, n_outputs: int | None) -> tuple[Ints, int]:
        """Return zeros and ones as int64 (N,), and 2, or raise."""
        classes = self.encode(labels)
        self.check(classes, np.arange(len(classes)), 2, "head")
        return super().check_labels(classes, n_samples, 2)

    def encode(self, labels: Any, indices: Sequence[int] | None = None) -> Ints:
        """Return classes of zeros and ones of any dtype, (N,) or (N, 1), or of names."""
        array = label_array(labels, flat=True)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.dtype.kind not in "bf":
            return super().encode(array, indices)
        if array.ndim != 1:
            raise InvalidInputError(
                f"'data' must give one label per sample, 0 or 1. Got shape {array.shape}."
            )
        refuse_sample(
            (array != 0) & (array != 1),
            indices,
            lambda i: f"its label must be 0 or 1; it is {array[i]:g}",
            'Pass task="regression" where labels are numbers.',
        )
        return array.astype(np.int64)


@TASKS.add
@dataclass(frozen=True)
class Tokens(Classes):
    """A place in a text has one of K tokens; most tokens of a vocabulary are in no corpus."""

    name: ClassVar[str] = "tokens"
    outputs: ClassVar[str] = "tokens"
    output: ClassVar[str] = "token"
    of_documents: ClassVar[bool] = True

    def label_warning(self, labels: Array) -> str | None:
        """Return that there is one token only."""
        present = np.unique(labels[self.known(labels)])
        return f"All places have the token {present[0]}" if len(present) == 1 else None
