"""LDS: whether scores foretell the outputs of models that are trained on random halves."""

from __future__ import annotations

import dataclasses
import itertools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from whence.core.arrays import Doubles, Mask
from whence.evaluate.metrics.lds import compare_lds, lds, random_subsets
from whence.evaluate.scenes import networks
from whence.evaluate.suite.metric import Bench, Case, Column, Count, Metric, Row, Share, register


@dataclass(frozen=True)
class Targets:
    """What scores are to foretell: subsets (m, N), and the outputs (seeds, m, T) of models trained on them.

    The first ``tuning`` subsets choose options, and are not scored.
    """

    subsets: Mask
    outputs: Doubles
    tuning: int

    def part(self, tuning: bool = False) -> tuple[Mask, Doubles]:
        """Subsets and outputs for scoring, or those for tuning."""
        part = slice(0, self.tuning) if tuning else slice(self.tuning, None)
        return self.subsets[part], self.outputs[:, part]


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

    def targets(self, bench: Bench) -> Targets:
        """Train models on random subsets, and give the logit of the explained class of each test."""
        return bench.once(self.name, lambda: self._targets(bench))

    def _targets(self, bench: Bench) -> Targets:
        scene, m = bench.scene, self.tuning + self.subsets
        subsets = random_subsets(len(scene.labels), m, self.fraction, bench.protocol.seed)
        everyone = np.arange(len(scene.tests))
        outputs = [
            networks.logits(model, scene.tests).numpy()[everyone, scene.explained]
            for model in bench.retrained([np.flatnonzero(row) for row in subsets], self.seeds)
        ]
        return Targets(subsets, np.array(outputs, dtype=np.float64).reshape(self.seeds, m, -1), self.tuning)

    def measure(self, case: Case) -> list[Row]:
        """Give the correlation of each test."""
        return case.rows_of(self.name, lds(case.scores, *self.targets(case.bench).part()))

    def choose(self, case: Case) -> list[Row]:
        """Choose the options of the highest LDS on the subsets for tuning."""
        tune, best, chosen = case.method.tune, -np.inf, ""
        part = self.targets(case.bench).part(tuning=True)
        rows = []
        for values in itertools.product(*tune.values()):
            picked = dict(zip(tune, values, strict=True))
            score = float(lds(case.with_options(picked).scores, *part).mean())
            rows.append(case.row("tuning", "score", score, note=json.dumps(picked)))
            if score > best:
                best, chosen = score, json.dumps(picked)
        return [*rows, case.row("tuning", "chosen", best, note=chosen)]

    def compare(self, bench: Bench, scores: dict[str, npt.NDArray[Any]]) -> list[Row]:
        """Intervals of all methods, ties with the best, and the reliability of the target."""
        found = compare_lds(scores, *self.targets(bench).part(), seed=bench.protocol.seed)
        best = int(np.argmax(found.mean))
        rows = []
        for i, name in enumerate(found.methods):
            rows += [
                Row(self.name, name, "low", None, float(found.low[i])),
                Row(self.name, name, "high", None, float(found.high[i])),
                Row(self.name, name, "tied_with_best", None, float(found.ties[i, best])),
            ]
        if found.reliability is not None:
            parts = dataclasses.asdict(found.reliability)
            rows += [
                Row(self.name, "target", f"reliability_{name}", None, value) for name, value in parts.items()
            ]
        return rows
