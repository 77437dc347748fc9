"""One class of several: targets are classes 0 … K−1, and the largest output is the prediction."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Ints
from whence.core.checks import shown, to_array
from whence.data.labels import some_names
from whence.errors import DataWarning, InvalidInputError
from whence.svm import CrammerSinger, Problem
from whence.svm.crammer_singer.problem import check_labels, check_n_classes
from whence.tasks.task import Task


class Classes(Task):
    """A sample has one of K classes."""

    problem: ClassVar[type[Problem]] = CrammerSinger

    @classmethod
    def of(cls, names: tuple[str, ...] | None, n_outputs: int) -> Self:
        """Take the names that were found; none, with a warning, where they are another number."""
        if names is None:
            return cls(n_outputs)
        if len(names) == n_outputs:
            # Names of folders need not be text: a page or a file cannot hold halves of characters.
            return cls(n_outputs, tuple(name.encode("utf-8", "replace").decode() for name in names))
        warnings.warn(
            f"The data name {len(names)} classes, {some_names(names)}, and the model has {n_outputs}. They "
            "are shown by their numbers. Set model.config.id2label, or pass class_names to DualDA.fit.",
            DataWarning,
            stacklevel=3,
        )
        return cls(n_outputs)

    @classmethod
    def check_labels(cls, labels: Any, n_samples: int, n_outputs: int | None) -> tuple[Ints, int]:
        """Give labels as int64 (N,) in [0, K), and K, or raise."""
        classes = check_labels(labels, n_samples)
        return classes, check_n_classes(n_outputs, classes)

    def predicted(self, outputs: Tensor) -> Tensor:
        """Give the class of the largest output, (B,)."""
        return outputs.argmax(1)

    def check_target(self, target: Any, n_tests: int, name: str = "target") -> Tensor:
        """Give one class per test, int64 (B,), of one class or one per test, or raise."""
        K = self.n_outputs
        classes = to_array(name, target)
        if classes.dtype.kind not in "iu":
            raise InvalidInputError(
                f"'{name}' must be None or integers in [0, {K}), the model's classes. Got {shown(target)} "
                f"of dtype {classes.dtype}. Of a class's name, give its place in class_names_."
            )
        if classes.ndim == 0:
            classes = np.broadcast_to(classes, n_tests)
        if classes.shape != (n_tests,):
            raise InvalidInputError(
                f"'{name}' must be None, one class, or one class per test, shape ({n_tests},). "
                f"Got shape {classes.shape}."
            )
        outside = (classes < 0) | (classes >= K)
        if outside.any():
            i = int(outside.argmax())
            raise InvalidInputError(
                f"'{name}' must lie in [0, {K}), the model's classes. Got {classes[i]} for test {i}."
            )
        return torch.from_numpy(classes.astype(np.int64))
