"""One class of several: targets are classes 0 … K−1, and the largest output is the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.core import contents
from whence.core.arrays import Array, Doubles, Ints
from whence.core.checks import to_array
from whence.data import Targets
from whence.data.labels import Labels
from whence.errors import InvalidInputError, ModelError, SampleError
from whence.model.bound import probabilities
from whence.svm import CrammerSinger
from whence.svm.crammer_singer.problem import check_labels, check_n_classes
from whence.tasks.task import TASKS, Task
from whence.tasks.verdict import Speech, Verdict


@TASKS.add
@dataclass(frozen=True)
class Classes(Labels, Task):
    """A sample has one of K classes."""

    name: ClassVar[str] = "classes"
    problem = CrammerSinger
    outputs: ClassVar[str] = "classes"
    output: ClassVar[str] = "class"
    speech: ClassVar[Speech] = "class"

    @property
    def labels(self) -> str:
        """Integers."""
        return f"classes in [0, {self.n_outputs})"

    @property
    def saved(self) -> dict[str, Any]:
        """Nothing: the first files had no other task. A task that derives from this one has a name."""
        return {} if self.name == Classes.name else super().saved

    def for_head(self, layer: str, d: int, n_outputs: int) -> Targets:
        """Give the same with K classes; where there is one output only and nobody chose, two by one logit."""
        if n_outputs == 1 and type(self) is Classes:
            return OneLogit(self.n_outputs, self.names).for_head(layer, d, n_outputs)
        return super().for_head(layer, d, n_outputs)

    def check_labels(self, labels: Any, n_samples: int, n_outputs: int | None) -> tuple[Ints, int]:
        """Return labels as int64 (N,) in [0, K), and K, or raise."""
        classes = check_labels(labels, n_samples)
        return classes, check_n_classes(n_outputs, classes)

    def check_saved(self, name: str, labels: Array) -> None:
        """Raise StoreError unless labels are integers (N,) from −1 to K − 1."""
        contents.check_integers(name, labels, ("N",), {}, -1, self.n_outputs - 1)

    def doubts(self, labels: Array) -> str | None:
        """Tell of classes without samples, and of one class only."""
        present = np.unique(labels[self.known(labels)])
        if len(present) == 1:
            return f"All training samples have class {present[0]}, so nothing speaks against it"
        absent = np.setdiff1d(np.arange(self.n_outputs), present).tolist()
        if not absent:
            return None
        shown = ", ".join(map(str, absent[:10])) + (" …" if len(absent) > 10 else "")
        return f"No training sample has class {shown}, so nothing speaks for " + (
            "it" if len(absent) == 1 else "them"
        )

    def own(self, lam: csr_array) -> Doubles:
        """λ_{i,y_i}, the only one that is ever positive."""
        return np.asarray(lam.maximum(0).sum(axis=1), np.float64)

    def decided(self, outputs: Tensor) -> Tensor:
        """Return the class of the largest output, (B,)."""
        return outputs.argmax(1)

    def told(self, label: Any) -> str:
        """Return the class's name."""
        return self.called[int(label)]

    def differs(self, label: Any, target: int) -> bool:
        """Return whether it is another class."""
        return int(label) != target

    def verdict(self, theirs: Doubles, ours: Doubles, target: int, truth: Any) -> Verdict:
        """Name the classes, with the probability of the model's."""
        chances = probabilities(torch.from_numpy(theirs)[None])[0]
        predicted, surrogate = int(chances.argmax()), int(ours.argmax())
        return Verdict(
            self.called[predicted],
            float(chances[predicted]),
            None if truth is None else self.called[truth],
            None if truth is None else truth == predicted,
            self.called[surrogate],
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

    def for_head(self, layer: str, d: int, n_outputs: int) -> Targets:
        """Return the same with two classes, or raise where there is not one output."""
        self.check_head(layer, d, n_outputs)
        return replace(self, n_outputs=2)

    def check_head(self, layer: str, d: int, n_outputs: int) -> None:
        """Raise where there is not one output."""
        if n_outputs != 1:
            raise ModelError(
                f"The model must give one logit where labels are 0 and 1 as numbers. Layer {layer!r} gives "
                f"{n_outputs} outputs. For classes give integers, 0 … {n_outputs - 1}; for another task pass "
                f'task=, such as task="regression".'
            )

    def check_labels(self, labels: Any, n_samples: int, n_outputs: int | None) -> tuple[Ints, int]:
        """Return zeros and ones as int64 (N,), and 2, or raise."""
        return super().check_labels(self.encode(labels), n_samples, 2)

    def encode(self, labels: Any, indices: Sequence[int] | None = None) -> Ints:
        """Return classes of zeros and ones of any type, (N,) or (N, 1), or of names."""
        if isinstance(labels, list):
            labels = [
                label.item() if getattr(label, "shape", None) in ((), (1,)) else label for label in labels
            ]
        found = to_array("data", labels)
        if found.ndim == 2 and found.shape[1] == 1:
            found = found[:, 0]
        if found.dtype.kind not in "bf":
            return super().encode(found, indices)
        wrong = (found != 0) & (found != 1)
        if found.ndim != 1:
            raise InvalidInputError(
                f"'data' must give one label per sample, 0 or 1. Got shape {found.shape}."
            )
        if wrong.any():
            i = int(wrong.argmax())
            raise SampleError(
                i if indices is None else int(indices[i]),
                f"its label must be 0 or 1; it is {found[i]:g}",
                'Pass task="regression" where labels are numbers.',
            )
        return found.astype(np.int64)
