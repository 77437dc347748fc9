"""Maps of one convolutional model by zennit; runs in zennit's own environment.

``python -m benchmarks.references.zennit_maps folder name`` reads ``folder/name.safetensors`` and adds
the maps to it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import torch
from tests.helpers.reference_models import BasicBlock, Reference, load_reference
from torch import Tensor, nn

from benchmarks.references.cases import add_maps

# zennit needs torchvision's residual blocks for their type alone. With ours in their place, its canonizer for
# ResNets makes the sums of our blocks modules of their own, as it does for torchvision's.
for name in ("torchvision", "torchvision.models", "torchvision.models.resnet"):
    sys.modules[name] = ModuleType(name)
resnet = sys.modules["torchvision.models.resnet"]
resnet.BasicBlock, resnet.Bottleneck = BasicBlock, type("Bottleneck", (nn.Module,), {})  # type: ignore[attr-defined]

from zennit.composites import (  # noqa: E402
    EpsilonPlus,
    EpsilonPlusFlat,
    LayerMapComposite,
    MixedComposite,
    NameMapComposite,
    layer_map_base,
)
from zennit.core import Composite  # noqa: E402
from zennit.rules import Epsilon, Flat  # noqa: E402
from zennit.torchvision import ResNetCanonizer  # noqa: E402
from zennit.types import Linear  # noqa: E402

COMPOSITES = {
    "epsilon_plus_flat": (
        "EpsilonPlusFlat(), epsilon and stabilizer 1e-6",
        lambda: EpsilonPlusFlat(canonizers=[ResNetCanonizer()]),
    ),
    "epsilon_plus_flat_0.1": (
        "EpsilonPlusFlat(epsilon=0.1, stabilizer=0.1)",
        lambda: EpsilonPlusFlat(epsilon=0.1, stabilizer=0.1, canonizers=[ResNetCanonizer()]),
    ),
    "epsilon_plus_flat_two": (
        "EpsilonPlus(), Flat() on the first two convolutions, epsilon and stabilizer 1e-6",
        lambda: MixedComposite(
            [NameMapComposite([(("0", "2"), Flat())]), EpsilonPlus()], canonizers=[ResNetCanonizer()]
        ),
    ),
    "epsilon_plus": (
        "EpsilonPlus(), epsilon and stabilizer 1e-6",
        lambda: EpsilonPlus(canonizers=[ResNetCanonizer()]),
    ),
    "epsilon": (
        "Epsilon() on linear and convolutional layers, layer_map_base() elsewhere, all 1e-6",
        lambda: LayerMapComposite([*layer_map_base(), (Linear, Epsilon())], canonizers=[ResNetCanonizer()]),
    ),
}


def attribute(reference: Reference, composite: Composite) -> tuple[Tensor, Tensor]:
    """Features, and relevance of the pixels; zennit carries relevance itself instead of gradients."""
    x = reference.inputs.clone().requires_grad_()
    with composite.context(reference.model) as extractor:
        features = extractor(x)
        (relevance,) = torch.autograd.grad(features, x, reference.relevance)
    return features.detach(), relevance


def put_eps_into_variance(model: nn.Module) -> None:
    """Make BatchNorm's eps part of its variance.

    zennit merges a BatchNorm into the layer before and leaves it behind with mean 0, variance 1 and its eps,
    so that it still divides by sqrt(1 + eps). With eps = 0 what is left behind is the identity.
    """
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_var += module.eps  # type: ignore[operator]
            module.eps = 0.0


def main(folder: Path, name: str) -> None:
    """Compute all composites' maps for one model."""
    torch.set_num_threads(1)
    reference = load_reference(name, folder)
    put_eps_into_variance(reference.model)
    reference.model.set_submodule(reference.layer, nn.Identity())
    chosen = dict(COMPOSITES)
    if name != "vgg":
        del chosen["epsilon_plus_flat_two"]  # which names its layers
    maps = {}
    for key, (_, composite) in chosen.items():
        features, maps[key] = attribute(reference, composite())
    described = {key: f"zennit {text}; ResNetCanonizer" for key, (text, _) in chosen.items()}
    add_maps(folder / f"{name}.safetensors", features, maps, described, ["zennit", "torch"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
