"""What an evaluation will cost, before it begins."""

from __future__ import annotations

from typing import NamedTuple

from whence.evaluate.scenes import networks
from whence.evaluate.scenes.kinds import Clean
from whence.evaluate.scenes.workshop import SceneSpec
from whence.evaluate.suite.protocol import Method, Protocol


class Item(NamedTuple):
    """A part of the plan: what, how often, and for how many CPU-seconds in all."""

    what: str
    times: int
    seconds: float


def takes_part(protocol: Protocol, metric: str, method: Method) -> bool:
    """Tell whether a method is measured by a metric."""
    found = protocol.metrics[metric]
    return (found.sweeps or not method.sweep) and found.applies(method)


def cell_seconds(protocol: Protocol, metric: str, method: Method) -> float:
    """CPU-seconds that a cell will take, roughly."""
    spec, found = SceneSpec.of(protocol, metric), protocol.metric(metric, method)
    slower = networks.find(protocol.model.name).slower
    seconds = max(0.05, slower * method.kind.limits.cost * (spec.train or 50_000) / 1_000)
    if found.chooses:
        for values in method.tune.values():
            seconds *= 1 + len(values)
    return seconds + found.trainings() * _training(protocol, spec)


def scene_seconds(protocol: Protocol, spec: SceneSpec, metrics: list[str]) -> float:
    """CPU-seconds of the trainings that all methods share."""
    several = spec.kind.trainings + _shared(protocol, metrics)
    seconds = several * _training(protocol, spec)
    texts = networks.find(protocol.model.name).texts
    if texts is not None:
        everything = (spec.train or 2_000) + (spec.test or 0) + protocol.data.held_out
        # Of perturbed scenes the tests are read anew.
        seconds += (everything if isinstance(spec.kind, Clean) else spec.test or 0) * texts.seconds
    return seconds


def plan(protocol: Protocol) -> list[Item]:
    """Say what will be done, and what it costs, part by part."""
    items = []
    for spec, metrics in groups(protocol).items():
        size = "all" if spec.train is None else f"{spec.train:,}"
        what = f"{spec.kind.name} scene, {size} samples, {spec.steps:,} steps: models"
        items.append(Item(what, 1 + _shared(protocol, metrics), scene_seconds(protocol, spec, metrics)))
        for metric in metrics:
            methods = [method for method in protocol.methods if takes_part(protocol, metric, method)]
            costs = sum(cell_seconds(protocol, metric, method) for method in methods)
            items.append(Item(f"  {metric}: methods", len(methods), costs))
    return items


def groups(protocol: Protocol) -> dict[SceneSpec, list[str]]:
    """Put the metrics that share a scene together, those first that choose options for all."""
    found: dict[SceneSpec, list[str]] = {}
    for metric in sorted(protocol.metrics, key=lambda name: not protocol.metrics[name].chooses):
        found.setdefault(SceneSpec.of(protocol, metric), []).append(metric)
    return found


def _shared(protocol: Protocol, metrics: list[str]) -> int:
    return sum(protocol.metrics[metric].shared_trainings() for metric in metrics)


def _training(protocol: Protocol, spec: SceneSpec) -> float:
    recipe = protocol.model
    return max(0.03, spec.steps * recipe.batch_size * networks.find(recipe.name).seconds)
