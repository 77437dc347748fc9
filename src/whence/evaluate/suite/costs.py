"""What an evaluation will cost, before it begins."""

from __future__ import annotations

from typing import NamedTuple

from whence.evaluate.scenes.workshop import SceneSpec
from whence.evaluate.suite.protocol import RANDOM, RETRAINING, Method, Protocol

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
# CPU-seconds of fitting and of explaining 200 tests, for 1,000 training samples and the narrow CNN.
_METHOD = {
    "dualda": 0.1,
    "representer": 0.2,
    "hingerp": 0.2,
    "similarity": 0.1,
    "influence": 0.1,
    "graddot": 0.5,
    "gradcos": 0.5,
    "tracin": 2.0,
    "trak": 1.5,
    "ekfac": 1.5,
    "lissa": 1.0,
    "arnoldi": 6.0,
    RANDOM: 0.0,
}
# CPU-seconds of reading a text with a frozen language model.
_TEXT = {"minilm": 0.03, "smollm2": 0.2}
# How many times as long methods take with a block of a language model as with the narrow CNN.
_BLOCK = {"minilm-block": 45.0, "smollm2-block": 110.0}
_NOT_SWEPT = ("sparsity", "faithfulness")
_DUALDA_ONLY = ("surrogate",)
_SURROGATES_ONLY = ("faithfulness",)


class Item(NamedTuple):
    """A part of the plan: what, how often, and for how many CPU-seconds in all."""

    what: str
    times: int
    seconds: float


def takes_part(method: Method, metric: str) -> bool:
    """Tell whether a method is measured by a metric."""
    if method.sweep and metric in _NOT_SWEPT:
        return False
    if metric in _DUALDA_ONLY:
        return method.name == "dualda"
    if metric in _SURROGATES_ONLY:
        return method.name in ("dualda", "representer", "hingerp")
    return True


def cell_seconds(protocol: Protocol, metric: str, method: Method) -> float:
    """CPU-seconds that a cell will take, roughly."""
    spec, options = SceneSpec.of(protocol, metric), protocol.options(metric, method)
    n = spec.train or 50_000
    scale = _BLOCK.get(protocol.recipe.name, 1.0)
    seconds = max(0.05, scale * _METHOD[method.name] * n / 1_000)
    if metric == "lds":
        for values in method.tune.values():
            seconds *= 1 + len(values)
    if metric in RETRAINING:
        seconds += len(options["fractions"]) * options["seeds"] * _training(protocol, spec)
    return seconds


def scene_seconds(protocol: Protocol, spec: SceneSpec, metrics: list[str]) -> float:
    """CPU-seconds of the trainings that all methods share."""
    several = len(dict(spec.options).get("shares", (1,))) + (spec.kind == "groups")
    seconds = several * _training(protocol, spec)
    reading = _TEXT.get(protocol.recipe.name.partition("-")[0])
    if reading is not None:  # perturbed tests are read anew
        texts = (
            (spec.train or 2_000) + (spec.test or 0) + protocol.held_out
            if spec.kind == "clean"
            else spec.test
        )
        seconds += (texts or 0) * reading
    if "lds" in metrics:
        options = protocol.metrics["lds"]
        seconds += (options["subsets"] + options["tuning"]) * options["seeds"] * _training(protocol, spec)
    return seconds


def plan(protocol: Protocol) -> list[Item]:
    """Say what will be done, and what it costs, part by part."""
    items = []
    for spec, metrics in groups(protocol).items():
        what = f"{spec.kind} scene, {_number(spec.train)} samples, {spec.steps:,} steps: models"
        count = 1 + ("lds" in metrics) * (
            sum(protocol.metrics.get("lds", {}).get(k, 0) for k in ("subsets", "tuning"))
            * protocol.metrics.get("lds", {}).get("seeds", 0)
        )
        items.append(Item(what, count, scene_seconds(protocol, spec, metrics)))
        for metric in metrics:
            methods = [method for method in protocol.methods if takes_part(method, metric)]
            costs = sum(cell_seconds(protocol, metric, method) for method in methods)
            items.append(Item(f"  {metric}: methods", len(methods), costs))
    return items


def groups(protocol: Protocol) -> dict[SceneSpec, list[str]]:
    """Put the metrics that share a scene together, LDS first, since it chooses options."""
    found: dict[SceneSpec, list[str]] = {}
    for metric in sorted(protocol.metrics, key=lambda name: name != "lds"):
        found.setdefault(SceneSpec.of(protocol, metric), []).append(metric)
    return found


def _training(protocol: Protocol, spec: SceneSpec) -> float:
    recipe = protocol.recipe
    return max(0.03, spec.steps * recipe.batch_size * _STEP.get(recipe.name, _OWN))


def _number(n: int | None) -> str:
    return "all" if n is None else f"{n:,}"
