"""Feature matrices for the benchmarks: real ones from Fashion-MNIST, and synthetic ones of other shapes."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import nn


def read_idx(path: Path) -> np.ndarray:
    """Read a gzipped IDX file, the format MNIST and Fashion-MNIST are published in."""
    with gzip.open(path, "rb") as file:
        raw = file.read()
    rank = raw[3]
    shape = np.frombuffer(raw, ">i4", rank, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def fashion_features(folder: Path, cache: Path) -> tuple[np.ndarray, np.ndarray]:
    """Penultimate features (60,000 × 128, after ReLU) of a CNN trained on the 60,000 images, and the labels.

    The network is trained once from a seed and its features are kept in ``cache``.
    """
    stored = cache / "fashion-60000x128.npy"
    labels = read_idx(folder / "fashion-mnist" / "train-labels-idx1-ubyte.gz").astype(np.int64)
    if not stored.exists():
        images = read_idx(folder / "fashion-mnist" / "train-images-idx3-ubyte.gz")
        x = torch.from_numpy(images.astype(np.float32) / 255.0).unsqueeze(1)
        cache.mkdir(parents=True, exist_ok=True)
        np.save(stored, _train_and_extract(x, torch.from_numpy(labels)))
    return np.load(stored), labels


def _train_and_extract(x: torch.Tensor, y: torch.Tensor, epochs: int = 5) -> np.ndarray:
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(),
    )  # fmt: skip
    head = nn.Linear(128, 10)
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(head(body(x[rows])), y[rows]).backward()
            optimiser.step()
    with torch.inference_mode():
        return torch.cat([body(part) for part in x.split(1000)]).numpy()


def synthetic_features(n: int, d: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features like a trained network's: class clusters, a decaying spectrum, ReLU, 1 % wrong labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    rank = d // 2
    spectrum = (1.0 + np.arange(rank)) ** -0.6
    means = rng.normal(size=(k, rank)) * spectrum * 0.9
    mix = (rng.normal(size=(rank, d)) / np.sqrt(rank) * 4.0).astype(np.float32)
    features = np.empty((n, d), np.float32)
    for start in range(0, n, 4096):
        part = slice(start, min(start + 4096, n))
        latent = means[y[part]] + rng.normal(size=(part.stop - start, rank)) * spectrum
        features[part] = np.maximum(latent.astype(np.float32) @ mix, 0.0)
    wrong = rng.random(n) < 0.01
    y[wrong] = rng.integers(0, k, wrong.sum())
    return features, y
