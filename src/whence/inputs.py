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
    """Copy tensors and arrays to the model's device, floating-point ones in its precision; the rest as it is.

    Always copies: a model may write into its inputs, which are the user's.
    """
    if isinstance(inputs, Mapping):
        return {name: to_model(model, part) for name, part in inputs.items()}
    if type(inputs) is tuple:
        return tuple(to_model(model, part) for part in inputs)
    copied = isinstance(inputs, np.ndarray) and inputs.dtype.kind in "biufc"
    if copied:
        # torch would warn of arrays it cannot write to and refuse those that run backwards.
        inputs = torch.from_numpy(np.array(inputs, order="C"))
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    if not isinstance(inputs, Tensor):
        return inputs
    if parameter is None:
        return inputs if copied else inputs.clone()
    dtype = parameter.dtype if inputs.is_floating_point() else inputs.dtype
    return inputs.to(parameter.device, dtype, copy=not copied)


def run(model: nn.Module, inputs: Any) -> Any:
    """Run the model: a mapping goes in by name, a tuple by place, anything else as the one argument.

    Of a mapping, what the model cannot take is left out: names that ``forward`` does not know, and values
    that are no tensors (a text beside its tokens). A single tensor under a name of its own, such as
    ``image``, goes in by place. The model gets copies, so that what it writes into them is gone afterwards.
    """
    inputs = _copied(inputs)
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


def _copied(inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return {name: _copied(part) for name, part in inputs.items()}
    if type(inputs) is tuple:
        return tuple(_copied(part) for part in inputs)
    # What autograd follows is the caller's own copy already, and may be known by its identity.
    return inputs.clone() if isinstance(inputs, Tensor) and not inputs.requires_grad else inputs
