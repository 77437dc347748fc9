"""What the labels of samples are, as far as those who read samples must know it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from whence.core.arrays import Array, Ints, Mask
from whence.errors import InvalidInputError, SampleError


@dataclass(frozen=True)
class Targets(ABC):
    """What labels are: how they lie in arrays, and which of them a model can have. A task tells more.

    Attributes
    ----------
    n_outputs : K, how many outputs the model has; 0 where the model, or the labels, tell
    names : one per output, or None where neither the model nor the data name them
    """

    n_outputs: int = 0
    names: tuple[str, ...] | None = None

    has_classes: ClassVar[bool] = False
    """Whether outputs are classes and a sample has one of them: the largest output is the prediction."""

    paired: ClassVar[bool] = False
    """Whether the model has one logit z where two are meant, which then are −z/2 and z/2."""

    @abstractmethod
    def encode(self, labels: Any, indices: Sequence[int] | None = None) -> Array:
        """Return labels as an array (N, …) of one kind and shape, whatever a user has them in, or raise.

        ``indices`` are the samples' places, for the error; None counts from 0.
        """

    @abstractmethod
    def blank(self, n: int) -> Array:
        """Give what stands for labels (n, …) of samples that could not be read, as ``encode`` gives them."""

    @abstractmethod
    def known(self, labels: Array) -> Mask:
        """Return which labels (N, …) are none of those that ``blank`` gives."""

    def check(self, labels: Array, indices: Ints, n_outputs: int, layer: str) -> None:
        """Raise where a model with K outputs, those of ``layer``, cannot have such a label."""
        tail = self.blank(0).shape[1:]
        if labels.shape[1:] != tail:
            raise SampleError(
                int(indices[0]), f"its label must have shape {tail}; it has {labels.shape[1:]}", "Reshape it."
            )

    def check_head(self, layer: str, d: int, n_outputs: int) -> None:
        """Raise where a model whose last layer makes K outputs of d features is none for these labels."""
        if self.n_outputs not in (0, n_outputs):
            raise InvalidInputError(
                f"'task' must have as many outputs as the model, {n_outputs} of layer {layer!r}. "
                f"Got {self.n_outputs}."
            )

    def for_head(self, layer: str, d: int, n_outputs: int) -> Targets:
        """Return the same for a model whose last layer makes K outputs of d features, or raise."""
        self.check_head(layer, d, n_outputs)
        return replace(self, n_outputs=n_outputs)

    def named(self, model_names: Sequence[str] | None, data_names: Sequence[str] | None) -> Self:
        """Return the same with the names that the model or the data have for the outputs."""
        return self if model_names is None else replace(self, names=tuple(model_names))
