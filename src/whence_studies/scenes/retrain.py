"""Models trained on perturbed data, each once, cached by a fingerprint."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from whence import engine as engines
from whence.core import progress, store
from whence.core.cache import Cache, Slot
from whence.core.checks import check_callable, check_flag, check_is, check_seed, shown
from whence.core.display import displayed
from whence.core.fingerprint import Digest, key_of, source
from whence.data import TrainingSet
from whence.data.items import split
from whence.data.sources import Columns
from whence.engine import Engine, Outcome
from whence.errors import InvalidInputError, StoreError, WhenceError
from whence_studies.scenes.views import View, view
from whence_studies.scenes.weights import load_weights, save_weights

TrainFn = Callable[[View, int], nn.Module]
MODELS = "Models"
"""Name of this progress for listeners of ``whence.core.progress``."""

_MODULES = (
    "whence.data",
    *(f"whence_studies.scenes.{name}" for name in ("loops", "perturb", "retrain", "views")),
)
"""Modules whose code a training can depend on."""


class RetrainingWarning(UserWarning):
    """A model could not be trained; the others were trained."""


@displayed("seed", "seconds", "cached", "error")
@dataclass(frozen=True, eq=False)
class Run:
    """One training run.

    Attributes
    ----------
    seed : seed of the training
    path : file of the weights
    seconds : duration of the training, also for a cached model; 0 if it failed
    cached : whether the model was in the cache
    error : why training failed, in one line; None if it did not
    details : the traceback of the error
    """

    seed: int
    path: Path
    seconds: float
    cached: bool
    error: str | None
    details: str | None
    _architecture: nn.Module

    def model(self) -> nn.Module:
        """Load the trained model in eval mode; each call returns a new copy."""
        if self.error is not None:
            raise WhenceError(f"This model could not be trained: {self.error}. Fix the cause and retrain.")
        return load_weights(self.path, self._architecture)


def retrain(
    train_fn: TrainFn,
    jobs: Iterable[tuple[Any, int]],
    model: nn.Module,
    cache_dir: str | os.PathLike[str],
    *,
    config: Mapping[str, Any] | None = None,
    engine: str | Engine | None = None,
    threads: int | None = None,
    show_progress: bool = True,
) -> list[Run]:
    """Train a model on each of several data sets; models that were trained before are loaded.

    Each model is saved as soon as it is trained, so that a killed process resumes after the last one. A
    training that fails causes a warning and is tried again in the next call; the others continue.

    The cache key has the code of ``train_fn`` with the constants, functions and enclosed values it uses from
    its own module, ``config``, samples and labels with all perturbations, the seed, and the names and shapes
    of the weights. Put other dependencies of training, such as code in other modules, into ``config``.

    Parameters
    ----------
    train_fn
        ``train_fn(dataset, seed)`` returns the trained model. The data set is a ``View``: a torch ``Dataset``
        with ``labels``. Torch is seeded with ``seed`` before.
    jobs
        Pairs of data, as for ``view``, and a seed.
    model
        A model of the same architecture; its weights do not matter.
    cache_dir
        Folder for the weights, as safetensors; loading runs no code from it.
    config
        What training depends on besides the code and the data, as JSON-serialisable values.
    engine
        Where trainings run, as for ``whence.engine.run``: one after another in this process, or in parallel
        with ``"processes"``, which requires a picklable function and data. The models are the same.
    threads
        Threads of torch in each training; None for as many as now. Small models train fastest with 1, in one
        process per core. Another number of threads may change the last bits of the weights.
    show_progress
        Show a progress bar.

    Returns
    -------
    One ``Run`` per job, in order.

    Warns
    -----
    RetrainingWarning
        For each model that could not be trained, with the cause.
    """
    show_progress = check_flag("show_progress", show_progress)
    check_callable("train_fn", train_fn, "a function of a data set and a seed that returns the trained model")
    check_is("model", model, nn.Module, "an nn.Module of the architecture")
    cache = Cache(cache_dir)
    tasks = _tasks(train_fn, jobs, model, cache, config)
    cache.make()
    seconds_of = {task.path: _seconds(task.path) for task in tasks}
    # A model that is requested several times is trained once.
    missing = list({task.path: task for task in tasks if seconds_of[task.path] is None}.values())
    # One function for all tasks, so that it and shared data are sent to processes once.
    train = partial(_train, train_fn, missing)
    ended: dict[Path, Outcome] = {}
    title = f"training models ({len(tasks) - len(missing)} cached)"
    progress.report(MODELS, 0, len(tasks))
    with progress.bar(title, len(missing), "models", show=show_progress and bool(missing)) as watched:
        progress.report(MODELS, len(tasks) - len(missing), len(tasks))
        for outcome in engines.run(train, range(len(missing)), engine, threads=threads):
            ended[missing[outcome.place].path] = outcome
            failed = sum(outcome_so_far.error is not None for outcome_so_far in ended.values())
            watched.set_postfix_str(f"{failed} failed" if failed else "", refresh=False)
            watched.update()
            progress.report(MODELS, len(tasks) - len(missing) + len(ended), len(tasks))
    runs = []
    # Warnings come after all trainings, so that a warning that is made an error stops none.
    for number, task in enumerate(tasks):
        end, cached = ended.get(task.path, Outcome(number, seconds_of[task.path])), task.path not in ended
        error = None if end.error is None else f"{type(end.error).__name__}: {end.error}"
        runs.append(Run(task.seed, task.path, end.value or 0.0, cached, error, end.details, model))
        if error is not None:
            warnings.warn(f"Job {number} could not be trained: {error}", RetrainingWarning, stacklevel=2)
    return runs


@dataclass(frozen=True, eq=False)
class _Task:
    """One training: its data, its seed, and its place in the cache."""

    data: View
    seed: int
    slot: Slot

    @property
    def path(self) -> Path:
        """The file of the weights."""
        return self.slot.path / "weights.safetensors"


def _tasks(
    train_fn: TrainFn,
    jobs: Iterable[tuple[Any, int]],
    model: nn.Module,
    cache: Cache,
    config: Mapping[str, Any] | None,
) -> list[_Task]:
    try:
        settings = json.dumps(dict(config or {}), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"'config' must be a JSON-serialisable mapping. Got {error}.") from error
    kinds = [[name, str(t.dtype), list(t.shape)] for name, t in model.state_dict().items()]
    common = {
        "code": code_fingerprint(train_fn),
        "whence": source(*_MODULES),
        "config": settings,
        "weights": key_of(kinds),
    }
    tasks: list[_Task] = []
    contents: dict[int, str] = {}
    for job in jobs if isinstance(jobs, Iterable) else ():
        if not isinstance(job, tuple | list) or len(job) != 2:
            raise InvalidInputError(f"'jobs' must hold pairs of data and a seed. Got {shown(job)}.")
        data, seed = job
        seen, seed = view(data), check_seed(seed)
        known = id(seen.samples.source)
        if known not in contents:  # ids are unique: the tasks keep their data alive
            contents[known] = digest_inputs(seen.samples)
        parts = {**common, "data": digest_samples(seen.samples, contents[known]), "seed": str(seed)}
        tasks.append(_Task(seen, seed, cache.slot("model", parts)))
    if not tasks:
        raise InvalidInputError("'jobs' must hold at least one pair of data and a seed. Got none.")
    return tasks


def _train(train_fn: TrainFn, tasks: list[_Task], number: int) -> float:
    """Train one model and save its weights; return the seconds it took."""
    task = tasks[number]
    with task.slot.locked():
        seconds = _seconds(task.path)
        if seconds is not None:  # another process has trained it in the meantime
            return seconds
        started = time.perf_counter()
        with torch.random.fork_rng():
            torch.manual_seed(task.seed)
            model: Any = train_fn(task.data, task.seed)
        if not isinstance(model, nn.Module):
            raise TypeError(f"'train_fn' must return the trained model. Got {type(model).__name__}.")
        seconds = time.perf_counter() - started
        title = ", ".join([f"model trained with seed {task.seed}", *task.data.history])
        with task.slot.filling(title):
            save_weights(task.path, model.state_dict(), {"seconds": seconds})
        return seconds


def _seconds(path: Path) -> float | None:
    """Return the seconds that a saved model took to train; None if it is missing or damaged."""
    try:
        return float(store.read(path)[1]["seconds"])
    except (FileNotFoundError, StoreError, KeyError, TypeError, ValueError):
        return None


def code_fingerprint(function: Callable[..., Any]) -> str:
    """Return the fingerprint of a function's code and of what it uses; for a method without its object.

    This includes enclosed values, and constants, functions and classes of the user's own modules. The caller
    passes other dependencies, such as files that it reads, in ``config``.
    """
    return Digest().of(getattr(function, "__func__", function))


def digest_inputs(samples: TrainingSet) -> str:
    """Return the digest of the inputs of all samples."""
    if isinstance(samples.source, Columns):
        return key_of(samples.source.inputs)
    return key_of([key_of(split(samples.source[i])[0]) for i in range(len(samples.source))])


def digest_samples(samples: TrainingSet, inputs: str) -> str:
    """Return the digest of samples, labels and marks, given the digest of the inputs."""
    places = np.arange(len(samples)) if samples.places is None else samples.places
    return key_of([inputs, places, samples.every_label(show_progress=False), *map(list, samples.marks)])
