"""Identical class: whether the highest-scored training samples have the class that was explained."""

from __future__ import annotations

import numpy as np

from whence.metrics.scores import identical_class
from whence_studies.suite.metric import Case, Column, Count, Metric, Row, register


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
        values = identical_class(case.scores, scene.explained, scene.train.labels, self.k)
        last = case.options.get("layers", "last") == "last"  # of others, features may be negative
        own = case.method.kind.capabilities.own_class_only and case.options.get("targets") != "outputs"
        if last and own and np.min(scene.bank.features) >= 0:
            note = "by construction: features are nowhere negative, so no other class can score above zero"
            if values.min() < 1:
                note += f"; below 1 where fewer than {self.k} samples of the class score at all"
        return case.rows_of(self.name, values, note)
