"""MNIST with a small convolutional network.

``python -m examples.mnist_cnn`` trains it; ``whence fit`` takes ``build``, ``train`` and ``test``.
"""

from __future__ import annotations

import argparse
import gzip
import time

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset
from tqdm import tqdm

from examples.places import data_folder, weights
from whence.sample import SmallCNN, accuracy
from whence.sample.dataset import parse_idx

N_TRAIN, N_TEST = 10_000, 2_000
WEIGHTS = "mnist-cnn.safetensors"


class Digits(TensorDataset):
    """Images (N, 1, 28, 28) in [0, 1] and their labels (N,), with the names of the classes."""

    classes = tuple("0123456789")


def read(part: str, n: int, of: str = "mnist") -> Digits:
    """Read the first ``n`` images of a part, "train" or "t10k", of MNIST or of a set in the same form."""
    folder = data_folder(of)

    def load(name: str) -> np.ndarray:
        return parse_idx(gzip.decompress((folder / name).read_bytes()), name)[:n]

    images = torch.from_numpy(load(f"{part}-images-idx3-ubyte.gz").astype(np.float32) / 255)
    labels = torch.from_numpy(load(f"{part}-labels-idx1-ubyte.gz").astype(np.int64))
    return Digits(images[:, None], labels)


def train() -> Digits:
    """Return the images that the network is trained on."""
    return read("train", N_TRAIN)


def test() -> Digits:
    """Return held-out images."""
    return read("t10k", N_TEST)


def build() -> SmallCNN:
    """Return the trained network."""
    model = SmallCNN()
    model.load_state_dict(load_file(weights(WEIGHTS, made_by="python -m examples.mnist_cnn")))
    return model.eval()


def fit(images: Tensor, labels: Tensor, epochs: int, seed: int = 0) -> SmallCNN:
    """Train a network."""
    torch.manual_seed(seed)
    model = SmallCNN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in tqdm(range(epochs), desc="Training", unit="epoch"):
        for rows in torch.randperm(len(images)).split(64):
            loss = cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    """Train, measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    images, labels = train().tensors
    started = time.perf_counter()
    model = fit(images, labels, options.epochs, options.seed)
    seconds = time.perf_counter() - started
    path = weights(WEIGHTS)
    save_file(model.state_dict(), path)
    score = accuracy(model, *test().tensors)
    print(f"Trained on {len(images):,} images in {seconds:.0f} s, accuracy {score:.1%}, saved {path}")


if __name__ == "__main__":
    main()
