"""The contract of every attribution method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from whence.core import store
from whence.core.checks import check_count, check_path
from whence.data import TrainingSet
from whence.errors import InvalidInputError, NotFittedError, StoreError
from whence.model.bound import BoundModel
from whence.model.inputs import n_rows, take
from whence.tasks import Task

_COLUMNS = 1 << 16
_BLOCK = 1 << 22  # scores that top_k holds at a time


@dataclass(frozen=True)
class Limits:
    """What a method asks for, and what it leaves out.

    Attributes
    ----------
    needs_checkpoints : whether ``fit`` must be given weights from the course of training
    needs_loss : whether it uses gradients or curvature of the training loss, which is taken to be the
        cross-entropy
    last_layer_only : whether it sees the model as features and a last linear layer, and so nothing of how
        the layers before were trained
    memory : what its memory grows with, in a phrase; N training samples, d features, K classes, P parameters
    cost : CPU-seconds of fitting and of explaining 200 tests, for 1,000 training samples and a small
        convolutional network, roughly: an evaluation plans with it
    own_class_only : whether, with features that are nowhere negative, only samples of the target class can
        score above 0
    new_layer : whether it puts a linear layer of its own, ``coef_``, in the place of the model's last one
    """

    needs_checkpoints: bool
    needs_loss: bool
    last_layer_only: bool
    memory: str
    cost: float = 1.0
    own_class_only: bool = False
    new_layer: bool = False


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

    Attributes
    ----------
    n_train_ : int
    task_ : Task, what the model's outputs stand for; ``n_classes_`` and ``class_names_`` are read from it
    cache_bytes_ : int, size of what ``fit`` keeps for attributing, without the model and the training set
    fit_seconds_ : float, how long ``fit`` took; 0 for an attributor that was loaded
    model_ : BoundModel or None, the model as it was when fitted
    data_ : TrainingSet or None, the training set
    """

    name: ClassVar[str]
    """The method's name in the registry and in saved files."""

    limits: ClassVar[Limits]
    """What the method asks for, and what it leaves out."""

    n_train_: int
    task_: Task
    cache_bytes_: int
    fit_seconds_: float
    model_: BoundModel | None
    data_: TrainingSet | None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say of what only a fit gives that there was none yet."""
            if name.endswith("_") and not name.startswith("_"):
                self.check_fitted()
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")

    @abstractmethod
    def fit(
        self,
        model: nn.Module,
        data: Any,
        layer: str | None = None,
        *,
        preprocess: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> Self:
        """Learn from a trained classifier and its training set."""

    @abstractmethod
    def attribute(self, x: Any, target: Any = None) -> Tensor:
        """Scores (test, train) of a batch of inputs; positive is evidence for the target class."""

    @abstractmethod
    def self_influence(self) -> Tensor:
        """Score of each training sample for its own label at itself, shape (train,)."""

    @abstractmethod
    def classes(self, x: Any, target: Any) -> Tensor:
        """Class (B,) that is explained for each input, int64 on the CPU; the model's own for None."""

    @property
    def n_classes_(self) -> int:
        """The number K of the model's classes."""
        return self.task_.n_outputs

    @property
    def class_names_(self) -> tuple[str, ...] | None:
        """One name per class, from the model's id2label, the data, or a folder's subfolders, or None."""
        return self.task_.names

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
            Samples a side.
        target
            As for ``attribute``.
        """
        self.check_fitted()
        k = check_count("k", k, 1, padded(self.n_train_))
        classes = self.classes(x, target)
        width = max(1, _BLOCK // self.n_train_)
        parts = [
            rank(self.attribute(take(x, rows), classes[rows]), k)
            for rows in (slice(start, start + width) for start in range(0, n_rows(x) or 0, width))
        ]
        proponents, opponents = (
            Ranked(torch.cat([p.indices for p in side]), torch.cat([p.scores for p in side]))
            for side in zip(*parts, strict=True)
        )
        return TopK(proponents, opponents, classes)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted attributor to one file, which ``whence.load`` reads."""
        self.check_fitted()
        arrays, manifest = self._state()
        store.write(check_path("path", path), arrays, {**manifest, "method": self.name})

    def _state(self) -> tuple[store.Arrays, dict[str, Any]]:
        """Give what ``save`` writes: arrays, and a manifest that JSON can hold."""
        raise StoreError(
            f"{type(self).__name__} keeps no cache that is worth saving. Fit it again where it is needed."
        )

    @classmethod
    def restored(cls, arrays: store.Arrays, manifest: dict[str, Any], model: nn.Module | None) -> Self:
        """Rebuild the attributor from its state, or raise StoreError when ``model`` is another one."""
        raise StoreError(f"{cls.__name__} is never saved, so this file was not written by whence.")

    def take_data(self, data: TrainingSet) -> None:
        """Take the training set, which a saved attributor is without."""
        raise InvalidInputError(f"{type(self).__name__} has no use for 'data' after fitting. Leave it out.")

    def check_fitted(self) -> None:
        """Raise NotFittedError before ``fit``."""
        if "fit_seconds_" not in self.__dict__:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet. Call fit first.")

    def require_model(self) -> BoundModel:
        """Give the model as it was when fitted, or raise NotFittedError where there is none."""
        if self.model_ is None:
            raise NotFittedError(
                f"This {type(self).__name__} has no model, so it cannot take inputs. Use the methods that "
                "take features, fit it with fit(model, data), or pass the model to whence.load."
            )
        return self.model_

    def require_data(self) -> TrainingSet:
        """Give the training set, or raise NotFittedError where there is none."""
        if self.data_ is None:
            raise NotFittedError(
                f"This {type(self).__name__} has no training set, so it has no samples to show. "
                "Pass it to whence.load as 'data', or use fit(model, data)."
            )
        return self.data_


def padded(n_train: int) -> int:
    """Give the most samples a side that a ranking can have: all of them, or some columns of padding."""
    return max(n_train, _COLUMNS)


def rank(scores: Tensor, k: int) -> tuple[Ranked, Ranked]:
    """Find the k largest positive and the k most negative of scores (B, N), each (B, k), padded."""
    width = min(k, scores.shape[1])
    sides = []
    for sign in (1, -1):
        best, where = scores.topk(width, dim=1, largest=sign > 0)
        right = best * sign > 0
        indices = torch.full((len(scores), k), -1, device=scores.device)
        values = scores.new_zeros(len(scores), k)
        indices[:, :width] = where.where(right, -1)
        values[:, :width] = best.where(right, 0)
        sides.append(Ranked(indices, values))
    return sides[0], sides[1]
