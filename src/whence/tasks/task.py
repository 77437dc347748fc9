"""The contract of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from whence.core.arrays import Ints
from whence.svm import Problem


@dataclass(frozen=True)
class Task(ABC):
    """What a model's outputs stand for: what labels are, which dual problem, and which output is explained.

    Another case is a class in a file beside the others; the fit chooses it, and nobody else asks which it is.

    Attributes
    ----------
    problem : the dual problem that stands for it
    n_outputs : K, how many outputs the model has
    names : one per output, or None where neither the model nor the data name them
    """

    problem: ClassVar[type[Problem]]
    n_outputs: int
    names: tuple[str, ...] | None = None

    @property
    def called(self) -> tuple[str, ...]:
        """What the outputs are called: their names, or their numbers where they have none."""
        return self.names or tuple(map(str, range(self.n_outputs)))

    @classmethod
    @abstractmethod
    def check_labels(cls, labels: Any, n_samples: int, n_outputs: int | None) -> tuple[Ints, int]:
        """Give labels (N,) as the problem takes them, and K, read off them where it is None, or raise."""

    @abstractmethod
    def predicted(self, outputs: Tensor) -> Tensor:
        """Give the output (B,) that is explained where the user names none, of the model's outputs (B, K)."""

    @abstractmethod
    def check_target(self, target: Any, n_tests: int, name: str = "target") -> Tensor:
        """Give the output to explain for each test, int64 (B,) on the CPU, of what the user gave, or raise.

        ``name`` is what the error calls the argument.
        """

    def explained(self, outputs: Tensor, target: Any) -> Tensor:
        """Give the output to explain for each test, int64 (B,) on the CPU; the predicted one for None."""
        if target is None:
            return self.predicted(outputs).cpu()
        return self.check_target(target, len(outputs))
