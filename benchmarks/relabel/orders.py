"""Orders of inspection: which labels are looked at first, given labels and a network trained on them."""

from __future__ import annotations

import os
import subprocess
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn

from benchmarks.relabel import cleanlab_order
from benchmarks.relabel.scenes import Scene
from whence import DualDA
from whence.audit import wrong_labels
from whence.features.metric import MetricName

ORDERS = {
    "whence": "whence, wrong_labels",
    "cleanlab": "cleanlab, cross-validated",
    "self-confidence": "self-confidence of the network",
    "random": "random",
}
RAW = "whence-raw"
"""``by_whence`` with ``metric="raw"``: added after the results of BBC News were seen, and for it alone."""
FOLDS = 5


class Trained(NamedTuple):
    """What an order may look at: samples with their given labels, and the network trained on them."""

    scene: Scene
    inputs: Tensor
    given: Tensor
    model: nn.Module
    seed: int


def cpu_seconds() -> float:
    """Return the CPU-seconds of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


@torch.inference_mode()
def logits(model: nn.Module, inputs: Tensor) -> Tensor:
    """Run a network on many inputs, (N, K)."""
    return torch.cat([model(part) for part in inputs.split(500)])


def by_whence(trained: Trained, metric: MetricName = "auto") -> np.ndarray:
    """Return the order of ``wrong_labels`` for a fit of DualDA, with their defaults but for the metric."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a chosen C at the end of its path does not matter to the order
        explainer = DualDA(metric=metric, show_progress=False).fit(
            trained.model, (trained.inputs, trained.given)
        )
    return wrong_labels(explainer).indices


def out_of_sample(trained: Trained) -> np.ndarray:
    """Return the probabilities (N, K) of networks trained on the other folds."""
    scene, inputs, given, _, seed = trained
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(given, given)
    found = torch.empty(len(given), len(scene.confusions), dtype=torch.float64)
    for rest, rows in folds:
        model = scene.train(inputs[rest], given[rest], seed)
        found[rows] = logits(model, inputs[rows]).double().softmax(1)
    return found.numpy()


def by_cleanlab(trained: Trained, python: Path) -> np.ndarray:
    """Return the order of cleanlab's defaults, computed by the interpreter of its environment."""
    with TemporaryDirectory() as folder:
        given, out = Path(folder) / "given.npz", Path(folder) / "out.npz"
        np.savez(given, labels=trained.given.numpy(), probabilities=out_of_sample(trained))
        subprocess.run([str(python), cleanlab_order.__file__, str(given), str(out)], check=True)
        with np.load(out) as arrays:
            order: np.ndarray = arrays["order"]
    return order


def by_confidence(trained: Trained) -> np.ndarray:
    """Return the order by the network's own probability of the given label, lowest first."""
    logs = logits(trained.model, trained.inputs).double().log_softmax(1)
    return logs[torch.arange(len(logs)), trained.given].argsort(stable=True).numpy()


def at_random(trained: Trained) -> np.ndarray:
    """Return a random order."""
    return np.random.default_rng(10_000 + trained.seed).permutation(len(trained.given))


def order_by(name: str, trained: Trained, python: Path) -> tuple[np.ndarray, float]:
    """Return an order of ``ORDERS`` or ``RAW`` (N,), and the CPU-seconds that it took."""
    started = cpu_seconds()
    if name == "cleanlab":
        order = by_cleanlab(trained, python)
    elif name == RAW:
        order = by_whence(trained, "raw")
    else:
        order = {"whence": by_whence, "self-confidence": by_confidence, "random": at_random}[name](trained)
    return order, cpu_seconds() - started
