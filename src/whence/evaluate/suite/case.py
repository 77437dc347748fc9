"""A method in a scene, and what all methods there share."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from whence.attributors import Attributor
from whence.core.arrays import Doubles, Ints
from whence.evaluate.metrics.resources import Measured, measure
from whence.evaluate.scenes.retrain import retrain
from whence.evaluate.scenes.views import subset, view
from whence.evaluate.scenes.workshop import Scene
from whence.evaluate.suite.results import Row

if TYPE_CHECKING:
    from whence.evaluate.suite.protocol import Method, Protocol

T = TypeVar("T")


class Bench:
    """A scene with what its cases share: the protocol, models that are trained anew, and what is made once.

    Parameters
    ----------
    scene
        The training set, the tests and the model.
    protocol
        That is run.
    cache_dir
        Keeps retrained models.
    show_progress
        Show how many models are left.
    """

    def __init__(self, scene: Scene, protocol: Protocol, cache_dir: Path, show_progress: bool) -> None:
        self.scene, self.protocol = scene, protocol
        self.cache_dir, self.show_progress = cache_dir, show_progress
        self._made: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Make something under a name, the first time it is asked for."""
        if name not in self._made:
            self._made[name] = make()
        found: T = self._made[name]
        return found

    def retrained(self, parts: list[Ints], seeds: int) -> Iterator[nn.Module]:
        """Give models trained on parts of the training set, for every part and seed, seed after seed."""
        everything = view(self.scene.data, show_progress=False)
        views = [subset(everything, rows) for rows in parts]
        # Seeds that the model which is explained was not trained with.
        jobs = [(part, 1 + seed) for seed in range(seeds) for part in views]
        trainer = self.scene.trainer
        runs = retrain(
            trainer.on_view,
            jobs,
            trainer.build(0),
            self.cache_dir,
            config=trainer.config,
            show_progress=self.show_progress,
        )
        return (run.model() for run in runs)

    def fit(self, kind: type[Attributor], options: Mapping[str, Any]) -> Attributor:
        """Make and fit an attributor, with the protocol's seed and threads where it takes them."""
        taken = inspect.signature(kind).parameters
        protocol = self.protocol
        common = {"seed": protocol.seed, "show_progress": False, "n_threads": protocol.threads}
        given = {name: value for name, value in {**common, **options}.items() if name in taken}
        extra: dict[str, Any] = {}
        if kind.limits.needs_checkpoints:
            trained = self.scene.trained
            extra = {"checkpoints": trained.checkpoints, "learning_rates": trained.learning_rates}
        return kind(**given).fit(self.scene.trained.model, self.scene.data, **extra)


class Case:
    """A method in a scene, fitted when it is first needed, and then once.

    Parameters
    ----------
    bench
        The scene, with what all methods share.
    method
        The method.
    options
        Of its constructor, with those that were chosen.

    Attributes
    ----------
    cpu_seconds : of fitting and explaining, once ``measured`` was asked for
    """

    cpu_seconds: float

    def __init__(self, bench: Bench, method: Method, options: Mapping[str, Any]) -> None:
        self.bench, self.method, self.options = bench, method, dict(options)

    @property
    def scene(self) -> Scene:
        """The training set, the tests and the model."""
        return self.bench.scene

    def with_options(self, options: Mapping[str, Any]) -> Case:
        """Give the same case with some options changed."""
        return Case(self.bench, self.method, {**self.options, **options})

    def fit(self) -> Attributor:
        """Make and fit the attributor."""
        return self.bench.fit(self.method.kind, self.options)

    @cached_property
    def measured(self) -> Measured:
        """The fitted attributor, its scores for the class that the model predicts, and what both cost."""
        started = time.process_time()
        found = measure(self.fit, self.scene.tests, torch.from_numpy(self.scene.explained))
        self.cpu_seconds = time.process_time() - started
        return found

    @cached_property
    def scores(self) -> Doubles:
        """Scores (test, train)."""
        scores: Doubles = self.measured.scores.cpu().numpy()
        return scores

    @cached_property
    def attributor(self) -> Attributor:
        """The fitted attributor."""
        return self.measured.attributor if "measured" in self.__dict__ else self.fit()

    def row(
        self, metric: str, quantity: str, value: float | None, x: float | None = None, note: str = ""
    ) -> Row:
        """Give a row of results."""
        return Row(metric, self.method.key, quantity, x, value, note)

    def rows_of(self, metric: str, values: Doubles, note: str = "") -> list[Row]:
        """Give rows for a metric that is a mean over tests or samples: the mean, and each."""
        each = [self.row(metric, "each", float(v), i) for i, v in enumerate(values)]
        return [self.row(metric, "score", float(values.mean()), note=note), *each]

    def resources(self) -> list[Row]:
        """What the method cost."""
        found = vars(self.measured.resources) | {"cpu_seconds": self.cpu_seconds}
        # CPU-seconds are of both; other jobs on the machine do not count.
        seconds = ("fit_seconds", "explain_seconds", "cpu_seconds")
        names = (*seconds, "cache_bytes", "peak_bytes", "peak_device_bytes")
        return [self.row("resources", name, found[name]) for name in names if found[name] is not None]
