"""What an evaluation will cost, before it begins."""

from __future__ import annotations

from typing import NamedTuple

from whence.evaluate.scenes.kinds import Clean
from whence.evaluate.scenes.workshop import SceneSpec
from whence.evaluate.suite.protocol import Method, Protocol

# CPU-seconds a sample and step of training, on one thread; a text's head costs next to nothing.
_STEP = {
    "cnn": 1.2e-3,
    "narrow-cnn": 1.4e-4,
    "resnet8": 6.5e-4,
    "resnet18": 2.5e-2,
    "resnet50": 3e-1,
    "vgg16": 8e-1,
    "minilm-head": 2e-6,
    "smollm2-head": 2e-6,
    "minilm-block": 1.2e-2,
    "smollm2-block": 2.2e-2,
}
_OWN = 1e-3  # a guess for a network of the user's
# CPU-seconds of reading a text with a frozen language model.
_TEXT = {"minilm": 0.03, "smollm2": 0.2}
# How many times as long methods take with a block of a language model as with the narrow CNN.
_BLOCK = {"minilm-block": 45.0, "smollm2-block": 110.0}


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
    scale = _BLOCK.get(protocol.model.name, 1.0)
    seconds = max(0.05, scale * method.kind.limits.cost * (spec.train or 50_000) / 1_000)
    if found.chooses:
        for values in method.tune.values():
            seconds *= 1 + len(values)
    return seconds + found.trainings() * _training(protocol, spec)


def scene_seconds(protocol: Protocol, spec: SceneSpec, metrics: list[str]) -> float:
    """CPU-seconds of the trainings that all methods share."""
    several = spec.kind.trainings + _shared(protocol, metrics)
    seconds = several * _training(protocol, spec)
    reading = _TEXT.get(protocol.model.name.partition("-")[0])
    if reading is not None:
        everything = (spec.train or 2_000) + (spec.test or 0) + protocol.data.held_out
        # Of perturbed scenes the tests are read anew.
        seconds += (everything if isinstance(spec.kind, Clean) else spec.test or 0) * reading
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
    return max(0.03, spec.steps * recipe.batch_size * _STEP.get(recipe.name, _OWN))
