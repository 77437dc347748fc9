"""Kinds of scenes: what is done to the training set and the tests before a model is trained on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from sklearn.metrics import confusion_matrix

from whence.evaluate.metrics.scores import fooled
from whence.evaluate.scenes import networks
from whence.evaluate.scenes.perturb import (
    add_keywords,
    add_shortcut,
    flip_labels,
    group_classes,
    group_labels,
)
from whence.evaluate.scenes.shortcuts import Shortcut
from whence.evaluate.scenes.views import View, subset

if TYPE_CHECKING:
    from whence.evaluate.scenes.workshop import Scene, SceneSpec, Workshop


@dataclass(frozen=True)
class Kind(ABC):
    """A kind of scene; its fields say what is done.

    Attributes
    ----------
    name : in results
    judged : whether the tests are as they come, so that the model's accuracy on them says something
    trainings : models that are trained for one scene
    """

    name: ClassVar[str]
    judged: ClassVar[bool] = True

    @property
    def trainings(self) -> int:
        """Count the models that are trained for one scene."""
        return 1

    @abstractmethod
    def make(self, workshop: Workshop, spec: SceneSpec, train: View, test: View) -> Scene:
        """Make the scene."""


@dataclass(frozen=True)
class Clean(Kind):
    """The data as they are."""

    name: ClassVar[str] = "clean"

    def make(self, workshop: Workshop, spec: SceneSpec, train: View, test: View) -> Scene:
        """Train on the data as they are."""
        return workshop.plain(spec, train, test)


@dataclass(frozen=True)
class Groups(Kind):
    """Labels that are groups of the classes which a model of the single classes confuses least."""

    name: ClassVar[str] = "groups"
    groups: int

    @property
    def trainings(self) -> int:
        """Count the model of the single classes too."""
        return 2

    def make(self, workshop: Workshop, spec: SceneSpec, train: View, test: View) -> Scene:
        """Train on single classes, group them, and train on the groups."""
        plain = workshop.plain(replace(spec, kind=Clean()), train, test)
        K = train.n_classes
        confusion = confusion_matrix(plain.test_labels, plain.explained, labels=np.arange(K))
        groups = group_classes(confusion, self.groups, seed=workshop.seed)
        return workshop.plain(spec, group_labels(train, groups), group_labels(test, groups))


@dataclass(frozen=True)
class Flips(Kind):
    """A share of the labels made wrong."""

    name: ClassVar[str] = "flips"
    share: float

    def make(self, workshop: Workshop, spec: SceneSpec, train: View, test: View) -> Scene:
        """Train on wrong labels."""
        return workshop.plain(spec, flip_labels(train, self.share, seed=workshop.seed), test)


@dataclass(frozen=True)
class Poisoned(Kind):
    """A shortcut on samples of one class: on more and more of them, until enough tests are fooled."""

    name: ClassVar[str] = "shortcut"
    judged: ClassVar[bool] = False  # tests are those that are fooled
    shortcut: Shortcut
    of_class: int
    shares: tuple[float, ...]
    needed: float

    @property
    def trainings(self) -> int:
        """Count a model for each share."""
        return len(self.shares)

    def make(self, workshop: Workshop, spec: SceneSpec, train: View, test: View) -> Scene:
        """Train until the shortcut fools enough tests; keep those tests only."""
        seed = workshop.seed
        with_it = add_shortcut(test, self.shortcut, seed=seed)
        marked = workshop.inputs(with_it)
        for share in self.shares:
            poisoned = add_shortcut(train, self.shortcut, share, of_class=self.of_class, seed=seed)
            scene = workshop.plain(spec, poisoned, test)
            after = networks.logits(scene.trained.model, marked).argmax(1).numpy()
            hit = fooled(scene.explained, after, test.labels, self.of_class)
            rate = float(hit.sum() / max(1, (test.labels != self.of_class).sum()))
            if rate >= self.needed:
                break
        facts = {"fooled": rate, "n_fooled": int(hit.sum()), "needed": self.needed, "poisoned": share}
        facts["clean_accuracy"] = float((scene.explained == test.labels).mean())
        rows = np.flatnonzero(hit)
        return replace(
            scene,
            tests=marked[torch.from_numpy(rows)],
            test_labels=test.labels[hit],
            views=(scene.views[0], subset(with_it, rows) if len(rows) else with_it),
            facts=facts,
        )


@dataclass(frozen=True)
class Keyworded(Kind):
    """Texts with labels at random, and a keyword of the label in each, as the paper has it."""

    name: ClassVar[str] = "keywords"
    judged: ClassVar[bool] = False  # labels of tests are random
    share: float
    pattern: str
    needed: float

    def make(self, workshop: Workshop, spec: SceneSpec, train: View, test: View) -> Scene:
        """Train on keywords; all tests have one."""
        marked = add_keywords(test, 1.0, pattern=self.pattern, seed=workshop.seed)
        poisoned = add_keywords(train, self.share, pattern=self.pattern, seed=workshop.seed)
        scene = workshop.plain(spec, poisoned, marked)
        followed = (scene.explained == marked.labels)[marked.labels != marked.true_labels]
        share, count = float(followed.mean()), int(followed.sum())
        scene.facts.update(fooled=share, n_fooled=count, needed=self.needed)
        return scene
