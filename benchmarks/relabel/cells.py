"""Measure a data set at one seed: orders, and the accuracy after retraining at each budget.

A folder keeps what was measured, one line per training and one file per order, so that a run that was stopped
goes on where it was. Trainings on equal labels are done once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor, nn

from benchmarks.relabel.noise import mislabelled
from benchmarks.relabel.orders import ORDERS, Trained, cpu_seconds, logits, order_by
from benchmarks.relabel.scenes import SCENES, Samples, Scene
from whence.core.progress import bar

SHARE = 0.1  # of the labels that are wrong
BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2)  # of the training set


class Bench:
    """One data set at one seed, and what is known of it.

    Parameters
    ----------
    name : of ``scene``, in the files' names
    folder : where results are kept
    python : an interpreter that has cleanlab
    """

    def __init__(self, name: str, scene: Scene, seed: int, folder: Path, python: Path) -> None:
        self.scene, self.seed, self.python = scene, seed, python
        self.samples: Samples = scene.read(seed)
        truth = self.samples.truth.numpy()
        self.given = mislabelled(truth, scene.confusions, SHARE, seed)
        self.wrong = self.given != truth
        self.stem = folder / f"{name}-{seed}"
        self.stem.parent.mkdir(parents=True, exist_ok=True)
        self.known: dict[str, dict[str, float]] = {}
        if self._file.exists():
            lines = map(json.loads, self._file.read_text().splitlines())
            self.known = {line.pop("labels"): line for line in lines}

    @property
    def _file(self) -> Path:
        return self.stem.with_suffix(".jsonl")

    def train(self, labels: np.ndarray) -> nn.Module:
        """Train on labels (N,), and keep the accuracy on the tests."""
        started = cpu_seconds()
        model = self.scene.train(self.samples.inputs, torch.from_numpy(labels), self.seed)
        took = cpu_seconds() - started
        predicted = logits(model, self.samples.tests).argmax(1)
        fitted = logits(model, self.samples.inputs).argmax(1).numpy() == self.given
        line = {
            "accuracy": float((predicted == self.samples.targets).double().mean()),
            "fitted": float(fitted[self.wrong].mean()),
            "seconds": round(took, 2),
        }
        if digest(labels) not in self.known:
            with self._file.open("a") as file:
                file.write(json.dumps({"labels": digest(labels), **line}) + "\n")
            self.known[digest(labels)] = line
        return model

    def accuracy(self, labels: np.ndarray) -> float:
        """Return the accuracy on clean tests after training on labels (N,), done if it is unknown."""
        if digest(labels) not in self.known:
            self.train(labels)
        return self.known[digest(labels)]["accuracy"]

    def orders(self, names: Iterable[str]) -> dict[str, tuple[np.ndarray, float]]:
        """Return orders (N,) by name, and the CPU-seconds that it took."""
        trained: Trained | None = None
        found = {}
        for name in names:
            file = self.stem.with_name(f"{self.stem.name}-{name}.npz")
            if not file.exists():
                if trained is None:
                    given: Tensor = torch.from_numpy(self.given)
                    model = self.train(self.given)
                    trained = Trained(self.scene, self.samples.inputs, given, model, self.seed)
                order, seconds = order_by(name, trained, self.python)
                np.savez(file, order=order, seconds=seconds)
            with np.load(file) as arrays:
                found[name] = (arrays["order"], float(arrays["seconds"]))
        return found

    def corrected(self, rows: np.ndarray) -> np.ndarray:
        """Return the labels (N,) after an annotator who is always right has looked at some rows."""
        labels = self.given.copy()
        labels[rows] = self.samples.truth.numpy()[rows]
        return labels


def digest(labels: np.ndarray) -> str:
    """Return a short name of labels."""
    return hashlib.sha256(labels.astype(np.int64).tobytes()).hexdigest()[:16]


def measure(
    name: str,
    seed: int,
    folder: Path,
    python: Path,
    scene: Scene | None = None,
    names: Iterable[str] = ORDERS,
) -> dict[str, Any]:
    """Measure orders at every budget, as far as that is not known yet."""
    torch.set_num_threads(1)
    bench = Bench(name, scene or SCENES[name], seed, folder, python)
    n = len(bench.given)
    sizes = [round(budget * n) for budget in BUDGETS]
    orders = bench.orders(names)
    curves: dict[str, Any] = {}
    with bar(f"{name}, seed {seed}", len(orders) * len(sizes) + 2, "trainings") as progress:
        for key, (order, seconds) in orders.items():
            found, accuracy = [], []
            for size in sizes:
                found.append(int(bench.wrong[order[:size]].sum()))
                accuracy.append(bench.accuracy(bench.corrected(order[:size])))
                progress.update()
            place = np.empty(n)
            place[order] = np.arange(n)
            precision = float(average_precision_score(bench.wrong, -place))
            curves[key] = {
                "found": found,
                "accuracy": accuracy,
                "precision": round(precision, 4),
                "seconds": round(seconds, 1),
            }
        ends = {}
        for key, labels in {"given": bench.given, "true": bench.samples.truth.numpy()}.items():
            ends[key] = bench.accuracy(labels)
            progress.update()
    return {
        "samples": n,
        "wrong": int(bench.wrong.sum()),
        "sizes": sizes,
        "accuracy": ends,
        "fitted": round(bench.known[digest(bench.given)]["fitted"], 4),
        "trainings": len(bench.known),
        "seconds": round(sum(line["seconds"] for line in bench.known.values()), 1),
        "orders": curves,
    }
