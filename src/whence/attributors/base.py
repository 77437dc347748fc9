"""The contract of every attribution method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from os import PathLike
from typing import Any, ClassVar, Literal, NamedTuple, Self, overload

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from whence import store
from whence.errors import InvalidInputError


class Ranked(NamedTuple):
    """Training samples in order of score: ``indices`` (B, k) int64 and ``scores`` (B, k).

    Where a test has fewer than k samples of the sign, the rest is padded with index −1 and score 0.
    """

    indices: Tensor
    scores: Tensor


class TopK(NamedTuple):
    """The k strongest training samples for and against each test's target class.

    Attributes
    ----------
    proponents : positive scores, evidence for the target class, largest first
    opponents : negative scores, evidence against it, most negative first
    target : (B,) int64, the class that was explained
    """

    proponents: Ranked
    opponents: Ranked
    target: Tensor


class Attributor(ABC):
    """Scores every training sample by what it contributes to a prediction.

    Scores have shape (test, train). A positive score is evidence for the target class. ``target`` is None
    (the class the model predicts), one class, or one class a test. The constructor only stores
    hyper-parameters; ``fit`` returns the attributor itself; what it learned ends in an underscore.
    """

    name: ClassVar[str]
    """The method's name in the registry and in saved files."""

    @abstractmethod
    def fit(self, model: nn.Module, data: Any, layer: str | None = None) -> Self:
        """Learn from a trained classifier and its training set."""

    @overload
    def attribute(self, x: Any, target: Any = None, *, sparse: Literal[False] = False) -> Tensor: ...
    @overload
    def attribute(self, x: Any, target: Any = None, *, sparse: Literal[True]) -> csr_array: ...
    @abstractmethod
    def attribute(self, x: Any, target: Any = None, *, sparse: bool = False) -> Tensor | csr_array:
        """Scores (test, train) of a batch of inputs; positive is evidence for the target class."""

    @abstractmethod
    def top_k(self, x: Any, k: int = 5, target: Any = None) -> TopK:
        """Find the k strongest proponents and opponents of each test, without the (test, train) matrix."""

    @abstractmethod
    def self_influence(self) -> Tensor:
        """Score of each training sample for its own label at itself, shape (train,)."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted attributor to one file, which ``whence.load`` reads."""
        arrays, manifest = self._state()
        store.write(path, arrays, {**manifest, "method": self.name})

    @abstractmethod
    def _state(self) -> tuple[store.Arrays, dict[str, Any]]:
        """Give what ``save`` writes: arrays, and a manifest that JSON can hold."""

    @classmethod
    @abstractmethod
    def _restore(cls, arrays: store.Arrays, manifest: dict[str, Any], model: nn.Module | None) -> Self:
        """Rebuild the attributor from its state, or raise StoreError when ``model`` is another one."""


def check_target(target: Any, n_tests: int, n_classes: int) -> Tensor:
    """Return one class a test as an int64 tensor (B,), or raise."""
    classes = target.detach().cpu() if isinstance(target, Tensor) else torch.as_tensor(np.asarray(target))
    if classes.is_floating_point() or classes.is_complex() or classes.dtype == torch.bool:
        raise InvalidInputError(f"'target' must be None or integers. Got dtype {classes.dtype}.")
    if classes.ndim == 0:
        classes = classes.expand(n_tests)
    if classes.shape != (n_tests,):
        raise InvalidInputError(
            f"'target' must be None, one class, or one class a test, shape ({n_tests},). "
            f"Got shape {tuple(classes.shape)}."
        )
    outside = (classes < 0) | (classes >= n_classes)
    if outside.any():
        i = int(outside.int().argmax())
        raise InvalidInputError(
            f"'target' must lie in [0, {n_classes}), the model's classes. Got {int(classes[i])} for test {i}."
        )
    return classes.long()
