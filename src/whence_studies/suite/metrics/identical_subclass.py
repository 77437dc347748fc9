"""Identical subclass: whether the highest-scored samples have the test's true class, which no model saw."""

from __future__ import annotations

from typing import Literal

import numpy as np
from sklearn.metrics import confusion_matrix

from whence.metrics.scores import identical_subclass
from whence_studies.scenes.perturb import group_classes, group_labels
from whence_studies.suite.metric import Case, Column, Count, Materials, Metric, Row, Scene, register


@register
class IdenticalSubclass(Metric):
    """Share of the top k samples that have the true class, of a model that saw groups of classes.

    Attributes
    ----------
    k : samples that are looked at
    groups : of classes
    by : "confusion" puts classes together that a model of the single classes confuses least; "order" those
        that follow each other, 0 and 1, 2 and 3, which takes no model
    """

    name = "identical_subclass"
    columns = (Column("Identical subclass", "share of the top samples"),)
    scene = "groups"

    k: Count = 5
    groups: Count = 5
    by: Literal["confusion", "order"] = "confusion"

    def stage(self, given: Materials) -> Scene:
        """Train on single classes where that is needed to group them, and train on the groups."""
        train, test = given.train, given.test
        K = train.n_classes
        groups = np.arange(K) * self.groups // K
        if self.by == "confusion":
            said = given.scene(train, test).explained
            confusion = confusion_matrix(test.labels, said, labels=np.arange(K))
            groups = group_classes(confusion, self.groups, seed=given.workshop.seed)
        return given.scene(group_labels(train, groups), group_labels(test, groups))

    def shared_trainings(self) -> int:
        """Count the model of the single classes."""
        return int(self.by == "confusion")

    def measure(self, case: Case) -> list[Row]:
        """Return the share of each test."""
        test, train = case.scene.test.true_labels, case.scene.train.true_labels
        return case.rows_of(self.name, identical_subclass(case.scores, test, train, self.k))
