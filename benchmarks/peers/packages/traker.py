"""traker: TRAK, of the last layer without a projection, and of the whole network with its default one."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.peers.contract import TORCH, Method, Package, Row, size
from benchmarks.peers.scene import Scene

BATCH = 500  # a new projection is made for every batch


class TRAK(Method):
    """Features of all training samples are kept; one checkpoint."""

    def __init__(self, last: bool) -> None:
        self.last = last

    def cache(self, scene: Scene, folder: Path) -> int:
        from trak import TRAKer
        from trak.projectors import NoOpProjector

        n = len(scene.x)
        numbers = sum(part.numel() for part in scene.model.parameters())
        options: dict[str, object] = {"proj_dim": min(2_048, numbers // 2)}
        if self.last:
            options = {"projector": NoOpProjector(device="cpu"), "grad_wrt": ["head.weight", "head.bias"]}
        self.explainer = TRAKer(
            scene.model,
            "image_classification",
            n,
            save_dir=str(folder),
            device="cpu",
            use_half_precision=False,
            logging_level=logging.ERROR,
            lambda_reg=1e-6,  # logits have a direction that changes nothing, so that the matrix is singular
            **options,
        )
        self.weights = scene.checkpoints[-1]
        self.explainer.load_checkpoint(self.weights, model_id=0)
        for x, y in zip(scene.x.split(BATCH), scene.y.split(BATCH), strict=True):
            self.explainer.featurize(batch=(x, y), num_samples=len(x))
        self.explainer.finalize_features()
        return size(folder)

    def explain(self, scene: Scene) -> np.ndarray:
        self.explainer.start_scoring_checkpoint("tests", self.weights, 0, len(scene.tests))
        for x, target in zip(scene.tests.split(BATCH), scene.targets.split(BATCH), strict=True):
            self.explainer.score(batch=(x, target), num_samples=len(x))
        return np.asarray(self.explainer.finalize_scores("tests")).T


PACKAGE = Package(
    "traker",
    (TORCH, ("tqdm",), ("--no-deps", "traker==0.3.2")),
    (
        Row("TRAK, last layer", partial(TRAK, True), like=("trak", {"params": "last", "ridge": 1e-4})),
        Row("TRAK, whole network", partial(TRAK, False), like=("trak", {"ridge": 1e-4})),
    ),
    ("trak", "trak.projectors"),
)
