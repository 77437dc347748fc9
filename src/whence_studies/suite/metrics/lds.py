"""LDS: how well scores predict the outputs of models trained on random subsets."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.special import log_softmax

from whence.core.arrays import Array, Doubles, Mask
from whence.metrics.lds import LDSComparison, compare_lds, lds, random_subsets
from whence_studies.scenes import networks
from whence_studies.suite.metric import Case, Column, Count, Metric, Output, Row, Scene, Share, register

if TYPE_CHECKING:
    from whence_studies.suite.protocol import Method

_TITLES = {"logit": "LDS", "log_prob": "LDS, log-probability"}


class _Scores(NamedTuple):
    """Scores (models, outputs, T, N) of a method, and rows with their cost."""

    values: Array
    costs: list[Row]


@register
class LDS(Metric):
    """Rank correlation of summed scores with the outputs of models trained on random subsets.

    Attributes
    ----------
    outputs : outputs of retrained models for the class that the explained model predicts: the logit, the
        log-probability, or both, with one column each
    models : number of explained models, which differ by their training seed; scores are means over them
    subsets, tuning : numbers of subsets for the score, and of further ones for tuning
    seeds : number of trainings per subset
    fraction : size of the subsets, as a fraction of the training set
    """

    name = "lds"
    columns = (
        Column(
            _TITLES["logit"],
            "rank correlation",
            ties="given",
            how="bootstrap over the training subsets of the models",
        ),
    )
    compares = True

    outputs: list[Output] = Field(default=["logit"], min_length=1)
    models: Count = 1
    subsets: Count = 50
    tuning: int = Field(default=20, ge=0)
    seeds: Count = 3
    fraction: Share = 0.5

    @classmethod
    def columns_for(cls, options: Mapping[str, Any]) -> tuple[Column, ...]:
        """Return one column per output."""
        how = cls.columns[0].how
        if options.get("models", 1) > 1:
            how += " and, independently, over the explained models"
        return tuple(
            dataclasses.replace(cls.columns[0], title=_TITLES[output], how=how, metric=cls._rows_of(output))
            for output in options.get("outputs", ["logit"])
        )

    @classmethod
    def _rows_of(cls, output: Output) -> str:
        """Return the metric in the rows of an output."""
        return cls.name if output == "logit" else f"{cls.name}_{output}"

    @property
    def chooses(self) -> bool:
        """Whether there are subsets for tuning."""
        return self.tuning > 0

    def shared_trainings(self) -> int:
        """Return the number of models: one per subset and seed, and further explained ones."""
        return (self.subsets + self.tuning) * self.seeds + self.models - 1

    def fittings(self, method: Method) -> int:
        """Return the number of fits: one per explained model, and per output with its own options."""
        return self.models * len({json.dumps(method.for_output(output)) for output in self.outputs})

    def _targets(self, scene: Scene, output: Output, tuning: bool = False) -> tuple[Mask, Doubles]:
        """Return the targets of LDS: subsets (m, N), and outputs (seeds, m, T) of models trained on them.

        The first ``tuning`` subsets are for tuning, and are not scored.
        """
        if self.name not in scene.made:
            scene.made[self.name] = self._trained(scene)
        subsets, logits = scene.made[self.name]
        part = slice(0, self.tuning) if tuning else slice(self.tuning, None)
        of_output = logits[:, part] if output == "logit" else log_softmax(logits[:, part], axis=-1)
        return subsets[part], of_output[:, :, np.arange(len(scene.tests)), scene.explained]

    def _trained(self, scene: Scene) -> tuple[Mask, Doubles]:
        """Train models on random subsets; return the subsets and logits (seeds, m, T, K) for the tests."""
        m = self.tuning + self.subsets
        subsets = random_subsets(len(scene.inputs), m, self.fraction, scene.workshop.seed)
        parts = [(np.flatnonzero(row), seed) for seed in range(self.seeds) for row in subsets]
        logits = [networks.logits(model, scene.tests).numpy() for model in scene.retrained(parts)]
        return subsets, np.array(logits, dtype=np.float64).reshape(self.seeds, m, *logits[0].shape)

    def _scores(self, case: Case) -> _Scores:
        """Return the scores for all explained models and outputs."""
        if self.name not in case.made:
            by_model, costs = [], list[Row]()
            for model in range(self.models):
                scores, cost = self._of_model(case.explaining(model))
                by_model.append(scores)
                costs += cost
            case.made[self.name] = _Scores(np.array(by_model), costs)
        made: _Scores = case.made[self.name]
        return made

    def _of_model(self, case: Case) -> tuple[Array, list[Row]]:
        """Return scores (outputs, T, N) for one explained model; outputs with equal options share a fit."""
        cases: dict[str, Case] = {}
        by_output, costs = [], []
        for output in self.outputs:
            options = case.method.for_output(output)
            one = cases.setdefault(
                json.dumps(options, sort_keys=True), case.with_options(options) if options else case
            )
            by_output.append(one.scores)
            seconds = vars(one.measured.resources).items()
            costs += [
                one.row(self._rows_of(output), name, value, one.scene.model)
                for name, value in seconds
                if name.endswith("_seconds")
            ]
        return np.array(by_output), costs

    def measure(self, case: Case) -> list[Row]:
        """Return the correlation for each explained model and test, and the cost of the method."""
        scores, rows = self._scores(case), list[Row]()
        for place, output in enumerate(self.outputs):
            metric, by_model = self._rows_of(output), []
            for model, values in enumerate(scores.values[:, place]):
                by_model.append(lds(values, *self._targets(case.scene.explaining(model), output)))
            if self.models == 1:
                rows += case.rows_of(metric, by_model[0])
                continue
            rows.append(case.row(metric, "score", float(np.mean(by_model))))
            for model, values in enumerate(by_model):
                rows.append(case.row(metric, "model", float(values.mean()), model))
                note = f"explained model {model}"
                rows += [case.row(metric, "each", float(v), i, note) for i, v in enumerate(values)]
        return rows + scores.costs

    def choose(self, case: Case) -> list[Row]:
        """Choose the options with the highest LDS on the subsets for tuning.

        LDS is the mean over outputs, for the first explained model.
        """
        tune, rows = case.method.tune, []
        for values in itertools.product(*tune.values()):
            picked = dict(zip(tune, values, strict=True))
            scores, _ = self._of_model(case.with_options(picked))
            parts = [self._targets(case.scene, output, tuning=True) for output in self.outputs]
            means = [lds(one, *part).mean() for one, part in zip(scores, parts, strict=True)]
            rows.append(case.row("tuning", "score", float(np.mean(means)), note=json.dumps(picked)))
        best = max(rows, key=lambda row: row.value or 0.0)
        return [*rows, best._replace(quantity="chosen")]

    def to_compare(self, case: Case) -> npt.NDArray[Any]:
        """Return the scores (models, outputs, T, N) of a method."""
        return self._scores(case).values

    def compare(self, scene: Scene, scores: dict[str, npt.NDArray[Any]]) -> list[Row]:
        """Return intervals, ties with the best, the reliability of the target, and facts of the models."""
        models = [scene.explaining(model) for model in range(self.models)]
        rows = []
        for place, output in enumerate(self.outputs):
            subsets, _ = self._targets(scene, output)
            outputs = np.array([self._targets(model, output)[1] for model in models])
            of_output = {name: kept[:, place] for name, kept in scores.items()}
            comparison = compare_lds(of_output, subsets, outputs, seed=scene.workshop.seed)
            rows += _compared(self._rows_of(output), comparison)
        return rows + [row for model in models if self.models > 1 for row in _facts(model)]


def _compared(metric: str, comparison: LDSComparison) -> list[Row]:
    """Return rows of a comparison."""
    tied = comparison.ties[:, int(np.argmax(comparison.mean))]
    rows = [
        Row(metric, name, quantity, None, float(values[i]))
        for i, name in enumerate(comparison.methods)
        for quantity, values in {
            "low": comparison.low,
            "high": comparison.high,
            "tied_with_best": tied,
        }.items()
    ]
    if comparison.reliability is not None:
        parts = dataclasses.asdict(comparison.reliability)
        rows += [Row(metric, "target", f"reliability_{name}", None, value) for name, value in parts.items()]
    return rows


def _facts(scene: Scene) -> list[Row]:
    """Return the accuracy of an explained model on the training set, the tests and the held-out tests."""
    sets = {
        "train_accuracy": (scene.inputs, scene.train.labels),
        "test_accuracy": (scene.tests, scene.test.labels),
        "held_out_accuracy": scene.held_out,
    }
    right = {
        name: networks.logits(scene.trained.model, x).argmax(1).numpy() == y for name, (x, y) in sets.items()
    }
    name = f"explained model {scene.model}"
    return [Row("scene", name, fact, None, float(values.mean())) for fact, values in right.items()]
