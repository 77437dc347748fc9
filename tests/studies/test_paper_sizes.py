"""The protocols of the paper's sizes, run whole at a hundredth of them, with small networks for large."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tools.sample import to_idx
from torch import Tensor, nn

from whence_studies.report import page
from whence_studies.suite import protocol, run
from whence_studies.suite.results import ERROR

K = 6  # classes of the folders
SCORED = ("identical_class", "identical_subclass", "mislabeling", "lds", "lds_log_prob", "coreset", "pruning")


class Stub(nn.Module):
    """What stands in for a network of torchvision: the same inputs and outputs, few weights."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 4, 7, 16), nn.ReLU(), nn.AdaptiveMaxPool2d(3), nn.Flatten()
        )
        self.fc = nn.Linear(36, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.features(x))
        return logits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data sets in their authors' formats, of noise that is brighter by class."""
    here, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)

    def noise(n: int, *shape: int) -> tuple[Any, Any]:
        labels = (np.arange(n) % 10).astype(np.uint8)
        spread = rng.integers(0, 100, (n, *shape))
        return (spread + 15 * labels.reshape(-1, *[1] * len(shape))).astype(np.uint8), labels

    (here / "mnist").mkdir()
    for split, n in (("train", 700), ("t10k", 200)):
        images, labels = noise(n, 28, 28)
        (here / "mnist" / f"{split}-images-idx3-ubyte.gz").write_bytes(to_idx(images))
        (here / "mnist" / f"{split}-labels-idx1-ubyte.gz").write_bytes(to_idx(labels))
    for c in range(K):
        (here / "awa2" / f"class{c}").mkdir(parents=True)
        for i in range(30):
            image = rng.integers(0, 60, (40, 40, 3)) + 30 * c
            Image.fromarray(image.astype(np.uint8)).save(here / "awa2" / f"class{c}" / f"{i}.png")
    return here


def hundredth(name: str) -> protocol.Protocol:
    """A protocol with sizes, steps and counts of a hundredth, at least as many as everything needs."""
    tables: dict[str, Any] = json.loads(json.dumps(protocol.read(name)))
    folders = name == "paper-awa2"
    data, model = tables["data"], tables["model"]
    most = 90 if folders else data["train"]  # folders have 120 images for training
    data |= {"train": min(most, data["train"] // 100), "test": 12, "held_out": 20}
    model |= {"steps": max(6, model["steps"] // 1000), "device": "cpu", "batch_size": 32, "checkpoints": 2}
    if model["name"] == "unpooled-cnn":
        model["name"] = "narrow-cnn"
    for options in tables["metrics"].values():
        options |= {key: max(4, options[key] // 100) for key in ("subsets", "tuning") if key in options}
        options |= {"train": data["train"]} if "train" in options else {}
        options |= {"steps": 6} if "steps" in options else {}
        options |= {"fractions": [0.5], "seeds": 1} if "fractions" in options else {}
        options |= {"seeds": 1} if "seeds" in options else {}
        options |= {"groups": K // 2} if "groups" in options else {}
    tables["metrics"]["shortcut"] |= {"maps": 2}
    # Untrained networks leave most samples on the margin, where the hinge's points are slow to find.
    tables["methods"] = [method for method in tables["methods"] if method["name"] != "hingerp"]
    for method in tables["methods"]:
        method["tune"] = {name: values[:2] for name, values in method.get("tune", {}).items()}
        if method["name"] == "ekfac":  # half of the time otherwise
            method["options"] = {**method.get("options", {}), "n_samples": 20}
    sweep = {
        "values": [1e-5, 1e-3, 1e-1],
        "fractions": [0.5],
    }  # of one protocol: it takes a fifth of the time
    tables["sweep"] = tables["sweep"] | sweep if name == "paper-mnist" else {}
    return protocol.parse(tables)


@pytest.mark.parametrize("name", ["paper-mnist", "paper-awa2"])  # a set of arrays, and one of folders
def test_a_hundredth_of_the_papers_study_runs_whole(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchvision, models = ModuleType("torchvision"), ModuleType("torchvision.models")
    models.resnet50 = models.vgg16 = Stub  # type: ignore[attr-defined]
    torchvision.models = models  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    asked = hundredth(name)
    found = run.run(asked, folder, tmp_path, show_progress=False, say=lambda line: None)
    failed = [f"{row.metric} {row.method}: {row.note}" for row in found.rows if row.quantity == ERROR]
    assert not failed
    methods = [method.key for method in asked.methods if not method.sweep]
    for metric in SCORED:
        scores = [found.value(metric, key) for key in methods]
        assert all(score is not None and np.isfinite(score) for score in scores), metric
    assert 0 <= (found.value("scene", "shortcut", "fooled") or 0.0) <= 1
    assert found.value("scene", "flips", "wrong_labels") == pytest.approx(0.3, abs=0.02)
    assert "Mislabeling" in page.render_page(found)
