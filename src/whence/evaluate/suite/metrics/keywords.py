"""Keywords: whether texts with a keyword that stands for a random label are found."""

from __future__ import annotations

import numpy as np

from whence.evaluate.metrics.scores import shortcut_ap
from whence.evaluate.scenes.kinds import Keyworded
from whence.evaluate.suite.caught import caught_shortcuts, too_weak
from whence.evaluate.suite.metric import Case, Column, Metric, Row, Share, register


@register
class Keywords(Metric):
    """Average precision of the scores summed over all tests, as in the paper's experiment on texts.

    Attributes
    ----------
    share : of the training texts that get a keyword
    pattern : of the keyword, {0} is the name of the class
    needed : share of the tests with another class's keyword that must follow it
    maps : such tests whose relevance is looked at, of DualDA
    """

    name = "keywords"
    columns = (
        Column(
            "Keywords",
            "average precision",
            ties="none",
            how="one number for all tests together: differences cannot be judged",
        ),
    )

    share: Share = 0.2
    pattern: str = "<{0}>"
    needed: float = 0.3
    maps: int = 20

    def kind(self) -> Keyworded:
        """Texts with keywords."""
        return Keyworded(self.share, self.pattern, self.needed)

    def measure(self, case: Case) -> list[Row]:
        """Give one average precision for all tests."""
        score = shortcut_ap(case.scores.sum(axis=0, keepdims=True, dtype=np.float64), case.scene.marked)
        row = case.row(self.name, "score", float(score[0]), note=too_weak(case.scene))
        _, tests = case.scene.views
        follow = (case.scene.explained == tests.labels) & (tests.labels != tests.true_labels)
        return [row, *caught_shortcuts(case, self.name, follow, self.maps)]
