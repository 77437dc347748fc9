"""A batch of model inputs, as a tensor, a tuple or a mapping of them: its rows, and how it is run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def n_rows(inputs: Any) -> int | None:
    """Count a batch's samples by its first tensor, array or list; None where it has none."""
    if isinstance(inputs, Mapping):
        inputs = tuple(inputs.values())
    if type(inputs) is tuple:
        return next((n for n in map(n_rows, inputs) if n is not None), None)
    if isinstance(inputs, list) or (isinstance(inputs, Tensor | np.ndarray) and inputs.ndim > 0):
        return len(inputs)
    return None


def take(inputs: Any, rows: slice) -> Any:
    """Take some samples of a batch; what has no rows (a flag, a number) stays as it is."""
    if isinstance(inputs, Mapping):
        return {name: take(part, rows) for name, part in inputs.items()}
    if type(inputs) is tuple:
        return tuple(take(part, rows) for part in inputs)
    if isinstance(inputs, list) or (isinstance(inputs, Tensor | np.ndarray) and inputs.ndim > 0):
        return inputs[rows]
    return inputs


def to_model(model: nn.Module, inputs: Any) -> Any:
    """Tensors and arrays on the model's device, floating-point ones in its precision; the rest as it is."""
    if isinstance(inputs, Mapping):
        return {name: to_model(model, part) for name, part in inputs.items()}
    if type(inputs) is tuple:
        return tuple(to_model(model, part) for part in inputs)
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "biufc":
        # A copy, since torch warns of arrays it cannot write to and refuses those that run backwards.
        inputs = torch.from_numpy(np.array(inputs, order="C"))
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    if not isinstance(inputs, Tensor) or parameter is None:
        return inputs
    return inputs.to(parameter.device, parameter.dtype if inputs.is_floating_point() else None)


def run(model: nn.Module, inputs: Any) -> Any:
    """Run the model: a mapping goes in by name, a tuple by place, anything else as the one argument.

    Of a mapping, what the model cannot take is left out: names that ``forward`` does not know, and values
    that are no tensors (a text beside its tokens). A single tensor under a name of its own, such as
    ``image``, goes in by place.
    """
    if type(inputs) is tuple:
        return model(*inputs)
    if not isinstance(inputs, Mapping):
        return model(inputs)
    parameters = inspect.signature(model.forward).parameters.values()
    known = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    tensors = {name: part for name, part in inputs.items() if isinstance(part, Tensor)}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if len(tensors) == 1 and not open_ended and not known & inputs.keys():
        return model(*tensors.values())
    return model(
        **{name: part for name, part in inputs.items() if name in known or (open_ended and name in tensors)}
    )
