"""A saved project of 50,000 synthetic pictures of 512 pixels, as large as ``whence serve`` is meant for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.data import synthetic_features
from whence import DualDA
from whence.project import Configuration

SHAPE = 50_000, 512, 10
TESTS = 2_000
SIZE = 16, 32


@cache
def _samples() -> tuple[torch.Tensor, torch.Tensor]:
    n, d, k = SHAPE
    x, y = synthetic_features(n + TESTS, d, k)
    pictures = torch.from_numpy((x / np.quantile(x, 0.999)).clip(0, 1)).reshape(-1, 1, *SIZE)
    return pictures, torch.from_numpy(y)


def train() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the training pictures and their labels, 1 % of them wrong."""
    x, y = _samples()
    return x[: SHAPE[0]], y[: SHAPE[0]]


def test() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the test pictures and their labels."""
    x, y = _samples()
    return x[SHAPE[0] :], y[SHAPE[0] :]


def network(folder: Path) -> nn.Module:
    """Return the linear network whose features are the pixels."""
    model = _network()
    model.load_state_dict(torch.load(folder / "head.pt", weights_only=True))
    return model


def make(folder: Path) -> Path:
    """Train the network, fit DualDA and save both; return the explainer's file."""
    saved = folder / "wide.whence"
    if saved.exists():
        return saved
    folder.mkdir(parents=True, exist_ok=True)
    model, (x, y) = _network(), train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        for rows in torch.randperm(len(x), generator=generator).split(256):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    torch.save(model.state_dict(), folder / "head.pt")
    # The strength of the losses in the benchmark of the solver's growth: C·N·mean‖f‖² is what matters.
    C = 1e4 / (len(x) * float(x[:5000].square().sum(dim=(1, 2, 3)).mean()))
    DualDA(C=C, show_progress=False).fit(model.eval(), (x, y)).save(saved)
    names = {name: f"benchmarks.wide:{name}" for name in ("train", "test", "network")}
    Configuration(model=names["network"], data=names["train"], test=names["test"], options={"C": C}).write(
        saved
    )
    return saved


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(SHAPE[1], SHAPE[2])).eval()
