"""Which features the held-out surrogates of ``audit.wrong_labels`` should read.

The protocol and the results are in docs/research/audit.md. Data sets, networks and confusable errors are
those of ``benchmarks.relabel``, at other seeds, and MNIST with the network of Fashion-MNIST.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from examples import mnist_cnn
from sklearn.metrics import average_precision_score

from benchmarks.relabel.noise import Confusions, mislabelled
from benchmarks.relabel.orders import cpu_seconds, logits
from benchmarks.relabel.scenes import IMAGES, SCENES, Samples, Scene
from whence.audit.heldout import Scores, calibrate, held_out_scores
from whence.audit.rankings import RANKINGS, Evidence
from whence.core.progress import bar
from whence.features import FeatureBank, extract
from whence.features.metric import METRICS, Metric
from whence.svm.inputs import length

ERRORS = ("random", "confusable", "none")
SHARE, TODAY, EPOCHS = 0.1, "whitened, s = 10", (3, 5, 10)
CANDIDATES: dict[str, tuple[Metric, ...]] = {
    TODAY: (METRICS["whitened"],),
    "whitened, s = 100": (Metric(centre=True, shrinkage=100.0, unit=True),),
    "centred, unit length": (Metric(centre=True, unit=True),),
    "unit length": (METRICS["unit"],),
    "centred": (METRICS["centred"],),
    "raw": (METRICS["raw"],),
    "raw and whitened": (METRICS["raw"], METRICS["whitened"]),
}
SEEDS: dict[str, dict[str, tuple[int, ...]]] = {
    "choose": {"images": (3,), "bbc-news": (100, 101, 102)},
    "judge": {"images": (4,), "bbc-news": (103, 104, 105)},
}
DIGITS: Confusions = {
    "0": {"6": 3, "8": 1},
    "1": {"7": 6, "4": 1},
    "2": {"7": 3, "3": 2},
    "3": {"5": 5, "8": 4},
    "4": {"9": 8, "6": 1},
    "5": {"3": 4, "6": 3, "8": 2},
    "6": {"0": 3, "5": 2},
    "7": {"1": 6, "9": 4},
    "8": {"3": 4, "5": 2, "9": 2},
    "9": {"4": 8, "7": 4},
}


def _digits(seed: int) -> Samples:
    """Return the seed-th 10,000 training images of MNIST, and all test images."""
    images, labels = mnist_cnn.read("train", (seed + 1) * IMAGES).tensors
    return Samples(images[seed * IMAGES :], labels[seed * IMAGES :], *mnist_cnn.read("t10k", IMAGES).tensors)


class Case(NamedTuple):
    """A network that was trained on given labels, of which some are wrong."""

    name: str
    errors: str
    part: str
    seed: int
    scene: Scene

    @property
    def key(self) -> str:
        """What it is called in the results."""
        return f"{self.name}, {self.errors}, {self.part}, {self.seed}"


def cases(part: str) -> Iterator[Case]:
    """Yield the cases of a part, "choose" or "judge": cheap ones first; true labels are part of "choose"."""
    errors_of = ERRORS if part == "choose" else ERRORS[:2]
    fashion, news = SCENES["fashion-mnist"], SCENES["bbc-news"]
    images = {"mnist": replace(fashion, read=_digits, confusions=DIGITS), "fashion-mnist": fashion,
              "cifar-10": SCENES["cifar-10"]}  # fmt: skip
    for epochs in EPOCHS:
        for seed in SEEDS[part]["bbc-news"]:
            for errors in errors_of:
                yield Case(f"bbc-news, {epochs} epochs", errors, part, seed, replace(news, epochs=epochs))
    for seed in SEEDS[part]["images"]:
        for name, scene in images.items():
            for errors in errors_of:
                yield Case(name, errors, part, seed, scene)


class Candidate(Evidence):
    """Held-out scores of features in some metrics; log p is the mean over all surrogates and the model."""

    def __init__(self, bank: FeatureBank, metrics: tuple[Metric, ...]) -> None:
        self.bank, self.metrics, self.labels = bank, metrics, bank.labels

    @cached_property
    def scores(self) -> Scores:
        """Scores of the surrogates of every metric, and of the model."""
        X, head = self.bank.features, self.bank.head
        assert head is not None
        found = []
        for metric in self.metrics:
            Z = metric.fit(X).rows(X)
            one = held_out_scores(Z, self.labels, len(head[0]), bias=length(Z), n_threads=1, head=(head, X))
            found.append(one)
        return found[0]._replace(held_out=[scores for one in found for scores in one.held_out])


def measured(case: Case) -> dict[str, Any]:
    """Train on given labels, and measure how well each candidate finds the wrong ones."""
    started = cpu_seconds()
    scene, samples = case.scene, case.scene.read(case.seed)
    truth = samples.truth.numpy()
    names = list(scene.confusions)
    even = {a: {b: 1 for b in names if b != a} for a in names}
    share = 0.0 if case.errors == "none" else SHARE
    given = mislabelled(truth, even if case.errors == "random" else scene.confusions, share, case.seed)
    wrong = given != truth
    model = scene.train(samples.inputs, torch.from_numpy(given), case.seed)
    agrees = logits(model, samples.inputs).argmax(1).numpy() == given
    right = logits(model, samples.tests).argmax(1) == samples.targets
    line: dict[str, Any] = {"agreement": float(agrees.mean()), "accuracy": float(right.double().mean())}
    bank = extract(model, (samples.inputs, torch.from_numpy(given)), show_progress=False)
    evidences = {name: Candidate(bank, metrics) for name, metrics in CANDIDATES.items()}
    if share:
        line["fitted"] = float(agrees[wrong].mean())
        for name, evidence in evidences.items():
            scores = RANKINGS["odds"](evidence)[0]
            first = np.argsort(-scores, kind="stable")[: wrong.sum()]
            line[name] = [float(average_precision_score(wrong, scores)), float(wrong[first].mean())]
    for name in (TODAY, "raw"):
        listed, held_out, _ = evidences[name].scores
        logs = np.mean([calibrate(scores, listed) for scores in held_out], axis=0)
        line[f"{name} agrees"] = float((logs.argmax(axis=1) == listed.label_column).mean())
    return line | {"seconds": round(cpu_seconds() - started, 1)}


def run(data: Path, results: Path) -> None:
    """Measure the cases that are not known yet, keep each, and print the tables."""
    os.environ["WHENCE_DATA"] = str(data)  # where the examples look
    torch.set_num_threads(1)
    known = json.loads(results.read_text()) if results.exists() else {}
    for part in SEEDS:
        missing = [case for case in cases(part) if case.key not in known]
        for case in bar(f"Held-out features, to {part}", len(missing), "trainings", parts=missing):
            known[case.key] = measured(case)
            results.write_text(json.dumps(known, indent=1) + "\n")
        print(table(known, part), table(known, part, at=1), sep="\n\n", flush=True)


def table(known: dict[str, Any], part: str, at: int = 0) -> str:
    """Return a table in Markdown: average precision (``at`` 0) or the share found, mean over seeds."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for key, line in known.items():
        name, errors, of, _ = key.rsplit(", ", 3)
        if of == part and errors != "none":
            groups.setdefault(f"{name}, {errors}", []).append(line)
    titles = ["data", "labels fitted", *CANDIDATES]
    rows, values = (
        [],
        np.array([[np.mean([x[c][at] for x in g]) for c in CANDIDATES] for g in groups.values()]),
    )
    for (name, group), line in zip(groups.items(), values, strict=True):
        rows.append([name, f"{np.mean([x['fitted'] for x in group]):.0%}", *(f"{v:.3f}" for v in line)])
    rows.append(["mean", "", *(f"{v:.3f}" for v in values.mean(axis=0))])
    worst = (values - values[:, :1]).min(axis=0)
    rows.append(["largest loss against the first", "", *(f"{max(0.0, -v):.3f}" for v in worst)])
    return "\n".join(f"| {' | '.join(row)} |" for row in [titles, ["---"] * len(titles), *rows])
