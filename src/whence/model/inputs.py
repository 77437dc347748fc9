"""A batch of model inputs, as a tensor, a tuple or a mapping of them: its rows, and how it is run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whence.core.checks import check_parts
from whence.data import NewSamples, as_new
from whence.data.items import described
from whence.errors import InvalidInputError, ModelError, WhenceError


def n_rows(inputs: Any) -> int | None:
    """Count a batch's samples by its first tensor, array or list; None where it has none."""
    inputs = as_new(inputs)
    if isinstance(inputs, Mapping):
        inputs = tuple(inputs.values())
    if type(inputs) is tuple:
        return next((n for n in map(n_rows, inputs) if n is not None), None)
    if isinstance(inputs, list | NewSamples) or (isinstance(inputs, Tensor | np.ndarray) and inputs.ndim > 0):
        return len(inputs)
    return None


def each_part(inputs: Any, change: Callable[[Any], Any]) -> Any:
    """Change every part of a batch, in mappings and tuples too."""
    if isinstance(inputs, Mapping):
        return {name: each_part(part, change) for name, part in inputs.items()}
    if type(inputs) is tuple:
        return tuple(each_part(part, change) for part in inputs)
    return change(inputs)


def take(inputs: Any, rows: slice) -> Any:
    """Take some samples of a batch; what has no rows (a flag, a number) stays."""
    return each_part(as_new(inputs), lambda part: part if n_rows(part) is None else part[rows])


def to_model(model: nn.Module, inputs: Any) -> Any:
    """Copy tensors and arrays to the model's device, floating-point ones in its precision; the rest stays.

    Always copies: a model may write into its inputs, which are the user's.
    """
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    return each_part(inputs, lambda part: _to_parameter(part, parameter))


def _to_parameter(inputs: Any, parameter: Tensor | None) -> Any:
    copied = isinstance(inputs, np.ndarray) and inputs.dtype.kind in "biufc"
    if copied:
        # torch would warn of arrays it cannot write to and refuse those that run backwards.
        inputs = torch.from_numpy(np.array(inputs, order="C"))
    if not isinstance(inputs, Tensor):
        return inputs
    inputs = inputs.detach()  # from what the user made it of, which is not part of the model
    if parameter is None:
        return inputs if copied else inputs.clone()
    dtype = parameter.dtype if inputs.is_floating_point() else inputs.dtype
    return inputs.to(parameter.device, dtype, copy=not copied)


def check_batch(x: Any, name: str = "x") -> int:
    """Count the inputs of a batch, or raise where it is none, or has parts that are sparse or masked."""
    n = n_rows(x)
    if not n:
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor | np.ndarray) else type(x).__name__
        raise InvalidInputError(
            f"'{name}' must be a batch of inputs: a tensor or array (B, …), a mapping of these, or a list; "
            "or a data set or DataLoader. "
            f"Got {'nothing' if n == 0 else got}."
        )
    check_parts(name, x)
    return n


def check_device(device: Any) -> torch.device:
    """Return the device that a user named, or raise where it cannot be used."""
    try:
        place = torch.device(device)
        torch.empty(0, device=place).sum()
        if place.type == "meta":
            raise RuntimeError("it holds no values")
    except (RuntimeError, AssertionError, TypeError, ValueError, NotImplementedError) as error:
        there = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        raise InvalidInputError(
            f"'device' must be one of this machine, such as {' or '.join(map(repr, there))}. Got {device!r}: "
            f"{_first_line(error)}. None takes the model's own."
        ) from error
    return place


def run(model: nn.Module, inputs: Any) -> Any:
    """Run the model: a mapping goes in by name, a tuple by place, anything else as the one argument.

    Of a mapping, what the model cannot take is left out: names that ``forward`` does not know, and values
    that are not tensors (a text next to its tokens). A single tensor under a name of its own, such as
    ``image``, goes in by place. The model gets copies, so that what it writes into them is gone afterwards.
    """
    # What autograd follows is the caller's own copy already, and may be known by its identity.
    inputs = each_part(
        inputs, lambda part: part.clone() if isinstance(part, Tensor) and not part.requires_grad else part
    )
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


@contextmanager
def running_on(inputs: Any) -> Iterator[None]:
    """Make what goes wrong inside the model a ModelError that says on what."""
    try:
        yield
    except (WhenceError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        several = "A tuple is several inputs, by place: pass x alone, without labels. "
        raise ModelError(
            f"The model cannot run on {described(inputs)}: {type(error).__name__}: {_first_line(error)}. "
            f"{several if type(inputs) is tuple else ''}"
            "Pass a batch (B, …) of what the model was trained on, of the same shape and type"
            f"{', converted to float' if _is_whole(inputs) else ''}."
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "").strip(" .") or "no message"


def _is_whole(inputs: Any) -> bool:
    return isinstance(inputs, Tensor) and not inputs.is_floating_point() and not inputs.is_complex()
