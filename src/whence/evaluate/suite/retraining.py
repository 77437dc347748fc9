"""Metrics that need models trained anew: LDS, coreset selection and adversarial pruning."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from whence.errors import WhenceError
from whence.evaluate.metrics.arrays import Doubles, Ints, Mask
from whence.evaluate.metrics.coreset import (
    coreset,
    coreset_order,
    loss_of,
    performance,
    pruned,
    weighted_mean,
)
from whence.evaluate.metrics.lds import compare_lds, lds, random_subsets
from whence.evaluate.scenes import networks
from whence.evaluate.scenes.retrain import Run, retrain
from whence.evaluate.scenes.views import subset, view
from whence.evaluate.scenes.workshop import Scene
from whence.evaluate.suite.measures import Case
from whence.evaluate.suite.results import Row


class Retrainer:
    """Trains models on parts of a scene's training set, each once.

    Parameters
    ----------
    folder
        Keeps the models.
    show_progress
        Show how many are left.
    """

    def __init__(self, folder: Path, show_progress: bool) -> None:
        self.folder, self.show_progress = folder, show_progress

    def models(self, scene: Scene, parts: list[Ints], seeds: int) -> Iterator[nn.Module]:
        """Give the models of every part and seed, seed after seed."""
        everything = view(scene.data, show_progress=False)
        views = [subset(everything, rows) for rows in parts]
        # Seeds that the model which is explained was not trained with.
        jobs = [(part, 1 + seed) for seed in range(seeds) for part in views]
        trainer = scene.trainer
        runs = retrain(
            trainer.on_view,
            jobs,
            trainer.build(0),
            self.folder,
            config=trainer.config,
            show_progress=self.show_progress,
        )
        return (_model(run) for run in runs)


def _model(run: Run) -> nn.Module:
    if run.error is not None:
        raise WhenceError(f"a model could not be trained again: {run.error}")
    return run.model()


@dataclass(frozen=True)
class Targets:
    """What scores are to foretell: subsets (m, N), and the outputs (seeds, m, T) of models trained on them.

    The first ``tuning`` subsets serve to choose options, the others to score.
    """

    subsets: Mask
    outputs: Doubles
    tuning: int

    def score(self, scores: Any, tuning: bool = False) -> Doubles:
        """LDS (T,) on the subsets for scoring, or on those for tuning."""
        part = slice(0, self.tuning) if tuning else slice(self.tuning, None)
        return lds(scores, self.subsets[part], self.outputs[:, part])


def lds_targets(scene: Scene, options: Mapping[str, Any], retrainer: Retrainer, seed: int) -> Targets:
    """Train models on random subsets, and give the logit of the explained class of each test."""
    m, seeds = options["tuning"] + options["subsets"], options["seeds"]
    subsets = random_subsets(len(scene.labels), m, options["fraction"], seed)
    everyone = np.arange(len(scene.tests))
    outputs = [
        networks.logits(model, scene.tests).numpy()[everyone, scene.explained]
        for model in retrainer.models(scene, [np.flatnonzero(row) for row in subsets], seeds)
    ]
    return Targets(subsets, np.array(outputs, dtype=np.float64).reshape(seeds, m, -1), options["tuning"])


def choose(case: Case, targets: Targets) -> list[Row]:
    """Choose a method's options by LDS on the subsets for tuning; notes hold them as JSON."""
    method, best, chosen = case.method, -np.inf, ""
    rows = []
    for values in itertools.product(*method.tune.values()):
        picked = dict(zip(method.tune, values, strict=True))
        score = float(targets.score(_with(case, picked).scores, tuning=True).mean())
        rows.append(case.row("tuning", "score", score, note=json.dumps(picked)))
        if score > best:
            best, chosen = score, json.dumps(picked)
    return [*rows, case.row("tuning", "chosen", best, note=chosen)]


def _with(case: Case, picked: Mapping[str, Any]) -> Case:
    return Case(case.scene, case.method, {**case.options, **picked}, case.common)


def measure_lds(case: Case, targets: Targets) -> list[Row]:
    """LDS of a method: the mean, and that of each test."""
    return case.rows_of("lds", targets.score(case.scores))


def compare(scores: Mapping[str, Any], targets: Targets, seed: int) -> list[Row]:
    """Intervals of all methods' LDS, ties with the best, and the reliability of the target."""
    part = slice(targets.tuning, None)
    found = compare_lds(scores, targets.subsets[part], targets.outputs[:, part], seed=seed)
    best = int(np.argmax(found.mean))
    rows = []
    for i, name in enumerate(found.methods):
        rows += [
            Row("lds", name, "low", None, float(found.low[i])),
            Row("lds", name, "high", None, float(found.high[i])),
            Row("lds", name, "tied_with_best", None, float(found.ties[i, best])),
        ]
    if found.reliability is not None:
        parts = dataclasses.asdict(found.reliability)
        rows += [Row("lds", "target", f"reliability_{name}", None, value) for name, value in parts.items()]
    return rows


def measure_subsets(case: Case, metric: str, options: Mapping[str, Any], retrainer: Retrainer) -> list[Row]:
    """Coreset selection or pruning: loss and accuracy of models on what the method keeps or leaves."""
    scene, fractions = case.scene, options["fractions"]
    order = coreset_order(case.scores, case.common["seed"])
    cut = coreset if metric == "coreset" else pruned
    # Sorted: methods that choose the same samples, in whatever order, share a model.
    parts = [np.sort(cut(order, p)) for p in fractions]
    inputs, labels = scene.held_out
    found = [
        performance(networks.logits(model, inputs).numpy(), labels)
        for model in retrainer.models(scene, parts, options["seeds"])
    ]
    shape = options["seeds"], len(fractions)
    losses = np.array([one.loss for one in found]).reshape(shape)
    accuracies = np.array([one.accuracy for one in found]).reshape(shape)
    each = [weighted_mean(row, fractions) for row in losses]
    by_seed = [
        case.row(metric, loss_of(seed), float(v), p)
        for seed, row in enumerate(losses)
        for v, p in zip(row, fractions, strict=True)
    ]
    return [
        case.row(metric, "score", float(np.mean(each))),
        *(case.row(metric, "each", value, seed) for seed, value in enumerate(each)),
        *(case.row(metric, "loss", float(v), p) for v, p in zip(losses.mean(0), fractions, strict=True)),
        *(
            case.row(metric, "accuracy", float(v), p)
            for v, p in zip(accuracies.mean(0), fractions, strict=True)
        ),
        *by_seed,
    ]
