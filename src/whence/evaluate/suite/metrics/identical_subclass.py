"""Identical subclass: whether the highest-scored samples have the test's true class, which no model saw."""

from __future__ import annotations

from whence.evaluate.metrics.scores import identical_subclass
from whence.evaluate.scenes.kinds import Groups
from whence.evaluate.suite.metric import Case, Column, Count, Metric, Row, register


@register
class IdenticalSubclass(Metric):
    """Share of the top k samples that have the true class, of a model that saw groups of classes."""

    name = "identical_subclass"
    columns = (Column("Identical subclass", "share of the top samples"),)

    k: Count = 5
    groups: Count = 5

    def kind(self) -> Groups:
        """Classes in groups."""
        return Groups(self.groups)

    def measure(self, case: Case) -> list[Row]:
        """Give the share of each test."""
        train, test = case.scene.subclasses
        return case.rows_of(self.name, identical_subclass(case.scores, test, train, self.k))
