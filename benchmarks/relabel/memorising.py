"""Why an order fails: average precision on BBC News, by how far the network has memorised its wrong labels.

It was added after the results of BBC News were seen, to find the cause of the default's loss there.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score

from benchmarks.relabel.noise import mislabelled
from benchmarks.relabel.orders import Trained, logits, out_of_sample
from benchmarks.relabel.scenes import SCENES
from whence import DualDA
from whence.audit import wrong_labels
from whence.core.progress import bar
from whence.features.metric import MetricName

EPOCHS, SEEDS = (1, 2, 3, 5, 10), 5
METRICS: dict[str, MetricName] = {"whence": "auto", "whence, metric=raw": "raw"}


def measure(share: float) -> list[dict[str, Any]]:
    """Return one row per number of epochs: means over seeds of accuracy, memory and average precision."""
    torch.set_num_threads(1)
    rows = []
    for epochs in bar("Memorising", len(EPOCHS), "lengths of training", parts=EPOCHS):
        found = [_once(epochs, share, seed) for seed in range(SEEDS)]
        rows.append(
            {"epochs": epochs} | {k: round(float(np.mean([f[k] for f in found])), 4) for k in found[0]}
        )
    return rows


def _once(epochs: int, share: float, seed: int) -> dict[str, float]:
    scene = replace(SCENES["bbc-news"], epochs=epochs)
    samples = scene.read(seed)
    truth = samples.truth.numpy()
    labels = mislabelled(truth, scene.confusions, share, seed)
    wrong, places, given = labels != truth, np.arange(len(labels)), torch.from_numpy(labels)
    model = scene.train(samples.inputs, given, seed)
    own = logits(model, samples.inputs).double().softmax(1).numpy()
    crossed = out_of_sample(Trained(scene, samples.inputs, given, model, seed))
    scores = {"self-confidence": -own[places, labels], "cross-validated": -crossed[places, labels]}
    for name, metric in METRICS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a chosen C at the end of its path does not matter to the order
            explainer = DualDA(metric=metric, show_progress=False).fit(model, (samples.inputs, given))
        suspects = wrong_labels(explainer)
        scores[name] = np.empty(len(labels))
        scores[name][suspects.indices] = suspects.scores
    right = logits(model, samples.tests).argmax(1) == samples.targets
    return {
        "accuracy": float(right.double().mean()),
        "fitted": float((own.argmax(1) == labels)[wrong].mean()),
        **{name: float(average_precision_score(wrong, values)) for name, values in scores.items()},
    }
