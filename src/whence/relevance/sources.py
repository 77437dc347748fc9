"""The ends of relevance: the inputs of a model, or the embeddings of its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from whence.data.items import WRITTEN

TOKENS = "tokens"
"""The name of a model's tokens among its inputs."""


def named_inputs(inputs: Any) -> dict[str, Any]:
    """Name the inputs of a model: "input" for a single one, else by their names or positions."""
    if isinstance(inputs, Tensor):
        return {"input": inputs}
    if type(inputs) is tuple:
        return {str(i): part for i, part in enumerate(inputs)}
    return dict(inputs) if isinstance(inputs, Mapping) else {}


def floating(inputs: Any) -> dict[str, Tensor]:
    """Name the inputs where relevance can end: floating-point tensors except masks."""
    return {
        name: x
        for name, x in named_inputs(inputs).items()
        if isinstance(x, Tensor) and x.is_floating_point() and "mask" not in name
    }


def one_of(inputs: Any, name: str) -> Any:
    """Return one of a model's inputs by the name of its map; tokens with their mask."""
    named = named_inputs(inputs)
    if name != TOKENS:
        return named[name]
    mask = {"attention_mask": named["attention_mask"]} if "attention_mask" in named else {}
    written = {WRITTEN: named[WRITTEN]} if WRITTEN in named else {}
    return {"input_ids": tokens_of(inputs), **mask, **written}


def replaced(inputs: Any, values: Mapping[str, Tensor]) -> Any:
    """Replace some inputs by other tensors, by the names of ``floating``."""
    if isinstance(inputs, Tensor):
        return values.get("input", inputs)
    if type(inputs) is tuple:
        return tuple(values.get(str(i), part) for i, part in enumerate(inputs))
    return {**inputs, **values} if isinstance(inputs, Mapping) else inputs


def tokens_of(inputs: Any) -> Tensor | None:
    """Return the tokens (B, T) among a model's inputs."""
    named = {name: x for name, x in named_inputs(inputs).items() if "mask" not in name and "type" not in name}
    parts = [named["input_ids"]] if "input_ids" in named else named.values()
    return next((x for x in parts if isinstance(x, Tensor) and not x.is_floating_point()), None)


def looks_up(args: Any, tokens: Tensor | None) -> bool:
    """Return whether ``embedding`` was called with these tokens, not with positions or types."""
    ids = next((x for x in args[:2] if isinstance(x, Tensor) and not x.is_floating_point()), None)
    if ids is None or tokens is None or ids.numel() != tokens.numel():
        return False
    return torch.equal(ids.reshape(tokens.shape), tokens)
