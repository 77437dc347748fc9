"""Models trained on perturbed data, each of them once: kept on disk under the fingerprint of what it is."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from tqdm.auto import tqdm

from whence.core import store
from whence.core.checks import check_callable, check_count, check_flag, check_path, check_seed, shown
from whence.core.fingerprint import Digest, source
from whence.errors import InvalidInputError, StoreError, WhenceError
from whence.evaluate.scenes.training import load_weights
from whence.evaluate.scenes.views import view
from whence.evaluate.scenes.workers import Outcome, Task, TrainFn, outcomes


class RetrainingWarning(UserWarning):
    """A model could not be trained; the others were."""


_MODULES = ("perturb", "training", "views", "workers")  # whose code a training can depend on


@dataclass(frozen=True, eq=False)
class Run:
    """A model that was to be trained.

    Attributes
    ----------
    seed : of its training
    path : the file of its weights
    seconds : its training took; of a model from the cache, then
    cached : whether it was found and not trained now
    error : why it could not be trained, in a line; None where it was
    details : the whole traceback of that
    """

    seed: int
    path: Path
    seconds: float
    cached: bool
    error: str | None
    details: str | None
    _architecture: nn.Module

    def model(self) -> nn.Module:
        """Read the trained model, in eval mode; each call gives another copy."""
        if self.error is not None:
            raise WhenceError(f"This model could not be trained: {self.error}. Repair the cause and retrain.")
        return load_weights(self.path, self._architecture)


def retrain(
    train_fn: TrainFn,
    jobs: Iterable[tuple[Any, int]],
    model: nn.Module,
    cache_dir: str | os.PathLike[str],
    *,
    config: Mapping[str, Any] | None = None,
    workers: int = 1,
    show_progress: bool = True,
) -> list[Run]:
    """Train a model on each of several data sets, or read it where it was trained before.

    Each model is saved as soon as it is trained: when the process is killed, calling this again goes on after
    the last one. A training that fails is warned of and tried again next time; the others go on.

    A model is found again by the code of ``train_fn`` with the constants, functions and enclosed values it
    uses from its own module, by ``config``, by samples and labels with all perturbations, by the seed, and by
    the names and shapes of the weights. What else training depends on, such as code in other modules, belongs
    in ``config``.

    Parameters
    ----------
    train_fn
        ``train_fn(dataset, seed)`` gives the trained model. The data set is a ``View``: a torch ``Dataset``
        with ``labels``. Torch's random numbers are seeded with ``seed`` before.
    jobs
        Pairs of data, as for ``view``, and a seed.
    model
        A model of the architecture that ``train_fn`` gives; its weights do not matter.
    cache_dir
        Folder for the weights, as safetensors; nothing in it runs when it is read.
    config
        What makes trainings differ beside the code and the data; JSON must be able to hold it.
    workers
        Trainings at a time. One runs here. More run in processes with their share of the threads, which is
        worth it for small models that cannot use several threads, and some seconds of starting;
        ``train_fn`` must then be importable, and the data picklable. Models may differ in the last bits
        where the number of threads does.
    show_progress
        Show how many models are left, and for how long.

    Returns
    -------
    One run a job, in order.

    Warns
    -----
    RetrainingWarning
        For each model that could not be trained, with the cause.
    """
    workers = check_count("workers", workers)
    show_progress = check_flag("show_progress", show_progress)
    check_callable("train_fn", train_fn, "a function of a data set and a seed that gives the trained model")
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"'model' must be an nn.Module of the architecture. Got {shown(model)}.")
    folder = check_path("cache_dir", cache_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"'cache_dir' must be a folder that can be made. Got '{folder}' ({error.strerror})."
        ) from error
    tasks = _tasks(train_fn, jobs, model, folder, config)
    found = {task.path: _seconds(task.path) for task in tasks}
    # The same model may be asked for several times, and is trained once.
    missing = {task.path: task for task in tasks if found[task.path] is None}
    ended: dict[Path, Outcome] = {}
    title = f"training models ({len(tasks) - len(missing)} cached)"
    with tqdm(total=len(missing), desc=title, disable=not show_progress or not missing) as bar:
        for outcome in outcomes(train_fn, list(missing.values()), workers) if missing else ():
            ended[tasks[outcome.number].path] = outcome
            failed = sum(each.error is not None for each in ended.values())
            bar.set_postfix_str(f"{failed} failed" if failed else "", refresh=False)
            bar.update()
    # After all is done, so that a warning that is made an error stops no training.
    for outcome in ended.values():
        if outcome.error is not None:
            message = f"Job {outcome.number} could not be trained: {outcome.error}"
            warnings.warn(message, RetrainingWarning, stacklevel=2)
    return [_run(task, found[task.path], ended.get(task.path), model) for task in tasks]


def _tasks(
    train_fn: TrainFn,
    jobs: Iterable[tuple[Any, int]],
    model: nn.Module,
    folder: Path,
    config: Mapping[str, Any] | None,
) -> list[Task]:
    try:
        settings = json.dumps(dict(config or {}), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"'config' must be a mapping that JSON can hold: {error}.") from error
    common = {
        "code": code_fingerprint(train_fn),
        "whence": source(*(f"whence.evaluate.scenes.{module}" for module in _MODULES)),
        "config": settings,
        "weights": _digest([[name, str(t.dtype), list(t.shape)] for name, t in model.state_dict().items()]),
    }
    tasks: list[Task] = []
    contents: dict[int, str] = {}
    for number, job in enumerate(jobs if isinstance(jobs, Iterable) else ()):
        if not isinstance(job, tuple | list) or len(job) != 2:
            raise InvalidInputError(f"'jobs' must hold pairs of data and a seed. Got {shown(job)}.")
        data, seed = job
        seen, seed = view(data), check_seed(seed)
        known = id(seen.data)
        if known not in contents:  # which no other data takes: the tasks hold on to theirs
            contents[known] = seen.contents()
        parts = {**common, "data": seen.fingerprint(contents[known]), "seed": seed}
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
        manifest = {"kind": "retrained model", "parts": parts, "history": list(seen.history)}
        tasks.append(Task(number, seen, seed, folder / f"model-{key}.safetensors", manifest))
    if not tasks:
        raise InvalidInputError("'jobs' must hold at least one pair of data and a seed. Got none.")
    return tasks


def _seconds(path: Path) -> float | None:
    """Seconds that a saved model took to train; None where there is none, or its file is damaged."""
    try:
        return float(store.read(path)[1]["seconds"])
    except (FileNotFoundError, StoreError, KeyError, TypeError, ValueError):
        return None


def _run(task: Task, cached: float | None, outcome: Outcome | None, model: nn.Module) -> Run:
    if cached is not None:
        return Run(task.seed, task.path, cached, True, None, None, model)
    assert outcome is not None
    return Run(task.seed, task.path, outcome.seconds, False, outcome.error, outcome.details, model)


def code_fingerprint(function: Callable[..., Any]) -> str:
    """Identify a function by its code and by what it uses from around it; of a method, not its object.

    That is the values it encloses, and of the user's own modules the constants, functions and classes. What
    else the training depends on, the caller says in ``config``.
    """
    return _digest(getattr(function, "__func__", function))


def _digest(value: Any) -> str:
    digest = Digest()
    digest.add(value)
    return digest.hexdigest()
