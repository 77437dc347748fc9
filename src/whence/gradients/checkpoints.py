"""Checkpoints of training, or of other trainings, validated against the model."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from whence.errors import InvalidInputError
from whence.model.modules import unwrap

Checkpoints = Sequence[Mapping[str, Tensor] | nn.Module | str | PathLike[str]]

UNSAVED = (
    "{} needs the weights of all its checkpoints to attribute, so its cache alone is not worth saving: keep "
    "the checkpoints"
)
"""Why a method is not saved, with its name."""


def read_checkpoints(model: nn.Module, checkpoints: Any) -> list[dict[str, Tensor]]:
    """Read weights for a model: copies on its device and in its dtype, one mapping per checkpoint.

    Parameters
    ----------
    model
        The model, inside ``DataParallel`` and ``torch.compile``.
    checkpoints
        State dicts, models, or paths of files with a state dict, written by safetensors or by
        ``torch.save``. The latter are read with ``weights_only=True``: no code in them is run.
    """
    if not isinstance(checkpoints, Sequence) or isinstance(checkpoints, str | bytes) or not checkpoints:
        raise InvalidInputError(
            "'checkpoints' must be a list of state dicts, models, or paths of files with one. "
            f"Got {checkpoints!r}. Save model.state_dict() about every epoch while training."
        )
    states = [_state(given, i) for i, given in enumerate(checkpoints)]
    _check_distinct(states)
    return [
        _fitting(model, state, _named(given, i))
        for i, (given, state) in enumerate(zip(checkpoints, states, strict=True))
    ]


def _state(given: Any, place: int) -> Mapping[str, Tensor]:
    """Read one checkpoint's state dict, with names as in the unwrapped model."""
    if isinstance(given, nn.Module):
        state: Any = unwrap(given).state_dict()
    elif isinstance(given, str | PathLike):
        state = _from_file(fspath(given))
    else:
        state = given
    if not isinstance(state, Mapping) or not all(isinstance(part, Tensor) for part in state.values()):
        inside = f" with {', '.join(map(str, list(state)[:6]))}" if isinstance(state, Mapping) else ""
        raise InvalidInputError(
            f"'checkpoints' must hold state dicts: names and tensors. {_named(given, place)} is a "
            f"{type(state).__name__}{inside}. Pass the part that model.state_dict() returned."
        )
    named: dict[str, Tensor] = dict(state)
    for prefix in ("module.", "_orig_mod."):  # of DataParallel and torch.compile
        if all(name.startswith(prefix) for name in named):
            named = {name.removeprefix(prefix): tensor for name, tensor in named.items()}
    return named


def _from_file(path: str) -> Any:
    try:
        if path.endswith(".safetensors"):
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InvalidInputError(f"'checkpoints' must name files that exist. Got {path!r}.") from None
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise InvalidInputError(
            f"'checkpoints' must name files with a state dict, of safetensors or torch.save. {path!r} cannot "
            f"be read ({str(error).splitlines()[0]}). Save model.state_dict(), not the model itself."
        ) from error


def _check_distinct(states: list[Mapping[str, Tensor]]) -> None:
    """Raise if two checkpoints share tensors: ``state_dict`` returns those that training changes."""
    seen: dict[tuple[int, ...], int] = {}
    for i, state in enumerate(states):
        # Sparse tensors have no place of their own.
        dense = (tensor for tensor in state.values() if tensor.layout is torch.strided)
        places = tuple(tensor.data_ptr() for tensor in dense)
        if (first := seen.setdefault(places, i)) != i:
            raise InvalidInputError(
                f"'checkpoints' must be copies. Those at {first} and {i} are the same tensors, which "
                "training has changed since. Collect copy.deepcopy(model.state_dict())."
            )


def _fitting(model: nn.Module, state: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """Copy a state dict to the model's device, or raise if it is of another model."""
    wanted = model.state_dict()
    faults = [f"{key} is missing" for key in wanted.keys() - state.keys()]
    faults += [f"{key} is unknown" for key in state.keys() - wanted.keys()]
    for key in wanted.keys() & state.keys():
        if state[key].shape != wanted[key].shape:
            faults.append(f"{key} has shape {list(state[key].shape)}, in the model {list(wanted[key].shape)}")
        elif not state[key].to_dense().isfinite().all():
            faults.append(f"{key} has values that are not finite")
    if faults:
        faults.sort()
        more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise InvalidInputError(
            f"'checkpoints' must fit the model. In {name} {'; '.join(faults[:5])}{more}. Pass checkpoints of "
            "the model's own architecture."
        )
    # Only once: a state dict has all names of tied weights, the model's own lists only the first.
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {key: state[key].detach().to(tensors[key], copy=True) for key in wanted if key in tensors}


def _named(given: Any, place: int) -> str:
    return f"checkpoint {place}" + (f" ({fspath(given)})" if isinstance(given, str | PathLike) else "")
