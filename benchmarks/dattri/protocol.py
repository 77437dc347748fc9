"""The protocol of dattri's MNIST benchmark as data and functions.

As in dattri's ``benchmark/load.py``, ``benchmark/datasets/mnist``, ``script/dattri_retrain.py`` and
``model_util/retrain.py`` (github.com/TRAIS-Lab/dattri): the first 5,000 training and the first 500 test
images, normalised; plain SGD; half i is ``default_rng(seed + i).choice(5000, 2500, replace=False)`` and its
network is trained with the seed ``seed + i``. The indices that dattri publishes for its networks on halves 0
and 1 are those of seed 0. A network on all 5,000 is trained on a permutation by the same rule. The output of
a test is −cross-entropy of its true label (dattri stores the cross-entropy; Spearman's ρ changes its sign).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

from benchmarks.data import read_idx

MEAN, DEVIATION = 0.1307, 0.3081
OUTPUT = "-cross-entropy of the true label"
DATA = Path.home() / ".cache/whence/data"


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: SGD on the mean cross-entropy, without decay or schedule."""

    epochs: int
    batch: int
    rate: float
    momentum: float


RECIPES = {
    "lr": Recipe(epochs=20, batch=32, rate=0.01, momentum=0.0),
    "mlp": Recipe(epochs=50, batch=64, rate=0.01, momentum=0.9),
}


@dataclass(frozen=True)
class Draw:
    """Which images are used, and the seeds of the halves."""

    n_train: int = 5_000
    n_test: int = 500
    first_train: int = 0
    first_test: int = 0
    seed: int = 0
    n_halves: int = 100


TRUTH = Draw()
"""What results are judged by."""
DEVELOPMENT = Draw(first_train=5_000, first_test=500, seed=20_000, n_halves=50)
"""Other images, halves and training seeds, for the choice of settings."""
MEMBER_SEED = 10_000
"""Of the first network on a half of its own; these share no half and no training seed with a truth."""


class Data(NamedTuple):
    """Images (N, 1, 28, 28) and labels (N,)."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


def load(draw: Draw = TRUTH, folder: Path = DATA) -> Data:
    """Read the images of a draw, normalised as dattri does."""
    x, y = _images(folder, "train", draw.first_train, draw.n_train)
    tests, labels = _images(folder, "t10k", draw.first_test, draw.n_test)
    return Data(x, y, tests, labels)


def make_model(kind: str) -> nn.Sequential:
    """Make a network with random weights: a linear layer, or the MLP 784-128-64-10 with dropout."""
    if kind == "lr":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 128), nn.ReLU(), nn.Dropout(0.1),
        nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.1),
        nn.Linear(64, 10),
    )  # fmt: skip


def train(kind: str, X: Tensor, y: Tensor, seed: int, *, shuffle: bool = True) -> nn.Sequential:
    """Train a network on samples in the order in which dattri lists them; return it in evaluation mode.

    Random numbers are used in the order of dattri's code, whose DataLoader shuffles: the sampler is the same,
    and only the images of a batch are read at once instead of one by one.
    """
    recipe = RECIPES[kind]
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    model = make_model(kind).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=recipe.rate, momentum=recipe.momentum)
    samples = TensorDataset(X, y)
    order = RandomSampler(samples) if shuffle else SequentialSampler(samples)
    batches = BatchSampler(order, recipe.batch, drop_last=False)
    loader = DataLoader(samples, sampler=batches, batch_size=None)
    for _ in range(recipe.epochs):
        for inputs, labels in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()
    return model.eval()


def halves(draw: Draw = TRUTH) -> list[np.ndarray]:
    """Return the training samples of each half, in dattri's order."""
    return [subset(draw.seed + i, draw.n_train, draw.n_train // 2) for i in range(draw.n_halves)]


def subset(seed: int, n: int, size: int) -> np.ndarray:
    """Return ``size`` different integers in [0, n), as dattri draws them."""
    return np.random.default_rng(seed).choice(n, size, replace=False)


def train_full(kind: str, data: Data, seed: int = 0) -> nn.Sequential:
    """Train a network on all training samples."""
    order = torch.from_numpy(subset(seed, len(data.train), len(data.train)))
    return train(kind, data.train[order], data.train_labels[order], seed)


def train_on(kind: str, data: Data, rows: np.ndarray, seed: int, *, shuffle: bool = True) -> nn.Sequential:
    """Train a network on some of the training samples."""
    chosen = torch.from_numpy(rows)
    return train(kind, data.train[chosen], data.train_labels[chosen], seed, shuffle=shuffle)


@torch.inference_mode()
def outputs(model: nn.Module, inputs: Tensor, labels: Tensor) -> np.ndarray:
    """Return −cross-entropy of the true labels, float64."""
    losses = nn.functional.cross_entropy(model(inputs).double(), labels, reduction="none")
    return -losses.numpy()


def _images(folder: Path, name: str, first: int, n: int) -> tuple[Tensor, Tensor]:
    rows = slice(first, first + n)
    images = read_idx(folder / "mnist" / f"{name}-images-idx3-ubyte.gz")[rows]
    labels = read_idx(folder / "mnist" / f"{name}-labels-idx1-ubyte.gz")[rows]
    x = torch.from_numpy(images.copy()).unsqueeze(1).float().div(255)
    return x.sub(MEAN).div(DEVIATION), torch.from_numpy(labels.astype(np.int64))
