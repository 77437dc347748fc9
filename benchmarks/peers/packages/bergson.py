"""bergson: a store of projected gradients of the last layer, asked by cosines.

Its commands take language models and tokens only. Its collector takes any linear layer whose inputs have a
place for tokens, so the head is given one token per sample; the product of stored gradients is ours.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from benchmarks.peers.contract import TORCH, Method, Package, Row, size
from benchmarks.peers.scene import Scene

BATCH = 1_000


class OneToken(nn.Module):
    """The network with a token axis before its head."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.body, self.head, self.device = model.features, model.head, torch.device("cpu")
        self.dtype = torch.float32

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            features = self.body(x)
        logits: torch.Tensor = self.head(features[:, None].requires_grad_())[:, 0]
        return logits


class Cosines(Method):
    """Gradients are projected to 16 × 16 numbers, the package's default, and kept."""

    def _gradients(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor, folder: Path) -> torch.Tensor:
        from bergson import GradientProcessor, IndexConfig, InMemoryCollector
        from datasets import Dataset

        collector = InMemoryCollector(
            model,
            target_modules={"head"},
            processor=GradientProcessor(projection_dim=16, include_bias=True),
            data=Dataset.from_dict({"length": [1] * len(x)}),
            cfg=IndexConfig(str(folder)),
        )
        with collector:
            for rows in torch.arange(len(x)).split(BATCH):
                losses = cross_entropy(model(x[rows]), y[rows], reduction="none")
                losses.sum().backward()
                collector.process_batch(rows.tolist(), losses=losses)
        collector.teardown()
        return normalize(torch.as_tensor(collector.gradients["head"]).float())

    def cache(self, scene: Scene, folder: Path) -> int:
        self.model, self.folder = OneToken(scene.model), folder
        self.kept = self._gradients(self.model, scene.x, scene.y, folder / "index")
        np.save(folder / "gradients.npy", self.kept.numpy())
        return size(folder)

    def explain(self, scene: Scene) -> np.ndarray:
        asked = self._gradients(self.model, scene.tests, scene.targets, self.folder / "query")
        return (asked @ self.kept.T).numpy()


PACKAGE = Package(
    "bergson",
    (
        TORCH,
        (
            "accelerate",
            "datasets",
            "jinja2",
            "jaxtyping",
            "ml_dtypes",
            "natsort",
            "scipy",
            "peft",
            "petname",
            "pyarrow",
        ),
        ("pyyaml", "simple-parsing", "torchopt", "transformers>=5.0", "huggingface-hub>=1.13.0"),
        ("--no-deps", "bergson==2.5.1"),
    ),
    (Row("cosines, last layer", Cosines, per_test=True, like=("gradcos", {"params": "last"})),),
    ("bergson", "datasets"),
)
