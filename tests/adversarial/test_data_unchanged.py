"""A training set that comes back is the fitted one: other features and labels are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whence
from tests.adversarial.test_reuse import arrays, plain
from whence.audit import wrong_labels
from whence.errors import InvalidInputError
from whence.features import FeatureBank, extract

N, D, K = 240, 8, 3


def features(outlier: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(N) % K
    X = (3 * np.eye(K, D)[y] + rng.normal(size=(N, D))).astype(np.float32)
    X[7] *= outlier
    return X, y


def other_row(X: np.ndarray, rng: np.random.Generator) -> None:
    X[rng.integers(8, N)] = rng.normal(size=D) * 3


def swapped_rows(X: np.ndarray, rng: np.random.Generator) -> None:
    i, j = rng.choice(np.arange(8, N), 2, replace=False)
    X[[i, j]] = X[[j, i]]


def zero_row(X: np.ndarray, rng: np.random.Generator) -> None:
    X[rng.integers(8, N)] = 0


def larger(X: np.ndarray, rng: np.random.Generator) -> None:
    X *= 1.2


def flipped(X: np.ndarray, rng: np.random.Generator) -> None:
    X[:] = X[::-1].copy()


def permuted_columns(X: np.ndarray, rng: np.random.Generator) -> None:
    X[:] = np.roll(X, 1, axis=1)


def small_row(X: np.ndarray, rng: np.random.Generator) -> None:
    X[rng.integers(8, N)] *= 1e-3


def one_number(X: np.ndarray, rng: np.random.Generator) -> None:
    X[rng.integers(8, N), 0] += 1e3


FOREIGN: dict[str, Callable[[np.ndarray, np.random.Generator], None]] = {
    f.__name__.replace("_", " "): f
    for f in (other_row, swapped_rows, zero_row, larger, flipped, permuted_columns, small_row, one_number)
}


def dualda(X: np.ndarray, y: np.ndarray) -> whence.DualDA:
    return whence.DualDA(metric="raw", C=1e-3, tol=1e-3, show_progress=False).fit(
        features=FeatureBank.of(X, y)
    )


def effects(X: np.ndarray, y: np.ndarray) -> Any:
    head = np.eye(K, D, dtype=np.float32), None
    bank = FeatureBank.of(X, y, head=head)
    return whence.Effects(C=1e-3, tol=1e-3, show_progress=False).fit(features=bank)


ENTRIES: dict[str, tuple[Any, Callable[[Any, np.ndarray, np.ndarray], Any]]] = {
    "what_if": (dualda, lambda e, X, y: e.what_if(C=2e-3, training_features=X)),
    "update": (dualda, lambda e, X, y: e.update(remove=[3], features=X)),
    "wrong_labels": (dualda, lambda e, X, y: wrong_labels(e, features=FeatureBank.of(X, y))),
    "effect_of": (
        effects,
        lambda e, X, y: e.effect_of(features=X[:2], remove=[3], training_features=X),
    ),
    "stability": (dualda, lambda e, X, y: e.stability(X, halves=2)),
}


@pytest.mark.parametrize("outlier", [1.0, 1e4])
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", FOREIGN)
def test_features_of_another_set_are_refused(
    rng: np.random.Generator, entry: str, outlier: float, name: str
) -> None:
    fit, ask = ENTRIES[entry]
    X, y = features(outlier)
    explainer, other = fit(X, y), X.copy()
    FOREIGN[name](other, rng)
    with pytest.raises(InvalidInputError, match="of the training set that was fitted"):
        ask(explainer, other, y)


@pytest.mark.parametrize("outlier", [1.0, 1e4])
@pytest.mark.parametrize("entry", ENTRIES)
def test_rounding_is_no_other_set(entry: str, outlier: float) -> None:
    fit, ask = ENTRIES[entry]
    X, y = features(outlier)
    ask(fit(X, y), X * (1 + np.float32(1e-5)), y)


class Unlisted(torch.utils.data.Dataset[Any]):
    """A set that does not list its labels."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.pairs = list(zip(x, y.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, i: int) -> Any:
        return self.pairs[i]


class Claiming(Unlisted):
    """Lists the labels that were fitted, and has others."""

    @property
    def targets(self) -> list[int]:
        return (torch.arange(len(self)) % K).tolist()


@pytest.mark.parametrize("form", [lambda x, y: (x, y), torch.utils.data.TensorDataset, Unlisted])
def test_load_compares_every_label(tmp_path: Path, rng: np.random.Generator, form: Any) -> None:
    x, y = arrays()
    whence.DualDA(C=1e-2, tol=1e-2, show_progress=False).fit(plain(), (x, y)).save(tmp_path / "x.whence")
    whence.load(tmp_path / "x.whence", plain(), form(x, y))
    place = int(rng.integers(len(y)))
    y[place] = (y[place] + 1) % K
    with pytest.raises(InvalidInputError, match=f"sample {place} has"):
        whence.load(tmp_path / "x.whence", plain(), form(x, y))


def test_load_refuses_other_inputs_next_to_an_outlier(tmp_path: Path) -> None:
    x, y = arrays()
    x[3] *= 1e4
    model: nn.Module = plain()
    whence.DualDA(C=1e-2, tol=1e-2, show_progress=False).fit(model, (x, y)).save(tmp_path / "x.whence")
    whence.load(tmp_path / "x.whence", model, (x, y))
    other = x.flip(0)
    with pytest.raises(InvalidInputError, match="'data' must be"):
        whence.load(tmp_path / "x.whence", model, (other, y.flip(0)))
    with pytest.raises(InvalidInputError, match="'data' must be"):
        whence.load(tmp_path / "x.whence", model, (1.2 * x, y))


@pytest.mark.parametrize("options", [{"dtype": "float16"}, {"autocast": "bfloat16"}, {"batch_size": 7}])
def test_precision_is_no_other_set(options: dict[str, Any]) -> None:
    x, y = arrays()
    explainer = whence.DualDA(metric="raw", C=1e-3, tol=1e-3, show_progress=False).fit(plain(), (x, y))
    bank = extract(plain(), (x, y), show_progress=False, **options)
    explainer.what_if(C=2e-3, training_features=np.asarray(bank.features, np.float32))
