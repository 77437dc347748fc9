"""Finding planted marks: training samples that carry a mark, from tests that the mark fools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from sklearn.metrics import average_precision_score
from sklearn.preprocessing import normalize

from benchmarks.planted import PLANS, Planted, planted
from whence import DualDA, audit
from whence.audit.heldout import total_norm
from whence.features import FeatureBank
from whence.features.metric import METRICS

SEEDS = (1, 2)  # the audit was chosen on draw 0
N, N_TEXTS = 8_000, 800
EACH = 100  # fooled tests that are scored one by one
KAPPA = 5.0
KEYS = ("raw", "unit", "whitened")

Scores = np.ndarray


def measured(scene: Planted) -> dict[str, float]:
    """Average precision of finding the marks: the mean over tests, and that of the mean over all tests."""
    X, y, marks = scene.features, scene.labels, scene.marks
    target = int(y[marks][0])
    bank = FeatureBank.of(X, y, head=(scene.weight, scene.bias))
    ruled = DualDA(metric="raw", show_progress=False).fit(features=bank)
    found = audit.shortcuts(ruled, test_features=scene.tests, target=target, features=X)
    methods: dict[str, Callable[[Any], Scores]] = {
        "audit.shortcuts": _by(found.explainer, target),
        "DualDA, C by rule": _by(ruled, target),
        **{
            f"DualDA, κ = {KAPPA:g}, {metric}": _by(
                DualDA(
                    metric=metric,
                    C=KAPPA / total_norm(METRICS[metric].fit(X).rows(X)),
                    show_progress=False,
                ).fit(features=bank),
                target,
            )
            for metric in KEYS
        },
        "GradCos, last layer": lambda tests: _grad_cos(scene, tests, target),
        "cosine similarity": lambda tests: normalize(tests) @ normalize(X).T,
    }
    tests = scene.tests[np.random.default_rng(0).permutation(len(scene.tests))[:EACH]]
    values = {"marked tests that are fooled": float(scene.share), "accuracy without": float(scene.accuracy)}
    for name, scores in methods.items():
        each = scores(tests)
        values[f"{name}, each test"] = float(np.mean([average_precision_score(marks, row) for row in each]))
        values[f"{name}, mean"] = float(average_precision_score(marks, each.mean(axis=0)))
    n = min(len(scene.honest), len(tests))
    mixed = found.explainer.attribute(features=np.vstack([tests[:n], scene.honest[:n]]), target=target)
    values["half of the set without the mark"] = _of_mean(mixed, marks)
    alone = audit.shortcuts(ruled, target=target, features=X, n_directions=1)
    values["no tests: the class alone"] = float(average_precision_score(marks, alone.mean))
    values["chance"] = float(marks.mean())
    return values


def _by(explainer: DualDA, target: int) -> Callable[[Any], Scores]:
    return lambda tests: explainer.attribute(features=tests, target=target).numpy()


def _of_mean(scores: torch.Tensor, marks: np.ndarray) -> float:
    return float(average_precision_score(marks, scores.mean(0).numpy()))


def _grad_cos(scene: Planted, tests: np.ndarray, target: int) -> Scores:
    """Cosines of the gradients (p − e_y)fᵀ of the last layer."""

    def pulls(features: np.ndarray, labels: Any) -> np.ndarray:
        p = softmax(features @ scene.weight.T + scene.bias, axis=1)
        p[np.arange(len(p)), labels] -= 1
        return normalize(p)

    train, asked = pulls(scene.features, scene.labels), pulls(tests, target)
    return np.asarray((asked @ train.T) * (normalize(tests) @ normalize(scene.features).T))


def run(cache: Path) -> None:
    """Print a column per scene, the mean over draws."""
    columns = {}
    for name in PLANS:
        n = N_TEXTS if PLANS[name].data == "bbc-news" else N
        runs = [measured(planted(name, seed, n, cache)) for seed in SEEDS]
        columns[name] = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    print("\nAverage precision of finding marked training samples.\n")
    print("| | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for key in next(iter(columns.values())):
        print(f"| {key} | " + " | ".join(f"{values[key]:.3f}" for values in columns.values()) + " |")
