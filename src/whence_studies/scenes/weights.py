"""Files of weights, checked when they are loaded, and of unfinished trainings."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from whence.core import contents, store
from whence.core.cache import Slot
from whence.errors import ModelError, StoreError

_FILE = "state.safetensors"
WRITING_SECONDS = 60.0  # time between writes; a shorter training is not written

Kept = list[tuple[dict[str, Tensor], float]]
"""Checkpoints of a training, and the learning rate at each."""


def save_weights(path: str | os.PathLike[str], state: Mapping[str, Any], manifest: dict[str, Any]) -> None:
    """Write a model's ``state_dict`` to one file, atomically; raise if weights are not finite."""
    arrays, kinds = {}, {}
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise ModelError(
                f"The model's state has {name!r}, a {type(tensor).__name__}, which is not a tensor."
            )
        flat = tensor.detach().cpu().contiguous()
        if flat.is_floating_point() and not flat.isfinite().all():
            raise ModelError(f"Training ended with weights that are not finite: {name!r}.")
        # As bytes: numpy lacks some of torch's dtypes, and scalars would get a shape.
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
    loaded = copy.deepcopy(model)
    try:
        loaded.load_state_dict(state)
    except RuntimeError as error:
        raise StoreError(f"{path} holds the weights of another architecture: {error}") from error
    return loaded.eval()


@dataclass
class TrainingFile:
    """Stores an unfinished training, so that it can be resumed.

    It writes weights, the optimizer's state, random states and checkpoints, so that a resumed training ends
    with the same bits as one that was never stopped.

    Attributes
    ----------
    slot : its place in a cache
    title : its title in listings of the cache
    show_progress : whether the training shows a progress bar
    """

    slot: Slot
    title: str
    show_progress: bool = False
    _written: float = field(default_factory=time.monotonic)

    def resume(self, model: nn.Module, optimizer: Optimizer, generator: torch.Generator) -> tuple[int, Kept]:
        """Restore what was written; return the number of steps done, and their checkpoints."""
        try:
            tensors, manifest = read_tensors(self.slot.path / _FILE)
            step = contents.manifest(int, manifest.get("step"))
            rates = contents.manifest(list[float], manifest.get("rates"))
            parts = _by_prefix(tensors)
            kept = [(parts[f"kept{place}"], rate) for place, rate in enumerate(rates)]
            state = {**optimizer.state_dict(), "state": _by_parameter(parts["optimizer"])}
            weights, random = parts["model"], parts["random"]["state"]
            model.load_state_dict(weights)  # first, because it may raise
            optimizer.load_state_dict(state)
            generator.set_state(random)
            return step, kept
        except (OSError, StoreError, RuntimeError, KeyError, ValueError):
            return 0, []  # nothing to resume

    def write(
        self, step: int, model: nn.Module, optimizer: Optimizer, generator: torch.Generator, kept: Kept
    ) -> None:
        """Write the state of a training, unless the last write is recent."""
        if step == 0 or time.monotonic() - self._written < WRITING_SECONDS:
            return
        tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
        for place, values in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{place}/{name}": torch.as_tensor(v) for name, v in values.items()}
        for place, (state, _) in enumerate(kept):
            tensors |= {f"kept{place}/{name}": tensor for name, tensor in state.items()}
        tensors["random/state"] = generator.get_state()
        if self.slot.entry is None:
            self.slot.begin(self.title)
        rates = [rate for _, rate in kept]
        save_weights(self.slot.path / _FILE, tensors, {"step": step, "rates": rates})
        self.slot.note(progress={"steps": step})
        self._written = time.monotonic()

    def done(self) -> None:
        """Remove what was written."""
        self.slot.drop()


def _by_prefix(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Group tensors by the first part of their names."""
    parts: dict[str, dict[str, Tensor]] = {"optimizer": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = tensor
    return parts


def _by_parameter(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Return an optimizer's state by the index of the parameter."""
    parts: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        place, _, quantity = name.partition("/")
        parts.setdefault(int(place), {})[quantity] = tensor
    return parts
