"""Training on halves: the samples, the seeds, resuming, and what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import TensorDataset

import whence
from whence.errors import InvalidInputError, ModelError, StoreError


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Make inputs that name their sample, and labels."""
    return torch.arange(24.0).reshape(12, 2), torch.arange(12) % 2


def make() -> nn.Module:
    """Make an untrained network."""
    return nn.Linear(2, 2)


def step(model: nn.Module, half: Any, scale: float = 1.0) -> None:
    """Set the weight to the sum of the half's inputs; the bias keeps its random values."""
    x = half[0] if isinstance(half, tuple) else torch.stack([half[i][0] for i in range(len(half))])
    with torch.no_grad():
        model.weight.copy_(torch.stack([x.sum(0) * scale, torch.full((2,), float(len(x)))]))  # type: ignore[operator]


def train(**options: Any) -> list[nn.Module]:
    """Train on halves without a bar."""
    given = {"make": make, "train": step, "data": data(), "n": 4, "show_progress": False} | options
    return whence.train_halves(**given)


def test_each_model_has_a_half_and_a_seed_of_its_own() -> None:
    models = train()
    weights = torch.stack([model.weight.detach() for model in models])
    assert (weights[:, 1] == 6).all()  # half of twelve
    assert len({tuple(row.tolist()) for row in weights[:, 0]}) > 1
    for i, model in enumerate(models):
        torch.manual_seed(i)
        assert_close(model.bias, make().bias)
        assert not model.training
    for other in (train(data=TensorDataset(*data())), train(engine="processes:2", threads=1)):
        assert_close(torch.stack([model.weight.detach() for model in other]), weights)
    assert not torch.equal(train(seed=9)[0].weight, models[0].weight)


def test_the_callers_random_numbers_are_untouched() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train()
    assert torch.equal(torch.rand(3), expected)


def test_a_run_resumes_and_never_takes_another_ones_models(tmp_path: Path) -> None:
    def fails(model: nn.Module, half: Any) -> None:
        raise AssertionError

    first = train(folder=tmp_path)
    (tmp_path / "half-2.safetensors").unlink()
    again = train(folder=tmp_path)
    assert_close([model.weight for model in again], [model.weight for model in first])
    x, y = data()
    x[0] += 1
    for changed in ({"data": (x, y)}, {"train": partial(step, scale=2.0)}, {"train": fails}, {"seed": 1}):
        with pytest.raises(StoreError, match="other data, code or seeds"):
            train(folder=tmp_path, **changed)
    (tmp_path / "half-0.safetensors").write_bytes(b"torn")
    with pytest.raises(StoreError, match="damaged"):
        train(folder=tmp_path)


def test_bad_arguments_and_trainings_are_refused() -> None:
    def diverges(model: nn.Module, half: Any) -> None:
        step(model, half, float("nan"))

    with pytest.raises(ModelError, match="not finite: 'weight'"):
        train(train=diverges)
    with pytest.raises(InvalidInputError, match="'data' must be a tuple of tensors or arrays"):
        train(data=([1, 2], [0, 1]))
    with pytest.raises(InvalidInputError, match=r"'make' must return an nn\.Module"):
        train(make=lambda: None)
    assert len(train(data=tuple(map(np.asarray, data())), train=lambda model, half: None, n=1)) == 1
