"""LDS: whether scores foretell the outputs of models that are trained on random halves."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from whence.core.arrays import Doubles, Mask
from whence.evaluate.metrics.lds import compare_lds, lds, random_subsets
from whence.evaluate.scenes import networks
from whence.evaluate.suite.metric import Case, Column, Count, Metric, Row, Scene, Share, register


@register
class LDS(Metric):
    """Rank correlation of summed scores with the logits of models trained on random parts.

    Attributes
    ----------
    subsets, tuning : models to score by, and further ones to choose options by
    seeds : trainings on each part
    fraction : of the training set in each part
    """

    name = "lds"
    columns = (
        Column(
            "LDS",
            "rank correlation",
            ties="given",
            how="bootstrap over the subsets that models were trained on",
        ),
    )
    compares = True

    subsets: Count = 50
    tuning: int = Field(default=20, ge=0)
    seeds: Count = 3
    fraction: Share = 0.5

    @property
    def chooses(self) -> bool:
        """Whether there are subsets to choose by."""
        return self.tuning > 0

    def shared_trainings(self) -> int:
        """Count a model for every subset and seed."""
        return (self.subsets + self.tuning) * self.seeds

    def _targets(self, scene: Scene, tuning: bool = False) -> tuple[Mask, Doubles]:
        """Give what scores are to foretell: subsets (m, N), and outputs (seeds, m, T) of models of them.

        The first ``tuning`` subsets choose options, and are not scored.
        """
        if self.name not in scene.made:
            scene.made[self.name] = self._trained(scene)
        subsets, outputs = scene.made[self.name]
        part = slice(0, self.tuning) if tuning else slice(self.tuning, None)
        return subsets[part], outputs[:, part]

    def _trained(self, scene: Scene) -> tuple[Mask, Doubles]:
        """Train models on random subsets, and give the logit of the explained class of each test."""
        m = self.tuning + self.subsets
        subsets = random_subsets(len(scene.inputs), m, self.fraction, scene.workshop.seed)
        everyone = np.arange(len(scene.tests))
        outputs = [
            networks.logits(model, scene.tests).numpy()[everyone, scene.explained]
            for model in scene.retrained([np.flatnonzero(row) for row in subsets], self.seeds)
        ]
        return subsets, np.array(outputs, dtype=np.float64).reshape(self.seeds, m, -1)

    def measure(self, case: Case) -> list[Row]:
        """Give the correlation of each test."""
        return case.rows_of(self.name, lds(case.scores, *self._targets(case.scene)))

    def choose(self, case: Case) -> list[Row]:
        """Choose the options of the highest LDS on the subsets for tuning."""
        tune, part = case.method.tune, self._targets(case.scene, tuning=True)
        rows = []
        for values in itertools.product(*tune.values()):
            picked = dict(zip(tune, values, strict=True))
            score = float(lds(case.with_options(picked).scores, *part).mean())
            rows.append(case.row("tuning", "score", score, note=json.dumps(picked)))
        best = max(rows, key=lambda row: row.value or 0.0)
        return [*rows, best._replace(quantity="chosen")]

    def compare(self, scene: Scene, scores: dict[str, npt.NDArray[Any]]) -> list[Row]:
        """Intervals of all methods, ties with the best, and the reliability of the target."""
        found = compare_lds(scores, *self._targets(scene), seed=scene.workshop.seed)
        tied = found.ties[:, int(np.argmax(found.mean))]
        rows = [
            Row(self.name, name, quantity, None, float(values[i]))
            for i, name in enumerate(found.methods)
            for quantity, values in {"low": found.low, "high": found.high, "tied_with_best": tied}.items()
        ]
        if found.reliability is not None:
            parts = dataclasses.asdict(found.reliability)
            rows += [
                Row(self.name, "target", f"reliability_{name}", None, value) for name, value in parts.items()
            ]
        return rows
