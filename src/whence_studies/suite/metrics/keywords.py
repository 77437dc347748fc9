"""Keywords: whether texts with a keyword that stands for a random label are found."""

from __future__ import annotations

from functools import partial

import numpy as np

from whence.metrics.scores import shortcut_ap
from whence_studies.scenes.perturb import add_keywords
from whence_studies.suite.caught import caught_shortcuts, too_weak
from whence_studies.suite.metric import Case, Column, Materials, Metric, Row, Scene, Share, register


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
    scene = "keywords"
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

    def stage(self, given: Materials) -> Scene:
        """Train on texts with labels at random and keywords of these; all tests have one."""
        put = partial(add_keywords, pattern=self.pattern, seed=given.workshop.seed)
        scene = given.scene(put(given.train, self.share), put(given.test, 1.0))
        test = scene.test
        followed = (scene.explained == test.labels)[test.labels != test.true_labels]
        share, count = float(followed.mean()), int(followed.sum())
        scene.facts.update(fooled=share, n_fooled=count, needed=self.needed)
        return scene

    def measure(self, case: Case) -> list[Row]:
        """Return one average precision for all tests."""
        score = shortcut_ap(case.scores.sum(axis=0, keepdims=True, dtype=np.float64), case.scene.marked)
        row = case.row(self.name, "score", float(score[0]), note=too_weak(case.scene))
        tests = case.scene.test
        follow = (case.scene.explained == tests.labels) & (tests.labels != tests.true_labels)
        return [row, *caught_shortcuts(case, self.name, follow, self.maps)]
