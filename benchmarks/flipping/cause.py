"""Why a larger ε lowers areas: where it acts, on which units, and in which units it is measured.

Made on tests that rules are chosen by, never on those that the choice is confirmed on.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.flipping import images
from benchmarks.flipping.candidates import PositiveOutputs
from whence import DualDA
from whence.model.extractor import Extractor, find_head
from whence.relevance import Rules
from whence.relevance.lrp import trace
from whence.relevance.presets import EPSILON_PLUS_FLAT
from whence.relevance.primitives import Layer, Stabiliser
from whence.relevance.rules import Epsilon, Flat, Plus, SharingRule
from whence_studies import explain_pairs

EPSILON, TINY = 0.25, 1e-6
CELLS = (("mean", 1), ("blur", 4))
AROUND = "blocks.1.around"


class At(SharingRule):
    """A rule with an ε of its own."""

    name = "at"

    def __init__(self, rule: SharingRule, epsilon: float) -> None:
        self.rule, self.epsilon = rule, epsilon

    def back(self, layer: Layer, c: Tensor, z: Tensor, x: Tensor, epsilon: Stabiliser) -> Tensor:
        """Take its own ε."""
        return self.rule.back(layer, c, z, x, self.epsilon)


class FlatAt(Flat):
    """The flat rule with an ε of its own."""

    name = "flat_at"

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def spread(self, layer: Layer, R: Tensor, x: Tensor, mask: Tensor, epsilon: float) -> Tensor:
        """Take the rule's own ε."""
        return super().spread(layer, R, x, mask, self.epsilon)


def excitation(layer: Layer, x: Tensor) -> Tensor:
    """z⁺, the positive part of a layer's outputs."""
    bias = None if layer.bias is None else layer.bias.clamp(min=0)
    above = layer.apply(x.clamp(min=0), layer.weight.clamp(min=0), bias)
    return above + layer.apply(x.clamp(max=0), layer.weight.clamp(max=0))


class Excited(Plus):
    """The plus rule without the outputs whose positive part is below a threshold."""

    name = "excited"

    def __init__(self, least: float) -> None:
        self.least = least

    def back(self, layer: Layer, c: Tensor, z: Tensor, x: Tensor, epsilon: Stabiliser) -> Tensor:
        """Drop c of weakly excited outputs."""
        return super().back(layer, c * (excitation(layer, x) >= self.least), z, x, epsilon)


class Recording(Plus):
    """The plus rule, which notes what it does to relevance."""

    name = "recording"

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}

    def back(self, layer: Layer, c: Tensor, z: Tensor, x: Tensor, epsilon: Stabiliser) -> Tensor:
        """Note how much relevance lies on which outputs, and how much there is at the inputs."""
        found = super().back(layer, c, z, x, epsilon)
        R, above = (c * z).abs(), excitation(layer, x)
        total = float(R.sum())
        self.seen = {
            "median z⁺": float(above.median()),
            "relevance with z⁺ < 0.25": float(R[above < EPSILON].sum()) / total,
            "relevance with z < 0": float(R[z < 0].sum()) / total,
            "largest ratio of z to z⁺ with relevance": float((z.abs() / above.clamp(min=TINY))[R > 0].max()),
            "relevance at the inputs, of that at the outputs": float((found * x).abs().sum()) / total,
        }
        return found


def rules(
    dense: float = TINY,
    convolution: Any = None,
    first: float = TINY,
    sums: float = TINY,
    layers: Mapping[str, Any] | None = None,
) -> Rules:
    """Make the default rules with another ε in some places."""
    plus = At(Plus(), TINY) if convolution is None else convolution
    return Rules(At(Epsilon(), dense), plus, first=FlatAt(first), epsilon=sums, layers=layers or {})


