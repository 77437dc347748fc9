"""Shortcuts: how well attributions find training samples with a shortcut, in images and texts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from whence.metrics.scores import fooled, shortcut_ap
from whence_studies.scenes import networks
from whence_studies.scenes.perturb import add_keywords, add_shortcut
from whence_studies.scenes.shortcuts import BoxAndFrame, CentreBox, Frame, Shortcut, Word
from whence_studies.scenes.views import subset
from whence_studies.suite.localising import caught_shortcuts, too_weak
from whence_studies.suite.metric import Case, Column, Count, Materials, Metric, Row, Scene, Share, register


@register
class ShortcutDetection(Metric):
    """Average precision for training samples with a shortcut, on fooled tests; relevance on the shortcut.

    Attributes
    ----------
    mark : "frame", "box", "both" or "word"; "kind" in a protocol
    size : the frame's width or the box's side, in pixels
    width : the frame's width of the mark "both", in pixels
    value : value of the pixels, one number or one per channel, in the scale of the network's inputs
    word : the word of the mark "word"
    of_class : the class of samples with the shortcut; "class" in a protocol
    shares : shares of the class, tried in turn; a score by the class alone equals the share
    needed : share of other classes' tests that must be fooled
    maps : number of fooled tests with relevance maps, for DualDA
    """

    name = "shortcut"
    scene = "shortcut"
    columns = (Column("Shortcut", "average precision"),)

    mark: Literal["frame", "box", "both", "word"] = Field(default="frame", alias="kind")
    size: Count = 3
    width: Count = 2
    value: float | list[float] = 1.0
    word: str = "whence"
    of_class: int = Field(default=0, alias="class")
    shares: list[Share] = Field(default=[0.1, 0.2, 0.4], min_length=1)
    needed: float = 0.3
    maps: int = 20

    def stage(self, given: Materials) -> Scene:
        """Train with more and more shortcuts until they fool enough tests; keep the fooled tests only."""
        kinds: dict[str, Shortcut] = {
            "frame": Frame(self.size, self.value),
            "box": CentreBox(self.size, self.value),
            "both": BoxAndFrame(self.size, self.width, self.value),
            "word": Word(self.word),
        }
        put = partial(add_shortcut, shortcut=kinds[self.mark], seed=given.workshop.seed)
        test, with_it = given.test, put(given.test)
        marked = given.workshop.inputs(with_it)
        for share in self.shares:
            scene = given.scene(put(given.train, share=share, of_class=self.of_class), test)
            after = networks.logits(scene.trained.model, marked).argmax(1).numpy()
            hit = fooled(scene.explained, after, test.labels, self.of_class)
            rate = float(hit.sum() / max(1, (test.labels != self.of_class).sum()))
            if rate >= self.needed:
                break
        facts = {"fooled": rate, "n_fooled": int(hit.sum()), "needed": self.needed, "poisoned": share}
        facts["clean_accuracy"] = float((scene.explained == test.labels).mean())
        seen = subset(with_it, hit) if hit.any() else with_it
        return replace(scene, test=seen, tests=marked[torch.from_numpy(hit)], facts=facts)

    def shared_trainings(self) -> int:
        """Return the number of models: one per share, less the explained one."""
        return len(self.shares) - 1

    def measure(self, case: Case) -> list[Row]:
        """Return the average precision of each test."""
        note = too_weak(case.scene)
        if not case.scene.facts["n_fooled"]:
            return [case.row(self.name, "score", None, note=note)]
        rows = case.rows_of(self.name, shortcut_ap(case.scores, case.scene.marked), note)
        everyone = np.ones(len(case.scene.tests), dtype=bool)  # all tests of the scene are fooled
        return [*rows, *caught_shortcuts(case, self.name, everyone, self.maps)]


@register
class Keywords(Metric):
    """Average precision of the scores summed over all tests, as in the paper's experiment on texts.

    Attributes
    ----------
    share : share of the training texts with a keyword
    pattern : pattern of the keyword, {0} is the name of the class
    needed : share of the tests with another class's keyword that must follow it
    maps : number of such tests with relevance maps, for DualDA
    """

    name = "keywords"
    scene = "keywords"
    columns = (
        Column(
            "Keywords",
            "average precision",
            ties="none",
            how="one number for all tests: differences cannot be tested",
        ),
    )

    share: Share = 0.2
    pattern: str = "<{0}>"
    needed: float = 0.3
    maps: int = 20

    def stage(self, given: Materials) -> Scene:
        """Train on texts with random labels and their keywords; all tests have a keyword."""
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
