"""cleanlab: scores of labels. It asks which labels are wrong, not which samples a prediction comes from."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.contract import TORCH, Method, Package, Row, size
from benchmarks.peers.packages.scikit_learn import features
from benchmarks.peers.scene import Scene


class Labels(Method):
    """Confident learning: probabilities of a regression on features, cross-validated, and label scores."""

    def cache(self, scene: Scene, folder: Path) -> int:
        import numpy as np
        from cleanlab.rank import get_label_quality_scores
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import cross_val_predict

        f, y = features(scene, scene.x), scene.y.numpy()
        model = LogisticRegression(max_iter=200)
        p = cross_val_predict(model, f, y, cv=5, method="predict_proba")
        np.save(folder / "scores.npy", get_label_quality_scores(y, p))
        return size(folder)


PACKAGE = Package(
    "cleanlab",
    (TORCH, ("cleanlab==2.9.0", "scikit-learn==1.9.1")),
    (
        Row(
            "label scores",
            Labels,
        ),
    ),
    ("cleanlab.rank", "sklearn.linear_model", "sklearn.model_selection"),
)