def run() -> None:
    """Print where ε acts on MNIST and CIFAR-10, and what it does on a network in other units."""
    places: dict[str, Any] = {
        "plus, flat": EPSILON_PLUS_FLAT,
        **{f"ε = {e:g} everywhere": rules(e, At(Plus(), e), e, e) for e in (0.05, EPSILON, 1.0, 4.0, 16.0)},
        "0.25 in dense layers only": rules(dense=EPSILON),
        "0.25 in convolutions only": rules(convolution=At(Plus(), EPSILON)),
        "0.25 in the first layer only": rules(first=EPSILON),
        "0.25 in sums and means only": rules(sums=EPSILON),
        "no ε, without outputs with z⁺ < 0.25": rules(convolution=Excited(EPSILON)),
        "no ε, without outputs below 0": rules(convolution=PositiveOutputs()),
    }
    digits = images.digits(slice(0, 30))
    compare("MNIST", digits, places)
    larger = copy.deepcopy(digits.model)
    rescale(larger.features[3], larger.features[7], 10.0)
    by_ten: dict[str, Any] = {
        f"ε = {e:g} in convolutions": rules(convolution=At(Plus(), e)) for e in (TINY, 0.025, EPSILON, 2.5)
    }
    compare("MNIST", digits, by_ten)
    compare("MNIST, the same function with outputs of the second convolution ten times as large",
            digits._replace(model=larger), by_ten)  # fmt: skip
    record("MNIST", digits, ["features.3"])
    photos = images.photos(slice(0, 20))
    others = rules(convolution=At(Plus(), EPSILON), layers={AROUND: At(Plus(), TINY)})
    compare("CIFAR-10", photos, {
        **places,
        f"0.25 in {AROUND} only": rules(layers={AROUND: At(Plus(), EPSILON)}),
        f"0.25 in convolutions but {AROUND}": others,
    })  # fmt: skip
    names = [name for name, module in photos.model.named_modules() if isinstance(module, nn.Conv2d)]
    record("CIFAR-10", photos, names[1:])


@torch.no_grad()
def rescale(layer: nn.Module, following: nn.Module, factor: float) -> None:
    """Make the outputs of a layer before a ReLU larger, and the next layer's weights smaller."""
    layer.weight.mul_(factor)
    layer.bias.mul_(factor)
    following.weight.div_(factor)


def compare(name: str, case: images.Case, methods: Mapping[str, Any]) -> None:
    """Print mean areas of the first method, and how far others are from it; = where they are tied."""
    explainer = DualDA(show_progress=False).fit(case.model, (case.images, case.labels))
    pairs = explain_pairs(explainer, case.tests, methods=methods)
    results = {
        f"{side}, {baseline}, {patch}×{patch}": pairs.flip(
            side, steps=case.steps, patch=patch, baseline=baseline, n_random=1
        )
        for side in ("test", "train")
        for baseline, patch in CELLS
    }
    constants = np.array([pair.lam * explainer.constant_**2 for pair in pairs.pairs])
    bias = (constants / next(iter(results.values())).scores).mean()
    print(f"\n**{name}**: {len(pairs.pairs)} pairs; the bias is {bias:.2f} of a score\n")
    print(f"| rules | {' | '.join(results)} |\n|---|{'---|' * len(results)}")
    for m, method in enumerate(methods):
        entries = []
        for result in results.values():
            change = f"{result.mean[m] - result.mean[0]:+.4f}{' =' if result.ties[m, 0] else ''}"
            entries.append(change if m else f"{result.mean[0]:.4f}")
        print(f"| {method} | {' | '.join(entries)} |", flush=True)


def record(name: str, case: images.Case, layers: list[str]) -> None:
    """Print what the plus rule does to the relevance of the predicted classes' logits, by layer."""
    notes: dict[str, Any] = {layer: Recording() for layer in layers}
    extractor = Extractor(case.model, find_head(case.model, case.tests[:1]))
    ((_, head),) = extractor.layers_of_head()
    flow = trace(extractor, case.tests, EPSILON_PLUS_FLAT.with_layers(notes))
    with torch.no_grad():
        flow.maps(head.weight[head(flow.features).argmax(1)])
    print(f"\n**{name}, the plus rule by layer**\n")
    heads = list(next(iter(notes.values())).seen)
    print(f"| layer | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    for layer, note in notes.items():
        print(f"| {layer} | {' | '.join(f'{value:.3g}' for value in note.seen.values())} |", flush=True)
