"""One class of several: targets are classes 0 … K−1, and the largest output is the prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from whence.core import contents
from whence.core.arrays import Array, Doubles, Ints
from whence.data.labels import Labels
from whence.svm import CrammerSinger
from whence.svm.crammer_singer.problem import check_labels, check_n_classes
from whence.tasks.task import TASKS, Task


@TASKS.add
@dataclass(frozen=True)
class Classes(Labels, Task):
    """A sample has one of K classes."""

    name: ClassVar[str] = "classes"
    problem = CrammerSinger
    outputs: ClassVar[str] = "classes"

    @property
    def labels(self) -> str:
        """Integers."""
        return f"classes in [0, {self.n_outputs})"

    @property
    def saved(self) -> dict[str, Any]:
        """Nothing: the first files had no other task. A task that derives from this one has a name."""
        return {} if self.name == Classes.name else super().saved

    def check_labels(self, labels: Any, n_samples: int, n_outputs: int | None) -> tuple[Ints, int]:
        """Give labels as int64 (N,) in [0, K), and K, or raise."""
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
        """Give the class of the largest output, (B,)."""
        return outputs.argmax(1)
