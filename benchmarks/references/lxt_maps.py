"""Maps of one transformer under one set of lxt's patches; runs in lxt's own environment.

``python -m benchmarks.references.lxt_maps folder name variant`` reads ``folder/name.safetensors`` and adds
the map to it. lxt's patches change classes for the whole process, hence a process for every variant.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tests.helpers.reference_models import SPECS, Reference, load_reference, vit
from torch import Tensor, nn
from transformers.activations import GELUActivation
from transformers.models.bert import modeling_bert
from transformers.models.gpt2 import modeling_gpt2
from transformers.models.llama import modeling_llama
from transformers.models.vit import modeling_vit

from benchmarks.references.cases import add_maps, features_of

# lxt's list of models reaches torch.nn through torchvision's vision transformer and needs nothing else of it.
# The stand-in comes after transformers, which would take it for torchvision itself.
for name in ("torchvision", "torchvision.models", "torchvision.models.vision_transformer"):
    sys.modules[name] = ModuleType(name)
sys.modules["torchvision.models"].vision_transformer = sys.modules[name]  # type: ignore[attr-defined]
sys.modules[name].nn = nn  # type: ignore[attr-defined]

from lxt.efficient import monkey_patch  # noqa: E402
from lxt.efficient.models import bert, gpt2, llama, vit_torch  # noqa: E402
from lxt.efficient.patches import (  # noqa: E402
    layer_norm_forward,
    non_linear_forward,
    patch_attention,
    patch_cp_attention,
    patch_method,
)
from lxt.efficient.rules import stop_gradient  # noqa: E402

Patches = dict[Any, Callable[[Any], bool]]
identity = partial(patch_method, non_linear_forward, keep_original=True)


def patch_cp_bert(module: ModuleType) -> bool:
    """Stop the gradient at queries and keys; lxt has no such patch for BERT."""
    attention = module.BertSelfAttention
    build = attention.__init__

    def init(self: nn.Module, *args: Any, **options: Any) -> None:
        build(self, *args, **options)
        for layer in (self.query, self.key):
            layer.register_forward_hook(lambda _, args, output: stop_gradient(output))

    attention.__init__ = init
    return True


def rename_for_old_vit(module: nn.Module, weights: dict[str, Tensor], *_: Any) -> None:
    """Return ViT's weights the names they had before transformers 5."""
    for key in list(weights):
        old = key
        for name, was in OLD_VIT_NAMES.items():
            old = old.replace(name, was)
        weights[old] = weights.pop(key)


def old_vit() -> nn.Module:
    model = vit()
    model.register_load_state_dict_pre_hook(rename_for_old_vit)
    return model


OLD_VIT_NAMES = {
    "vit.layers.": "vit.encoder.layer.",
    "attention.q_proj.": "attention.attention.query.",
    "attention.k_proj.": "attention.attention.key.",
    "attention.v_proj.": "attention.attention.value.",
    "attention.o_proj.": "attention.output.dense.",
    "mlp.fc1.": "intermediate.dense.",
    "mlp.fc2.": "output.dense.",
}
SPECS["vit"] = replace(SPECS["vit"], build=old_vit)

outside: Patches = {nn.LayerNorm: partial(patch_method, layer_norm_forward), GELUActivation: identity}
VARIANTS: dict[str, dict[str, tuple[str, ModuleType, Patches]]] = {
    "llama": {
        "attnlrp": ("llama.attnLRP", modeling_llama, llama.attnLRP),
        "cp": (
            "llama.attnLRP with patch_cp_attention for patch_attention",
            modeling_llama,
            llama.attnLRP | {modeling_llama: patch_cp_attention},
        ),
        "cp_gate": ("llama.cp_LRP (which stops the gradient at the gate too)", modeling_llama, llama.cp_LRP),
    },
    "gpt2": {
        "attnlrp": ("gpt2.attnLRP", modeling_gpt2, gpt2.attnLRP),
        "cp": ("gpt2.cp_LRP", modeling_gpt2, gpt2.cp_LRP),
    },
    "bert": {
        "attnlrp": ("bert.attnLRP", modeling_bert, bert.attnLRP),
        "cp": (
            "own map: layer_norm_forward, non_linear_forward on GELU and tanh, stop_gradient on query, key",
            modeling_bert,
            outside | {nn.Tanh: identity, modeling_bert: patch_cp_bert},
        ),
    },
    "vit": {
        "attnlrp": (
            "own map: layer_norm_forward, non_linear_forward on GELU, patch_attention",
            modeling_vit,
            outside | {modeling_vit: patch_attention},
        ),
        "cp": (
            "own map: layer_norm_forward, non_linear_forward on GELU, patch_cp_attention",
            modeling_vit,
            outside | {modeling_vit: patch_cp_attention},
        ),
    },
    "vit_torch": {"cp": ("vit_torch.cp_LRP", vit_torch.vision_transformer, vit_torch.cp_LRP)},
}


def attribute(reference: Reference) -> tuple[Tensor, dict[str, Tensor]]:
    """Features, and relevance (value times gradient) at the embeddings and, of images, at the pixels.

    lxt carries relevance over activation, so what starts at the features is R / features.
    """
    leaves: dict[str, Tensor] = {}

    def keep(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        # Token embeddings come from no carrier; patch embeddings do, and stay connected to the pixels.
        leaves[""] = output if output.grad_fn is not None else output.detach().requires_grad_()
        return leaves[""]

    inputs = {"x": reference.inputs} if isinstance(reference.inputs, Tensor) else dict(reference.inputs)
    for key in {"x", "pixel_values"} & set(inputs):
        inputs[key] = leaves["_pixels"] = inputs[key].clone().requires_grad_()
    reference.model.requires_grad_(False)
    reference.model.get_submodule(reference.embedding or "").register_forward_hook(keep)
    features = features_of(reference.model, reference.layer, inputs)
    start = reference.relevance / features.detach()
    gradients = torch.autograd.grad(features, list(leaves.values()), start)
    values = (leaf.detach() * gradient for leaf, gradient in zip(leaves.values(), gradients, strict=True))
    return features.detach(), dict(zip(leaves, values, strict=True))


def main(folder: Path, name: str, variant: str) -> None:
    """Compute one variant's maps for one model."""
    torch.set_num_threads(1)
    text, module, patches = VARIANTS[name][variant]
    warnings.filterwarnings("error", message=".*(Failed to patch|already patched)")
    monkey_patch(module, patches)
    reference = load_reference(name, folder)
    features, maps = attribute(reference)
    add_maps(
        folder / f"{name}.safetensors",
        features,
        {variant + place: value for place, value in maps.items()},
        {variant: f"lxt.efficient, {text}; no epsilon at linear layers, 1e-10 at activations"},
        ["lxt", "transformers", "torch"],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
