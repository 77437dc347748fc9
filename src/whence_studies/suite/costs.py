"""Estimates of an evaluation's cost, and its progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self

from tqdm.auto import tqdm

from whence.core.naming import call_with
from whence.core.progress import listening
from whence.gradients.bank import Kind
from whence_studies.scenes import networks
from whence_studies.scenes.retrain import MODELS
from whence_studies.suite.protocol import Method, Protocol

_FORWARD = 0.4  # share of the forward pass in the cost of a training sample
_LAST = 0.3  # maximum cost of a method for all layers that uses the last one
_AGAIN = 0.03  # cost of a method that reuses the gradients of another
_SCORING = 0.2  # share of the scores in the cost of curvature and scores per sample


class Item(NamedTuple):
    """A part of the plan: a description, the number of repetitions, and the CPU-seconds in all."""

    what: str
    times: int
    seconds: float


def cell_seconds(protocol: Protocol, metric: str, method: Method) -> float:
    """Estimate the CPU-seconds of a cell."""
    spec, measuring = protocol.scene(metric), protocol.metric(metric, method)
    seconds = max(0.05, _fit_seconds(protocol, method, spec.train or 50_000))
    choices = math.prod(map(len, method.tune.values())) if measuring.chooses and method.tune else 0
    fits = choices + measuring.fittings(method)
    # Metrics of one scene share a fit.
    together = [name for name in protocol.scenes()[spec] if protocol.takes_part(name, method)]
    seconds *= fits if metric == together[0] else max(fits - 1, 0)
    return max(0.05, seconds) + measuring.trainings() * training_seconds(protocol, metric)


def _fit_seconds(protocol: Protocol, method: Method, n: int) -> float:
    """Estimate the CPU-seconds of a fit on n samples and of the tests, without the shared features."""
    made, limits = call_with(method.kind, **method.options), method.kind.capabilities
    if "last" in (method.options.get("params"), method.options.get("layers")):
        return min(limits.cost, _LAST) * n / 1_000
    if limits.last_layer_only or getattr(made, "params", None) == "last":
        return limits.cost * n / 1_000
    cost = limits.cost * (protocol.model.checkpoints if limits.needs_checkpoints else 1)
    before = protocol.methods[: protocol.methods.index(method)]
    if (kind := _gradients(method)) is not None and kind in map(_gradients, before):
        cost = _AGAIN
    n_curvature = min(n, getattr(made, "n_samples", None) or n)
    return (
        networks.find(protocol.model.name).slower
        * cost
        * (n_curvature + _SCORING * (n - n_curvature))
        / 1_000
    )


def _gradients(method: Method) -> Kind | None:
    """Return the kind of gradients that a method shares with others, or None."""
    return getattr(call_with(method.kind, **method.options), "kind", None)


def scene_item(protocol: Protocol, metrics: list[str]) -> Item:
    """Count the models that all methods share in the scene of some metrics."""
    spec, network = protocol.scene(metrics[0]), networks.find(protocol.model.name)
    models = 1 + sum(protocol.metrics[metric].shared_trainings() for metric in metrics)
    seconds = models * training_seconds(protocol, metrics[0])
    explained = max(protocol.metrics[metric].fittings(protocol.methods[0]) for metric in metrics)
    seconds += explained * (spec.train or 50_000) * network.seconds * _FORWARD
    if network.texts is not None:
        everything = (spec.train or 2_000) + (spec.test or 0) + protocol.data.held_out
        # Perturbed scenes read the tests again.
        seconds += (everything if spec.of is None else spec.test or 0) * network.texts.seconds
    size = "all" if spec.train is None else f"{spec.train:,}"
    return Item(f"{spec.name} scene, {size} samples, {spec.steps:,} steps: models", models, seconds)


def scene_items(protocol: Protocol, metrics: list[str]) -> list[Item]:
    """List the work in the scene of some metrics, with its cost."""
    items = [scene_item(protocol, metrics)]
    for metric in metrics:
        methods = [method for method in protocol.methods if protocol.takes_part(metric, method)]
        costs = sum(cell_seconds(protocol, metric, method) for method in methods)
        items.append(Item(f"  {metric}: methods", len(methods), costs))
    return items


def scene_seconds(protocol: Protocol, metrics: list[str]) -> float:
    """Estimate the CPU-seconds of the scene of some metrics."""
    return sum(item.seconds for item in scene_items(protocol, metrics))


def plan(protocol: Protocol) -> list[Item]:
    """List the parts of the work, with their cost."""
    return [item for metrics in protocol.scenes().values() for item in scene_items(protocol, metrics)]


def training_seconds(protocol: Protocol, metric: str) -> float:
    """Estimate the CPU-seconds of training one model of a metric's scene."""
    recipe = protocol.model
    steps = protocol.scene(metric).steps
    seconds: float = max(0.03, steps * recipe.batch_size * networks.find(recipe.name).seconds)
    return seconds


class Meter:
    """Progress of a plan in planned seconds, most of which go into training models.

    Parameters
    ----------
    protocol
        The protocol that is run.
    show
        Whether to show a progress bar; otherwise one line is printed per tenth.
    say
        Function that prints these lines.
    """

    def __init__(self, protocol: Protocol, show: bool, say: Callable[[str], Any]) -> None:
        self.done, self.total = 0.0, sum(item.seconds for item in plan(protocol))
        self._say = None if show else say
        self._bar = tqdm(
            total=self.total,
            desc=protocol.name,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed} gone, {remaining} left",
            disable=not show,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    @property
    def share(self) -> float:
        """The share of the work that is done."""
        return self.done / self.total

    @contextmanager
    def part(self, seconds: float) -> Iterator[None]:
        """Run a part of the plan; at its end all of its seconds count as done."""
        end = self.done + seconds
        yield
        self._advance(end - self.done)

    @contextmanager
    def training(self, seconds: float) -> Iterator[None]:
        """Count ``seconds`` for every model that is trained or loaded inside the block."""
        before = 0

        def hear(what: str, done: int, total: int) -> None:
            nonlocal before
            if what == MODELS:
                self._advance((done - before) * seconds if done else 0.0)
                before = done

        with listening(hear):
            yield

    def _advance(self, seconds: float) -> None:
        seconds = max(0.0, min(seconds, self.total - self.done))
        tenths = int(10 * self.share)
        self.done += seconds
        self._bar.update(seconds)
        if self._say is not None and tenths < int(10 * self.share) < 10:
            self._say(f"{self.share:.0%} of the work is done")
