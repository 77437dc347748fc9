"""captum: TracIn of the last layer, exactly and by projections, and Arnoldi's influence functions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from benchmarks.peers.contract import TORCH, Method, Package, Row, size
from benchmarks.peers.scene import Scene

RATE = 1e-3  # one factor for all checkpoints
BATCH = 1_000


def saved(scene: Scene, folder: Path, last: bool) -> list[str]:
    """Write checkpoints to files, all or the last, as captum wants them."""
    paths = []
    for place, weights in enumerate(scene.checkpoints[-1 if last else 0 :]):
        paths.append(str(folder / f"{place}.pt"))
        torch.save(weights, paths[-1])
    return paths


def use(model: nn.Module, path: str) -> float:
    """Load a checkpoint, and give its rate."""
    model.load_state_dict(torch.load(path, weights_only=True))
    model.eval()
    return RATE


def scores(explainer: Any, scene: Scene) -> np.ndarray:
    """Ask for all scores of all tests at once: every call passes through the training set."""
    found: np.ndarray = explainer.influence((scene.tests, scene.targets)).detach().numpy()
    return found


def best(explainer: Any, scene: Scene) -> np.ndarray:
    """Ask for the best five."""
    found: np.ndarray = (
        explainer.influence((scene.tests, scene.targets), k=5).influence_scores.detach().numpy()
    )
    return found


class TracIn(Method):
    """Last layer, every checkpoint; exact ones keep nothing but the checkpoints."""

    def __init__(self, projected: bool) -> None:
        self.projected = projected

    def cache(self, scene: Scene, folder: Path) -> int:
        from captum.influence import TracInCPFast, TracInCPFastRandProj

        kind: Any = partial(TracInCPFastRandProj, projection_dim=128) if self.projected else TracInCPFast
        self.explainer = kind(
            scene.model,
            scene.model.head,
            TensorDataset(scene.x, scene.y),
            saved(scene, folder, last=False),
            checkpoints_load_func=use,
            loss_fn=nn.CrossEntropyLoss(reduction="sum"),
            batch_size=BATCH,
        )
        kept = size(folder)
        if self.projected:
            kept += self.explainer.src_intermediate_quantities.nbytes
        return kept

    def explain(self, scene: Scene) -> np.ndarray:
        if self.projected:
            return best(self.explainer, scene)
        return scores(self.explainer, scene)


class Arnoldi(Method):
    """Influence functions in the space of the Hessian's leading directions, last layer."""

    def cache(self, scene: Scene, folder: Path) -> int:
        from captum.influence._core.arnoldi_influence_function import ArnoldiInfluenceFunction

        train = TensorDataset(scene.x, scene.y)
        self.explainer = ArnoldiInfluenceFunction(
            scene.model,
            train,
            saved(scene, folder, last=True)[0],
            checkpoints_load_func=use,
            layers=["head"],
            loss_fn=nn.CrossEntropyLoss(reduction="sum"),
            batch_size=BATCH,
            hessian_dataset=train,
            sample_wise_grads_per_batch=True,
            projection_dim=50,
            seed=0,
            arnoldi_dim=200,
            hessian_reg=1e-3 * len(scene.x),
        )
        return size(folder) + sum(part.nbytes for direction in self.explainer.R for part in direction)

    def explain(self, scene: Scene) -> np.ndarray:
        return scores(self.explainer, scene)


PACKAGE = Package(
    "captum",
    (TORCH, ("captum==0.9.0", "annoy")),
    (
        Row(
            "TracInCPFast",
            partial(TracIn, False),
            like=("tracin", {"params": "last"}),
        ),
        Row("TracInCPFastRandProj, best five", partial(TracIn, True), best=True),
        Row("Arnoldi, last layer", Arnoldi, like=("arnoldi", {"params": "last"})),
    ),
    ("captum.influence", "captum.influence._core.arnoldi_influence_function"),
)
