"""dattri: TRAK and TracIn of the last layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers.contract import TORCH, Method, Package, Row
from benchmarks.peers.scene import Scene

BATCH, LAYER = 1_000, ["head.weight", "head.bias"]


def loader(x: torch.Tensor, y: torch.Tensor) -> DataLoader[Any]:
    return DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=False)


class TRAK(Method):
    """One checkpoint, projections to half as many dimensions as the layer has parameters."""

    def cache(self, scene: Scene, folder: Path) -> int:
        from dattri.algorithm.trak import TRAKAttributor
        from dattri.task import AttributionTask

        model = scene.model

        def margin(params: Any, pair: Any) -> torch.Tensor:
            x, y = pair
            logits = functional_call(model, params, x.unsqueeze(0))
            p = torch.exp(-cross_entropy(logits, y.unsqueeze(0)))
            return torch.log(p / (1 - p))

        def probability(params: Any, pair: Any) -> torch.Tensor:
            x, y = pair
            logits = functional_call(model, params, x.unsqueeze(0))  # one sample: dattri maps over them
            return torch.exp(-cross_entropy(logits, y.unsqueeze(0)))

        task = AttributionTask(margin, model, scene.checkpoints[-1])
        numbers = model.head.weight.numel() + model.head.bias.numel()
        projector = {"proj_dim": min(512, numbers // 2), "device": "cpu", "proj_seed": 0}
        self.explainer = TRAKAttributor(
            task, probability, projector_kwargs=projector, layer_name=LAYER, regularization=1e-6
        )
        self.explainer.cache(loader(scene.x, scene.y))
        kept: int = sum(part.nbytes for part in self.explainer.inv_XTX_XT_list) + self.explainer.Q.nbytes
        return kept

    def explain(self, scene: Scene) -> np.ndarray:
        found = self.explainer.attribute(loader(scene.tests, scene.targets))
        return np.asarray(found.detach().T)


class TracIn(Method):
    """All checkpoints; nothing is kept."""

    def cache(self, scene: Scene, folder: Path) -> None:
        from dattri.algorithm.tracin import TracInAttributor
        from dattri.task import AttributionTask

        model = scene.model

        def loss(params: Any, pair: Any) -> torch.Tensor:
            x, y = pair
            return cross_entropy(functional_call(model, params, x.unsqueeze(0)), y.unsqueeze(0))

        task = AttributionTask(loss, model, scene.checkpoints)
        rates = torch.full((len(scene.checkpoints),), 1e-3)
        projector = {"proj_dim": 512, "device": "cpu"}
        self.explainer = TracInAttributor(task, rates, False, projector_kwargs=projector, layer_name=LAYER)
        self.train = loader(scene.x, scene.y)

    def explain(self, scene: Scene) -> np.ndarray:
        found = self.explainer.attribute(self.train, loader(scene.tests, scene.targets))
        return np.asarray(found.detach().T)


PACKAGE = Package(
    "dattri",
    (TORCH, ("scipy", "pyyaml", "tqdm"), ("--no-deps", "dattri==0.3.0")),
    (
        Row("TRAK, last layer", TRAK, like=("trak", {"params": "last", "ridge": 1e-4})),
        Row(
            "TracIn, last layer",
            TracIn,
            like=("tracin", {"params": "last"}),
        ),
    ),
    ("dattri.task", "dattri.algorithm.trak", "dattri.algorithm.tracin"),
)
