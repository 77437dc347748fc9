"""Targets are the tokens of a vocabulary, of which a language model predicts the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from whence.core.arrays import Array
from whence.tasks.classes import Classes
from whence.tasks.task import TASKS


@TASKS.add
@dataclass(frozen=True)
class Tokens(Classes):
    """A place in a text has one of K tokens; most tokens of a vocabulary are in no corpus."""

    name: ClassVar[str] = "tokens"
    outputs: ClassVar[str] = "tokens"
    output: ClassVar[str] = "token"
    of_documents: ClassVar[bool] = True

    def doubts(self, labels: Array) -> str | None:
        """Tell of one token only."""
        present = np.unique(labels[self.known(labels)])
        return f"All places have the token {present[0]}" if len(present) == 1 else None
