"""Maps agree with those that zennit and lxt computed for the same models; see benchmarks/references."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from tests.helpers.reference_models import SPECS, Reference, load_reference
from whence.model.extractor import Extractor
from whence.relevance import Rules, lrp
from whence.relevance.presets import ATTN_LRP, ATTN_LRP_CP, EPSILON, EPSILON_PLUS_FLAT

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")

RULES = {
    "epsilon": EPSILON,
    "epsilon_plus": Rules(convolution="plus", epsilon=1e-6),
    "epsilon_plus_flat": EPSILON_PLUS_FLAT,
    "epsilon_plus_flat_0.1": replace(EPSILON_PLUS_FLAT, epsilon=0.1),
    "epsilon_plus_flat_two": EPSILON_PLUS_FLAT.with_layers({"0": "flat", "2": "flat"}),
    "attnlrp": ATTN_LRP,
    "attnlrp_pixels": ATTN_LRP,
    "cp": ATTN_LRP_CP,
    "cp_pixels": ATTN_LRP_CP,
}
IMAGES = {"vgg": 5, "vgg_bn": 4, "resnet": 4, "convs": 4}  # how many maps each has
TRANSFORMERS = {"llama": 2, "gpt2": 2, "bert": 2, "vit": 1, "vit_torch": 1}


@cache
def reference(name: str) -> Reference:
    if name in ("llama", "gpt2", "bert", "vit"):
        pytest.importorskip("transformers")
    return load_reference(name)


def comparable(found: Reference) -> dict[str, Tensor]:
    """The maps on inputs: of texts summed to one value per token, of images those on the pixels."""
    is_text = isinstance(found.inputs, dict) and "input_ids" in found.inputs
    maps = {name: each for name, each in found.maps.items() if name in RULES}
    if is_text:
        return {name: each.sum(-1) for name, each in maps.items()}
    shape = (found.inputs if isinstance(found.inputs, Tensor) else found.inputs["pixel_values"]).shape
    return {name: each for name, each in maps.items() if each.shape == shape}


def difference(got: Tensor, want: Tensor) -> float:
    return ((got - want).abs().max() / want.abs().max()).item()


def test_every_stored_reference_is_compared() -> None:
    assert {*IMAGES, *TRANSFORMERS} == set(SPECS)


@pytest.mark.parametrize("name", IMAGES)
def test_convolutional_networks_agree_with_zennit(name: str) -> None:
    found = reference(name)
    maps = comparable(found)
    assert len(maps) == IMAGES[name]
    for composite, want in maps.items():
        got = lrp(Extractor(found.model, found.layer), found.inputs, found.relevance, RULES[composite])
        assert isinstance(got, Tensor)
        assert difference(got, want) < 1e-10, composite


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_agree_with_lxt(name: str, dtype: torch.dtype) -> None:
    found = reference(name)
    maps = comparable(found)
    assert len(maps) >= TRANSFORMERS[name]
    extractor = Extractor(found.model.to(dtype), found.layer)
    for composite, want in maps.items():
        got = lrp(extractor, found.inputs, found.relevance.to(dtype), RULES[composite])
        assert isinstance(got, Tensor)
        assert got.dtype == dtype
        # The references' own stabilisers, of 1e-10 to 1e-8, are what is left in float64.
        assert difference(got.double(), want) < (1e-8 if dtype == torch.float64 else 1e-5), composite
