"""Make a case (a model's weights, inputs, features and the relevance put onto them); add maps to it."""

from __future__ import annotations

import json
import math
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tests.helpers.reference_models import SPECS, in_double
from torch import Tensor, nn


def make_case(name: str) -> dict[str, Tensor]:
    """Weights and inputs (values of float32), features and relevance R (B, d) in float64."""
    generator = torch.Generator().manual_seed(list(SPECS).index(name))
    spec = SPECS[name]
    model = spec.build().eval()
    # Behind ReLUs activations need some gain; in a transformer it would only amplify rounding.
    randomise(model, 1.5 if spec.embedding is None else 1.0, generator)
    inputs = _inputs(model, generator)
    case = {f"weights.{key}": value.clone() for key, value in model.state_dict().items()}
    case |= {f"inputs.{key}": value for key, value in inputs.items()}
    with torch.no_grad():
        case["features"] = features_of(model.double(), spec.head, in_double(inputs))
    case["relevance"] = case["features"] * torch.randn(case["features"].shape, generator=generator)
    return case


def randomise(model: nn.Module, gain: float, generator: torch.Generator) -> None:
    """Draw all weights so that activations keep their size and no bias or statistic is at a special value."""
    for name, value in model.state_dict().items():
        module, _, kind = name.rpartition(".")
        noise = torch.randn(value.shape, generator=generator)
        if isinstance(model.get_submodule(module), nn.Embedding):
            value.copy_(noise)
        elif kind == "running_var":
            value.copy_(noise.abs() + 0.5)
        elif value.ndim > 1:
            value.copy_(gain * noise / math.sqrt(value[0].numel()))
        elif value.is_floating_point():
            value.copy_(0.3 * noise + (kind == "weight"))  # one-dimensional weights are of normalisations


def _inputs(model: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Two samples: images with a corner of zeros, or sentences of 12 tokens, the second padded."""
    vocabulary = getattr(getattr(model, "config", None), "vocab_size", None)
    if vocabulary is None:
        images = 2 * torch.randn(2, 3, 16, 16, generator=generator)
        images[:, :, :4, :5] = 0
        return {"pixel_values" if hasattr(model, "config") else "x": images}
    ids = torch.randint(1, vocabulary, (2, 12), generator=generator)
    ids[1, 9:] = 0
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def features_of(model: nn.Module, head: str, inputs: dict[str, Tensor]) -> Tensor:
    """Return the inputs of the head (B, d); for tokens, at the last one that is not padding."""
    seen: list[Tensor] = []
    hook = model.get_submodule(head).register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    try:
        model(inputs["x"]) if "x" in inputs else model(**inputs)
    finally:
        hook.remove()
    features = seen[0]
    if features.ndim == 2:
        return features
    last = inputs["attention_mask"].sum(1) - 1
    return features[torch.arange(len(last)), last]


def save_case(path: Path, tensors: dict[str, Tensor], provenance: dict[str, Any]) -> None:
    """Write tensors and where they come from into one file."""
    tensors = {key: value.detach().contiguous() for key, value in tensors.items()}
    save_file(tensors, path, {"provenance": json.dumps(provenance, indent=1)})


def add_maps(
    path: Path,
    features: Tensor,
    maps: dict[str, Tensor],
    composites: dict[str, str],
    packages: list[str],
) -> None:
    """Add maps to a case, with the worker's versions and how far its features are from the case's own."""
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        provenance = json.loads(file.metadata()["provenance"])
    # The case's own features were computed in whence's environment, with its newer transformers.
    error = (features - tensors["features"]).abs().max() / features.abs().max()
    if not error < 1e-12:
        raise RuntimeError(f"{path.stem}: the features differ from those of the case by {error:.1e}.")
    tensors |= {f"maps.{key}": value for key, value in maps.items()}
    provenance["composites"] = provenance.get("composites", {}) | composites
    provenance["versions"] = {name: version(name) for name in packages}
    provenance["features_differ_by"] = max(error.item(), provenance.get("features_differ_by", 0.0))
    save_case(path, tensors, provenance)
