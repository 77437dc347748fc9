"""What every package is given: a trained network, its checkpoints, a training set and tests, as plain files.

A folder per scene holds ``arrays.npz`` (inputs and labels) and ``weights.pt`` (the weights after each
epoch), so that an environment with torch and numpy alone can read it: ``load``. Networks are written out
here for that reason. ``prepare`` makes the folders, once; a training that was interrupted goes on at its
last whole epoch.

- ``mnist``: the paper's CNN (422,026 parameters, 128 features), 60,000 images, the first 2,000 tests.
- ``cifar10``: a ResNet-8 (78,042 parameters, 64 features), 50,000 images, the first 2,000 tests.
- ``bbc``: a linear head on features of MiniLM (384). There are only 2,225 articles: 1,225 to train, 1,000
  tests. The language model has read them before: no package's time counts it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

SCENES = {"mnist": "MNIST, CNN", "cifar10": "CIFAR-10, ResNet-8", "bbc": "BBC News, head on MiniLM"}
EPOCHS, TESTS = 4, 2_000


class Scene(NamedTuple):
    """A trained network with the samples to attribute and to attribute to; the head is ``model.head``."""

    name: str
    model: nn.Module
    checkpoints: list[dict[str, Tensor]]
    x: Tensor
    y: Tensor
    tests: Tensor
    targets: Tensor  # the predicted classes of the tests
    accuracy: float

    def of(self, n: int, tests: int) -> Scene:
        """Keep the first samples and tests."""
        return self._replace(
            x=self.x[:n], y=self.y[:n], tests=self.tests[:tests], targets=self.targets[:tests]
        )


class Block(nn.Module):
    """Two convolutions with BatchNorm and the way around them."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out)
        self.conv2, self.norm2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out)
        around = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))
        self.around = nn.Identity() if stride == 1 else around

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.norm1(self.conv1(x)))
        return relu(self.norm2(self.conv2(y)) + self.around(x))


class Headed(nn.Module):
    """Features, and a linear head on them."""

    def __init__(self, features: nn.Module, width: int, n_classes: int) -> None:
        super().__init__()
        self.features, self.head = features, nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


class Standardised(nn.Module):
    """Bring features to mean 0, deviation 1 and a length of 1 or so."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) * self.scale


def network(name: str) -> Headed:
    """Make an untrained network."""
    if name == "bbc":
        return Headed(Standardised(384), 384, 5)
    if name == "cifar10":
        stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        blocks = Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)
        return Headed(nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 64, 10)
    layers: list[nn.Module] = []
    for n_in, n_out in ((1, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.Linear(1152, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()]
    return Headed(nn.Sequential(*layers), 128, 10)


def load(folder: Path, name: str) -> Scene:
    """Read a scene that was prepared."""
    with np.load(folder / name / "arrays.npz") as arrays:
        x, y, tests, truth = (torch.from_numpy(arrays[key]) for key in ("x", "y", "tests", "truth"))
    checkpoints = torch.load(folder / name / "weights.pt", weights_only=True)
    model = network(name)
    model.load_state_dict(checkpoints[-1])
    model.eval()
    with torch.no_grad():
        targets = torch.cat([model(part).argmax(1) for part in tests.split(500)])
    accuracy = (targets == truth).float().mean().item()
    return Scene(name, model, checkpoints, x, y, tests, targets, accuracy)


def prepare(folder: Path, name: str, data: Path) -> None:
    """Read the data and train the network, unless it was done."""
    here = folder / name
    here.mkdir(parents=True, exist_ok=True)
    if not (here / "arrays.npz").exists():
        x, y, tests, truth = {"mnist": _mnist, "cifar10": _cifar10, "bbc": _bbc}[name](data)
        arrays = {"x": x.astype(np.float32), "tests": tests[:TESTS].astype(np.float32)}
        np.savez(here / "arrays.npz", **arrays, y=y.astype(np.int64), truth=truth[:TESTS].astype(np.int64))
    _train(here, name)


def _mnist(data: Path) -> tuple[np.ndarray, ...]:
    from benchmarks.data import read_idx

    found = []
    for part in ("train", "t10k"):
        images, labels = (
            read_idx(data / "mnist" / f"{part}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1")
        )
        found += [images[:, None] / np.float32(255), labels]
    return tuple(found)


def _cifar10(data: Path) -> tuple[np.ndarray, ...]:
    found = []
    for files in ([f"data_batch_{k}.bin" for k in range(1, 6)], ["test_batch.bin"]):
        records = np.concatenate(
            [np.fromfile(data / "cifar-10" / f, np.uint8).reshape(-1, 3073) for f in files]
        )
        pixels = records[:, 1:].reshape(-1, 3, 32, 32) / np.float32(255)
        mean, std = (
            np.array(v, np.float32)[:, None, None] for v in ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))
        )
        found += [(pixels - mean) / std, records[:, 0]]
    return tuple(found)


def _bbc(data: Path) -> tuple[np.ndarray, ...]:
    import csv

    from whence_studies.scenes.texts import Backbone, features

    with (data / "bbc-news" / "bbc-news.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    topics = sorted({row["label"] for row in rows})
    labels = np.array([topics.index(row["label"]) for row in rows])
    backbone, texts = Backbone(data / "minilm", last=False), [row["text"] for row in rows]
    read = [features(backbone, texts[i : i + 32]) for i in range(0, len(texts), 32)]
    x = np.concatenate([row for part in read for row in part])
    order = np.random.default_rng(0).permutation(len(x))
    tests, train = order[:1_000], order[1_000:]
    return x[train], labels[train], x[tests], labels[tests]


def _train(here: Path, name: str) -> None:
    """Train by Adam for some epochs; the state after each is kept."""
    done: list[dict[str, Tensor]] = []
    weights, state = here / "weights.pt", here / "optimiser.pt"
    if weights.exists():
        done = torch.load(weights, weights_only=True)
    if len(done) == EPOCHS:
        return
    with np.load(here / "arrays.npz") as arrays:
        x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    torch.manual_seed(0)
    model = network(name)
    if name == "bbc":
        model.features.mean.copy_(x.mean(0))
        model.features.scale.copy_(1 / (x.std(0) + 1e-6) / x.shape[1] ** 0.5)
    optimiser = torch.optim.Adam(model.parameters(), lr={"mnist": 1e-3, "cifar10": 4e-3, "bbc": 2e-2}[name])
    if done:
        model.load_state_dict(done[-1])
        optimiser.load_state_dict(torch.load(state, weights_only=True))
    for epoch in range(len(done), EPOCHS):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        model.train()
        for step, rows in enumerate(order.split(128)):
            if name == "cifar10":  # the rate goes to zero along a half cosine
                turn = (epoch + step * 128 / len(x)) / EPOCHS * np.pi
                optimiser.param_groups[0]["lr"] = 4e-3 * 0.5 * (1 + np.cos(turn))
            optimiser.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
        done.append({key: value.clone() for key, value in model.state_dict().items()})
        torch.save(optimiser.state_dict(), state)
        torch.save(done, weights)
        print(f"{name}: epoch {epoch + 1} of {EPOCHS}", file=sys.stderr, flush=True)
