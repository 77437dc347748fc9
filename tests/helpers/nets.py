"""Small networks and their training, for all tests."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def mlp(*widths: int, seed: int | None = 0, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers with an activation between them; without a seed by torch's random state."""
    if seed is not None:
        torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(widths):
        layers += [nn.Linear(n_in, n_out), activation()]
    return nn.Sequential(*layers[:-1])


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    epochs: int,
    rate: float,
    *,
    batch: int | None = None,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    every: int = 0,
    **options: Any,
) -> list[dict[str, Tensor]]:
    """Train on all samples at once or in shuffled batches; return the weights after every so many epochs."""
    steps = optimizer(model.parameters(), rate, **options)
    checkpoints = []
    for epoch in range(1, epochs + 1):
        for rows in [slice(None)] if batch is None else torch.randperm(len(x)).split(batch):
            steps.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            steps.step()
        if every and epoch % every == 0:
            checkpoints.append(copy.deepcopy(model.state_dict()))
    model.zero_grad()
    return checkpoints


class Network(nn.Module):
    """Layers by name, and a function of the network and its inputs that runs them."""

    def __init__(self, run: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *inputs: Tensor) -> Any:
        return self.run(self, *inputs)
