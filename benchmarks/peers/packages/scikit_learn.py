"""scikit-learn: LinearSVC as the surrogate, and a product of features.

liblinear does not return its multipliers. A sample inside the margin is taken to have λ = C at its class and
−C at its strongest rival, as every such sample has at the optimum; those exactly on the margin get the same.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from benchmarks.peers.contract import TORCH, Method, Package, Row, size
from benchmarks.peers.scene import Scene


def features(scene: Scene, x: torch.Tensor) -> np.ndarray:
    """The inputs of the head, (N, d)."""
    with torch.inference_mode():
        return torch.cat([scene.model.features(part) for part in x.split(500)]).numpy()


class Surrogate(Method):
    """Crammer and Singer's support vector machine, at its default tolerance."""

    C = 1e-3

    def cache(self, scene: Scene, folder: Path) -> int:
        from sklearn.svm import LinearSVC

        f, y = features(scene, scene.x), scene.y.numpy()
        fitted = LinearSVC(multi_class="crammer_singer", C=self.C, max_iter=100_000, random_state=0).fit(f, y)
        scores = f @ fitted.coef_.T.astype(np.float32) + fitted.intercept_.astype(np.float32)
        every = np.arange(len(y))
        own = scores[every, y].copy()
        scores[every, y] = -np.inf
        rival = scores.argmax(1)
        self.support = np.flatnonzero(own - scores[every, rival] <= 1)
        self.n, self.f = len(y), f[self.support]
        self.y, self.rival = y[self.support], rival[self.support]
        np.savez(folder / "kept.npz", f=self.f, y=self.y, rival=self.rival, support=self.support)
        return size(folder)

    def explain(self, scene: Scene) -> np.ndarray:
        products = features(scene, scene.tests) @ self.f.T
        target = scene.targets.numpy()[:, None]
        products *= self.C * (self.y == target) - self.C * (self.rival == target)
        scores = np.zeros((len(target), self.n), np.float32)
        scores[:, self.support] = products
        return scores


PACKAGE = Package(
    "scikit-learn",
    (TORCH, ("scikit-learn==1.9.1",)),
    (
        Row(
            "LinearSVC and a product",
            Surrogate,
            per_test=True,
            like=("dualda", {"C": 1e-3, "bias": False}),
        ),
    ),
    ("sklearn.svm",),
)
