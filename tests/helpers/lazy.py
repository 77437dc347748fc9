"""A small network, arrays for it, and the same samples made on demand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

N, D, K = 203, 6, 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(5, D)
        self.drop = nn.Dropout(0.5)
        self.shape = nn.LeakyReLU(0.1)
        self.fc = nn.Linear(D, K)
        self.scale = 1.0
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        vars(self)["_seen"] = vars(self).get("_seen", 0) + len(x)
        z: Tensor = self.fc(self.drop(self.shape(self.body(x) * self.scale)))
        return z


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 5)).astype(np.float32), rng.integers(0, K, N)


class Samples(Dataset[Any]):
    """Samples that are read one by one; some cannot be."""

    def __init__(self, x: Any, y: Any, bad: tuple[int, ...] = ()) -> None:
        self.x, self.y, self.bad = x, y, bad

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        if i in self.bad:
            raise OSError("image file is truncated")
        return torch.as_tensor(self.x[i]), self.y[i]


class Lazy(Samples):
    """Those of the arrays; ``targets`` is what some data sets of torchvision have."""

    def __init__(self, bad: tuple[int, ...] = (), known: bool = False) -> None:
        super().__init__(*arrays(), bad)
        if known:
            self.targets = self.y
