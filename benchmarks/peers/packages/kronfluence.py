"""kronfluence: influence functions by EK-FAC, of the last layer and of the whole network."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from benchmarks.peers.contract import TORCH, Method, Package, Row, size
from benchmarks.peers.scene import Scene


class EKFAC(Method):
    """Factors are fitted once; scores pass through the training set once per batch of tests."""

    def __init__(self, last: bool) -> None:
        self.last = last

    def cache(self, scene: Scene, folder: Path) -> int:
        from kronfluence.analyzer import Analyzer, prepare_model
        from kronfluence.arguments import FactorArguments
        from kronfluence.task import Task

        modules = ["head"] if self.last else None

        class Classifying(Task):
            def compute_train_loss(self, batch: Any, model: Any, sample: bool = False) -> torch.Tensor:
                logits = model(batch[0])
                if not sample:
                    return cross_entropy(logits, batch[1], reduction="sum")
                drawn = torch.multinomial(logits.detach().softmax(1), 1)[:, 0]
                return cross_entropy(logits, drawn, reduction="sum")

            def compute_measurement(self, batch: Any, model: Any) -> torch.Tensor:
                return cross_entropy(model(batch[0]), batch[1], reduction="sum")

            def get_influence_tracked_modules(self) -> list[str] | None:
                return modules

        task = Classifying()
        model = prepare_model(scene.model, task)
        self.train = TensorDataset(scene.x, scene.y)
        self.analyzer = Analyzer(
            "peers", model, task, cpu=True, output_dir=str(folder), disable_tqdm=True, disable_model_save=True
        )
        self.analyzer.fit_all_factors(
            "ekfac", self.train, per_device_batch_size=500, factor_args=FactorArguments(strategy="ekfac")
        )
        return size(folder)

    def explain(self, scene: Scene) -> np.ndarray:
        queries = 2_000 if self.last else 500  # the whole network's gradients of so many are held
        self.analyzer.compute_pairwise_scores(
            "scores",
            "ekfac",
            TensorDataset(scene.tests, scene.targets),
            self.train,
            per_device_query_batch_size=queries,
            per_device_train_batch_size=500,
        )
        found: np.ndarray = self.analyzer.load_pairwise_scores("scores")["all_modules"].numpy()
        return found


PACKAGE = Package(
    "kronfluence",
    (
        TORCH,
        ("tqdm", "safetensors", "einconv", "einops", "opt-einsum", "accelerate"),
        ("--no-deps", "kronfluence==1.0.1"),
    ),
    (
        Row("EK-FAC, last layer", partial(EKFAC, True), like=("ekfac", {"params": "last"})),
        Row("EK-FAC, whole network", partial(EKFAC, False), like=("ekfac", {})),
    ),
    ("kronfluence.analyzer", "kronfluence.arguments", "kronfluence.task"),
)
