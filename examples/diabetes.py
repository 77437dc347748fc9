"""The progression of diabetes within a year, a number, by a small network on scikit-learn's own data.

``python -m examples.diabetes`` trains it; ``whence fit`` takes ``build``, ``train`` and ``test``, and finds
by the labels that it is a regression.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

from examples.places import weights

N_TEST = 92
WEIGHTS = "diabetes-mlp.safetensors"


class Network(nn.Module):
    """Ten measures of a patient to one number, (B,), in the units of the data."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map measures (B, 10) to the progression (B,)."""
        outputs: Tensor = self.head(self.features(x))
        return outputs[:, 0]


def read() -> tuple[TensorDataset, TensorDataset]:
    """Return 350 patients to train on and 92 held-out ones; measures have mean 0 and deviation 1."""
    measures, progression = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(progression))
    x = torch.from_numpy(measures[order].astype(np.float32)) * len(order) ** 0.5
    y = torch.from_numpy(progression[order].astype(np.float32))
    return TensorDataset(x[N_TEST:], y[N_TEST:]), TensorDataset(x[:N_TEST], y[:N_TEST])


def train() -> TensorDataset:
    """Return the patients that the network is trained on."""
    return read()[0]


def test() -> TensorDataset:
    """Return held-out patients."""
    return read()[1]


def build() -> Network:
    """Return the trained network."""
    model = Network()
    model.load_state_dict(load_file(weights(WEIGHTS, made_by="python -m examples.diabetes")))
    return model.eval()


def fit(x: Tensor, y: Tensor, epochs: int, seed: int = 0) -> Network:
    """Train a network, which begins at the mean."""
    torch.manual_seed(seed)
    model, mean, deviation = Network(), y.mean(), y.std()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    with torch.no_grad():
        model.head.weight *= deviation
        model.head.bias.fill_(mean)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(32):
            loss = mse_loss(model(x[rows]) / deviation, y[rows] / deviation)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    """Train, measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = fit(*train().tensors, options.epochs, options.seed)
    path = weights(WEIGHTS)
    save_file(model.state_dict(), path)
    with torch.no_grad():
        scores = [r2_score(part.tensors[1], model(part.tensors[0])) for part in (train(), test())]
    print(f"R² {scores[0]:.3f} on the training set, {scores[1]:.3f} on held-out patients, saved {path}")


if __name__ == "__main__":
    main()
