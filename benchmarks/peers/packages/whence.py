"""whence: DualDA and effects, and its own version of what cleanlab does."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.contract import Method, Package, Row, size
from benchmarks.peers.scene import Scene


class Dual(Method):
    """DualDA; scores are sparse, or the best five for and against."""

    def __init__(self, C: float | str, best: int | None = None) -> None:
        self.C, self.best = C, best

    def cache(self, scene: Scene, folder: Path) -> int:
        import whence

        self.explainer = whence.DualDA(C=self.C, show_progress=False).fit(scene.model, (scene.x, scene.y))
        self.explainer.save(folder / "fitted.whence")
        return size(folder)

    def explain(self, scene: Scene) -> Any:
        if self.best is not None:
            return self.explainer.top_k(scene.tests, k=self.best, target=scene.targets).proponents.scores
        return self.explainer.attribute(scene.tests, target=scene.targets, sparse=True)


class Effects(Method):
    """What would change without each sample, to first order."""

    def cache(self, scene: Scene, folder: Path) -> int:
        import whence

        self.explainer = whence.Effects(show_progress=False).fit(scene.model, (scene.x, scene.y))
        self.explainer.save(folder / "fitted.whence")
        return size(folder)

    def explain(self, scene: Scene) -> np.ndarray:
        return np.asarray(self.explainer.attribute(scene.tests, target=scene.targets))


class Labels(Method):
    """Rank wrong labels, as cleanlab does."""

    def cache(self, scene: Scene, folder: Path) -> int:
        import whence

        bank = whence.features.extract(scene.model, (scene.x, scene.y), show_progress=False)
        fitted = whence.DualDA(C=1e-3, show_progress=False).fit(features=bank)
        found = whence.audit.wrong_labels(fitted, features=bank)
        np.save(folder / "scores.npy", found.scores)
        return size(folder)


ROWS = (
    Row("DualDA, sparse", partial(Dual, 1e-3), per_test=True),
    Row("DualDA, best five", partial(Dual, 1e-3, 5), per_test=True, best=True),
    Row(
        "DualDA, C chosen, sparse",
        partial(Dual, "auto"),
        per_test=True,
    ),
    Row("Effects", Effects),
    Row("label scores", Labels),
)
PACKAGE = Package("whence", (), ROWS, ("whence",))
