"""Shortcut: whether training samples with the shortcut are found for tests that it fools."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from whence.evaluate.metrics.scores import shortcut_ap
from whence.evaluate.scenes.kinds import Poisoned
from whence.evaluate.scenes.shortcuts import CentreBox, Frame, Shortcut, Word
from whence.evaluate.suite.caught import caught_shortcuts, too_weak
from whence.evaluate.suite.metric import Case, Column, Count, Metric, Row, Share, register


@register
class ShortcutDetection(Metric):
    """Average precision for training samples with a shortcut, on tests that it fools; what XDA shows of them.

    Attributes
    ----------
    mark : "kind" in a protocol, "frame", "box" or "word"
    size : pixels, the frame's width or the box's side
    word : of the mark "word"
    of_class : "class" in a protocol, the one that samples with the shortcut have
    shares : of the class, tried in turn; knowing the class alone scores as much
    needed : share of other classes' tests that must be fooled
    maps : fooled tests whose relevance is looked at, of DualDA
    """

    name = "shortcut"
    columns = (Column("Shortcut", "average precision"),)

    mark: Literal["frame", "box", "word"] = Field(default="frame", alias="kind")
    size: Count = 3
    word: str = "whence"
    of_class: int = Field(default=0, alias="class")
    shares: list[Share] = Field(default=[0.1, 0.2, 0.4], min_length=1)
    needed: float = 0.3
    maps: int = 20

    def kind(self) -> Poisoned:
        """Samples with the shortcut."""
        marks: dict[str, Shortcut] = {
            "frame": Frame(self.size),
            "box": CentreBox(self.size),
            "word": Word(self.word),
        }
        return Poisoned(marks[self.mark], self.of_class, tuple(self.shares), self.needed)

    def measure(self, case: Case) -> list[Row]:
        """Give the average precision of each test."""
        note = too_weak(case.scene)
        if not case.scene.facts["n_fooled"]:
            return [case.row(self.name, "score", None, note=note)]
        rows = case.rows_of(self.name, shortcut_ap(case.scores, case.scene.marked), note)
        everyone = np.ones(len(case.scene.tests), dtype=bool)  # only fooled tests are kept
        return [*rows, *caught_shortcuts(case, self.name, everyone, self.maps)]
