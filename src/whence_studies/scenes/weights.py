"""Weights of models in files: all of them, of every type, checked before they are used."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whence.core import contents, store
from whence.errors import ModelError, StoreError


def save_weights(path: str | os.PathLike[str], state: Mapping[str, Any], manifest: dict[str, Any]) -> None:
    """Write a model's ``state_dict`` to one file, at once and whole; raise where the weights are useless."""
    arrays, kinds = {}, {}
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise ModelError(f"The model keeps {name!r}, a {type(tensor).__name__}, which is no tensor.")
        flat = tensor.detach().cpu().contiguous()
        if flat.is_floating_point() and not flat.isfinite().all():
            raise ModelError(f"Training ended with weights that are not finite: {name!r}.")
        # As bytes, because numpy lacks some of torch's types and gives numbers without a shape one.
        arrays[name] = flat.reshape(-1).view(torch.uint8).numpy()
        kinds[name] = [str(flat.dtype).removeprefix("torch."), list(flat.shape)]
    store.write(path, arrays, {**manifest, "tensors": kinds})


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``save_weights`` wrote, or raise StoreError: tensors by name, and the manifest."""
    arrays, manifest = store.read(path)
    state = {}
    kinds = contents.manifest(dict[str, tuple[str, list[int]]], manifest.get("tensors"))
    contents.check_names(arrays, set(kinds))
    for name, (word, shape) in kinds.items():
        dtype = getattr(torch, word, None)
        if not isinstance(dtype, torch.dtype) or min(shape, default=0) < 0:
            raise contents.refused(f"{name!r} must be a tensor of torch, and is {word} {shape}")
        if arrays[name].dtype != np.uint8 or arrays[name].shape != (math.prod(shape) * dtype.itemsize,):
            raise contents.refused(f"{name!r} must have the bytes of {word} {shape}, and has not")
        state[name] = torch.empty(shape, dtype=dtype)
        state[name].view(-1).view(torch.uint8).copy_(torch.from_numpy(arrays[name]))
    return state, manifest


def load_weights(path: str | os.PathLike[str], model: nn.Module) -> nn.Module:
    """Return a copy of ``model``, in eval mode, with the weights from a file that ``save_weights`` wrote."""
    state, _ = read_tensors(path)
    found = copy.deepcopy(model)
    try:
        found.load_state_dict(state)
    except RuntimeError as error:
        raise StoreError(f"{path} holds the weights of another architecture: {error}") from error
    return found.eval()
