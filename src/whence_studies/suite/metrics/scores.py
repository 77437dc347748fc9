"""Metrics of scores: identical class, identical subclass, and sparsity."""

from __future__ import annotations

from typing import Literal

import numpy as np
from sklearn.metrics import confusion_matrix

from whence.metrics import scores
from whence_studies.scenes.perturb import group_classes, group_labels
from whence_studies.suite.metric import (
    Case,
    Column,
    Count,
    Curves,
    Materials,
    Metric,
    Numbers,
    Row,
    Scene,
    register,
)

_SHARES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@register
class IdenticalClass(Metric):
    """Share of the top k samples that have the explained class."""

    name = "identical_class"
    columns = (Column("Identical class", "share of the top samples"),)

    k: Count = 5

    def measure(self, case: Case) -> list[Row]:
        """Return the share of each test."""
        scene = case.scene
        note = ""
        values = scores.identical_class(case.scores, scene.explained, scene.train.labels, self.k)
        last = case.options.get("layers", "last") == "last"  # other features may be negative
        own_class = case.method.kind.capabilities.own_class_only and case.options.get("targets") != "outputs"
        if last and own_class and np.min(scene.bank.features) >= 0:
            note = "by construction: features are never negative, so no other class can score above zero"
            if values.min() < 1:
                note += f"; below 1 if fewer than {self.k} samples of the class have a score"
        return case.rows_of(self.name, values, note)


@register
class IdenticalSubclass(Metric):
    """Share of the top k samples that have the test's true class, for a model trained on groups of classes.

    Attributes
    ----------
    k : number of top samples
    groups : number of groups of classes
    by : "confusion" groups classes that a model of the single classes confuses least; "order" groups
        consecutive classes, 0 and 1, 2 and 3, without a model
    """

    name = "identical_subclass"
    columns = (Column("Identical subclass", "share of the top samples"),)
    scene = "groups"

    k: Count = 5
    groups: Count = 5
    by: Literal["confusion", "order"] = "confusion"

    def stage(self, given: Materials) -> Scene:
        """Train on the groups of classes, after a model of the single classes if needed."""
        train, test = given.train, given.test
        K = train.n_classes
        groups = np.arange(K) * self.groups // K
        if self.by == "confusion":
            predicted = given.scene(train, test).explained
            confusion = confusion_matrix(test.labels, predicted, labels=np.arange(K))
            groups = group_classes(confusion, self.groups, seed=given.workshop.seed)
        return given.scene(group_labels(train, groups), group_labels(test, groups))

    def shared_trainings(self) -> int:
        """Return the number of models of the single classes."""
        return int(self.by == "confusion")

    def measure(self, case: Case) -> list[Row]:
        """Return the share of each test."""
        test, train = case.scene.test.true_labels, case.scene.train.true_labels
        return case.rows_of(self.name, scores.identical_subclass(case.scores, test, train, self.k))


@register
class Sparsity(Metric):
    """Share of the attribution that the top x % of the training samples hold: curves without a score."""

    name = "sparsity"
    sections = (
        Curves(
            "Sparsity",
            "Share of the absolute attribution that the top share of the training samples holds. A curve "
            "that rises early means that few samples matter; neither is better in itself.",
            x="share of the training samples",
            y="share of the attribution (↑ sparser)",
            quantities={
                "absolute": "Attribution held",
                "positive": "Of the positive attribution",
                "negative": "Of the negative attribution",
            },
            log=True,
        ),
        Numbers(
            "Negative to positive attribution",
            "Mean ratio of the sum of negative scores to that of positive ones; 1 where scores sum to 0.",
            {"negative_ratio": "Ratio"},
        ),
    )
    sweeps = False

    def measure(self, case: Case) -> list[Row]:
        """Return the curves of absolute, positive and negative attribution."""
        curve = scores.sparsity_curve(case.scores, _SHARES)
        kinds = ("absolute", "positive", "negative")
        ratios = scores.negative_ratio(case.scores)
        known = ratios[np.isfinite(ratios)]
        return [
            *(
                row
                for kind in kinds
                for row in case.curve(self.name, kind, curve.shares, getattr(curve, kind))
            ),
            *([case.row(self.name, "negative_ratio", float(known.mean()))] if len(known) else []),
        ]
