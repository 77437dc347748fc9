"""The authors' own package: DualDA by a LinearSVC that also returns its multipliers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset

from benchmarks.peers.contract import TORCH, Method, Package, Row, size
from benchmarks.peers.scene import Scene

BATCH = 100  # (test, support vector, class) is held for as many tests


class Dual(Method):
    """Fit, and attribute a few tests at a time, into one (test, train) array."""

    def cache(self, scene: Scene, folder: Path) -> int:
        from dualxda import DualDA

        self.explainer = DualDA(
            scene.model, TensorDataset(scene.x, scene.y), "head", "cpu", str(folder), C=1e-3
        )
        return size(folder)

    def explain(self, scene: Scene) -> np.ndarray:
        parts = zip(scene.tests.split(BATCH), scene.targets.split(BATCH), strict=True)
        return torch.cat([self.explainer.attribute(x, target) for x, target in parts]).numpy()


PACKAGE = Package(
    "dualxda",
    (
        TORCH,
        ("tqdm", "matplotlib", "scipy", "joblib", "threadpoolctl", "pillow", "click"),
        ("--no-deps", "dualxda==0.1.0", "dualxda_skl", "zennit==0.5.1"),
    ),
    (Row("DualDA", Dual, per_test=True, like=("dualda", {"C": 1e-3, "bias": False})),),
    ("dualxda",),
    without=("torchvision",),
)
