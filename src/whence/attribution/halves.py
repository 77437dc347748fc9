"""Networks trained on random halves of a training set, for scores that average over retraining."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.utils.data import Subset

from whence import engine as engines
from whence.core.arrays import Ints
from whence.core.checks import (
    check_callable,
    check_count,
    check_flag,
    check_path,
    check_seed,
    check_that,
    shown,
)
from whence.core.files import replacing
from whence.core.fingerprint import Digest
from whence.core.progress import bar
from whence.data import as_training_set
from whence.engine import Engine
from whence.errors import InvalidInputError, ModelError, StoreError

Train = Callable[[nn.Module, Any], Any]

_MOST = 1_000  # models


def train_halves(
    make: Callable[[], nn.Module],
    train: Train,
    data: Any,
    n: int = 5,
    *,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    engine: str | Engine | None = None,
    threads: int | None = None,
    show_progress: bool = True,
) -> list[nn.Module]:
    """Train models on random halves of a training set by your own training function.

    Scores averaged over such models predict retraining better than those of one model:
    ``Ensemble(Effects(layers="tangent")).fit(models, data)``.

    Parameters
    ----------
    make
        Returns an untrained model. Torch is seeded with ``seed + i`` before, for model i.
    train
        ``train(model, half)`` trains the model in place. ``half`` has the form of ``data``, with half the
        samples.
    data
        The training set: a tuple of tensors or arrays, a ``datasets.Dataset``, or a map-style torch Dataset.
    n
        Number of models, at most 1,000.
    seed
        Seed of the halves and trainings.
    folder
        Where each model is saved as soon as it is trained. A run that was killed resumes there. Models of
        other data, code or seeds are refused.
    engine
        Where trainings run, as for ``whence.engine.run``: one after another, or in parallel with
        ``"processes"``, which pickles the arguments.
    threads
        Threads of torch in each training; None for as many as now.
    show_progress
        Show a progress bar.

    Returns
    -------
    The trained models in eval mode.

    Examples
    --------
    >>> import torch, whence
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> def train(model, half):
    ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ...     torch.nn.functional.cross_entropy(model(half[0]), half[1]).backward()
    ...     optimizer.step()
    >>> models = whence.train_halves(lambda: torch.nn.Linear(4, 2), train, (x, y), n=3, show_progress=False)
    >>> explainer = whence.Ensemble(whence.Effects(show_progress=False)).fit(models, (x, y))
    >>> explainer.attribute(x[:2]).shape
    torch.Size([2, 20])
    """
    check_callable("make", make, "a function that returns an untrained model")
    check_callable("train", train, "a function of a model and half of the data that trains the model")
    n, seed = check_count("n", n, most=_MOST), check_seed(seed)
    show = check_flag("show_progress", show_progress)
    n_train = _length(data)
    paths: list[Path | None] = [None] * n
    keys = [""] * n
    if folder is not None:
        paths = [check_path("folder", folder) / f"half-{i}.safetensors" for i in range(n)]
        keys = _keys(make, train, data, seed, n)
        check_path("folder", folder).mkdir(parents=True, exist_ok=True)
    halves = [
        np.sort(np.random.default_rng([seed, i]).permutation(n_train)[: n_train // 2]) for i in range(n)
    ]
    states: dict[int, Any] = {}
    for i, path in enumerate(paths):
        if path is not None and path.is_file():
            states[i] = _read(path, keys[i])
    missing = [i for i in range(n) if i not in states]
    piece = partial(_train, make, train, data, halves, seed, paths, keys)
    with bar("Training on halves", n, "models", show=show, initial=n - len(missing)) as watched:
        for outcome in engines.run(piece, missing, engine, threads=threads):
            if outcome.error is not None:
                raise outcome.error
            states[missing[outcome.place]] = outcome.value
            watched.update()
    with torch.random.fork_rng():
        models = [make().eval() for _ in range(n)]
    for i, model in enumerate(models):
        model.load_state_dict(states[i])
    return models


def _train(
    make: Callable[[], nn.Module],
    train: Train,
    data: Any,
    halves: list[Ints],
    seed: int,
    paths: list[Path | None],
    keys: list[str],
    i: int,
) -> dict[str, Tensor]:
    """Train model i, and save it where it is kept."""
    with torch.random.fork_rng():
        torch.manual_seed(seed + i)
        model = make()
        check_that(isinstance(model, nn.Module), "make", "return an nn.Module", type(model).__name__)
        train(model, _half(data, halves[i]))
    state = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    for name, tensor in state.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ModelError(f"Training on half {i} ended with weights that are not finite: {name!r}.")
    path = paths[i]
    if path is not None:
        with replacing(path) as file:
            file.write(save({name: tensor.contiguous() for name, tensor in state.items()}, {"key": keys[i]}))
    return state


def _half(data: Any, rows: Ints) -> Any:
    """Return some samples of a training set, in its own form."""
    if isinstance(data, tuple):
        return tuple(
            part[torch.from_numpy(rows)] if isinstance(part, Tensor) else part[rows] for part in data
        )
    return data.select(rows) if hasattr(data, "select") else Subset(data, rows.tolist())


def _length(data: Any) -> int:
    """Return the number of samples, or raise where halves cannot be taken of the data."""
    n = len(as_training_set(data))
    arrays = isinstance(data, tuple) and all(isinstance(part, Tensor | np.ndarray) for part in data)
    if not arrays and (isinstance(data, tuple) or not hasattr(data, "__getitem__") or isinstance(data, str)):
        raise InvalidInputError(
            "'data' must be a tuple of tensors or arrays with as many rows, a datasets.Dataset, or a "
            f"map-style Dataset. Got {shown(data)}."
        )
    check_that(n >= 2, "data", "have at least 2 samples", n)
    return n


def _keys(make: Any, train: Any, data: Any, seed: int, n: int) -> list[str]:
    """Return what each saved model depends on, or raise where that cannot be read completely."""
    digest = Digest()
    digest.add([make, train, data])
    if digest.unread:
        raise InvalidInputError(
            "'folder' must be None, since models are only reused if nothing changed, and these parts of "
            f"'make', 'train' or 'data' cannot be compared: {', '.join(digest.unread[:3])}."
        )
    return [f"{digest.hexdigest()} {seed} {i}" for i in range(n)]


def _read(path: Path, key: str) -> dict[str, Tensor]:
    """Read the weights of a model, or raise where they are of another training or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            of = (file.metadata() or {}).get("key")
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise StoreError(f"{path} is damaged ({error}). Delete it, and train again.") from error
    if of != key:
        raise StoreError(
            f"{path} is a model of other data, code or seeds. Name another 'folder', or delete the file."
        )
    return state
