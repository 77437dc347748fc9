"""The small world that fuzzed calls live in: data, networks, fitted attributors, and models that are none."""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whence.methods import Ensemble, get, names
from whence.model.extractor import Extractor

N, D, WIDTH, K, B = 18, 4, 6, 3, 4
"""Training samples, inputs, features, classes, tests."""


class UserError(Exception):
    """What a user's own function raises."""


def X(n: int = N) -> Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(1)) + torch.eye(D)[torch.arange(n) % K]


def y(n: int = N) -> Tensor:
    return torch.arange(n) % K


def network() -> nn.Sequential:
    generator = torch.Generator().manual_seed(3)
    model = nn.Sequential(nn.Linear(D, WIDTH), nn.ReLU(), nn.Linear(WIDTH, K))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def images(n: int = 8) -> Tensor:
    return torch.rand(n, 1, 6, 6, generator=torch.Generator().manual_seed(1))


def image_network() -> nn.Sequential:
    generator = torch.Generator().manual_seed(3)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, K))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def features(n: int = N) -> np.ndarray:
    """Inputs of the network's last layer."""
    with torch.no_grad():
        return network()[:2](X(n)).numpy()


def head() -> tuple[np.ndarray, np.ndarray]:
    last = network()[2]
    return last.weight.detach().numpy().copy(), last.bias.detach().numpy().copy()


def scores() -> np.ndarray:
    return np.random.default_rng(5).standard_normal((B, N))


def extractor() -> Extractor:
    return Extractor(network(), "2")


def texts() -> tuple[list[str], Tensor]:
    return [f"some words {i} of a text" for i in range(N)], y()


OPTIONS: dict[str, dict[str, Any]] = {
    "dualda": {"C": 0.1, "n_threads": 1},
    "effects": {"C": 0.1, "n_threads": 1, "layers": "last"},
    "lissa": {"depth": 20},
    "arnoldi": {"dimension": 6, "projections": 4},
}
METHODS = tuple(name for name in names() if name != "ensemble")  # which has calls of its own


def made(method: str) -> Any:
    if method == "ensemble":
        return Ensemble(lambda: made("similarity"))
    return get(method)(**OPTIONS.get(method, {}), show_progress=False)


def extra(method: str) -> dict[str, Any]:
    """What ``fit`` of a method needs besides model and data."""
    return {"checkpoints": [network().state_dict()]} if method == "tracin" else {}


@functools.cache
def fitted(method: str) -> Any:
    model = [network(), network()] if method == "ensemble" else network()
    with quiet():
        return made(method).fit(model, (X(), y()), **extra(method))


@functools.cache
def fitted_on_images() -> Any:
    with quiet():
        return made("dualda").fit(image_network(), (images(), y(8)))


@contextmanager
def quiet() -> Iterator[None]:
    """Make a thing without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@functools.cache
def folder() -> Path:
    """A folder for what calls write."""
    kept = tempfile.TemporaryDirectory(prefix="whence-fuzz-")
    _KEPT.append(kept)
    return Path(kept.name)


def a_file() -> Path:
    """A file, inside of which nothing can be made, even by those who may make anything."""
    path = folder() / "file"
    path.touch()
    return path


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def saved(method: str) -> Path:
    path = folder() / f"{method}.whence"
    fitted(method).save(path)
    return path


def wrong_models() -> dict[str, Any]:
    """Things that are no model to explain, by what they are."""
    from sklearn.linear_model import LogisticRegression

    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)[:, None].expand(-1, 2, -1)

    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            raise UserError("the model's own")

    return {
        "None": lambda: None,
        "text": lambda: "model.pt",
        "function": lambda: lambda x: x,
        "class": lambda: nn.Linear,
        "scikit-learn": LogisticRegression,
        "no weights": lambda: nn.Sequential(nn.ReLU()),
        "lazy": lambda: nn.Sequential(nn.Linear(D, WIDTH), nn.LazyLinear(K)),
        "one output": lambda: nn.Sequential(nn.Linear(D, 1)),
        "three dimensions": Three,
        "failing": Failing,
        "meta": lambda: network().to("meta"),
        "scripted": _scripted,
        "quantised": _quantised,
        "exported": _exported,
        "no linear": lambda: nn.Sequential(nn.BatchNorm1d(D)),
        "other inputs": lambda: nn.Sequential(nn.Linear(D + 3, K)),
        "NaN": lambda: _filled(float("nan")),
    }


def odd_models() -> dict[str, Any]:
    """Models that may be explained or refused."""
    return {
        "half": lambda: network().half(),
        "double": lambda: network().double(),
        "parallel": lambda: nn.DataParallel(network()),
        "training": lambda: network().train(),
        "frozen": lambda: network().requires_grad_(False),
        "softmax": lambda: nn.Sequential(*network(), nn.Softmax(1)),
        "dropout": lambda: nn.Sequential(*network()[:2], nn.Dropout(0.5), network()[2]),
        "linear": lambda: nn.Linear(D, K),
        "no bias": lambda: nn.Linear(D, K, bias=False),
        "zero": lambda: _filled(0.0),
        "huge": lambda: _filled(1e30),
        "two classes": lambda: nn.Linear(D, 2),
        "many classes": lambda: nn.Linear(D, 50),
        "complex": lambda: nn.Linear(D, K).to(torch.complex64),
    }


def _filled(value: float) -> nn.Module:
    model = network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def _scripted() -> Any:
    with quiet():
        return torch.jit.trace(network(), X())


@functools.cache
def _quantised() -> Any:
    with quiet():
        return torch.ao.quantization.quantize_dynamic(network(), {nn.Linear})


@functools.cache
def _exported() -> Any:
    return torch.export.export(network(), (X(),))
