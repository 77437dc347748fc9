"""Trainings that were stopped: kept now and then, between two passes over the data, and gone on with."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from whence.core import contents
from whence.core.cache import Slot
from whence.errors import StoreError
from whence_studies.scenes.weights import read_tensors, save_weights

_FILE = "state.safetensors"
_EVERY = 60.0  # seconds: nothing is written of a training that takes less

Kept = list[tuple[dict[str, Tensor], float]]
"""Weights in the course of a training, and the learning rate at each."""


@dataclass
class Unfinished:
    """Where a training is kept that is not done.

    Weights, what the optimiser remembers, random numbers and checkpoints are written, so that a training that
    goes on ends with the same bits as one that was never stopped.

    Attributes
    ----------
    slot : its place in a cache
    title : what it is, for lists
    show_progress : whether it shows how far it is
    """

    slot: Slot
    title: str
    show_progress: bool = False
    _written: float = field(default_factory=time.monotonic)

    def resume(self, model: nn.Module, optimizer: Optimizer, generator: torch.Generator) -> tuple[int, Kept]:
        """Put back what was written; gives the steps that are done, and their checkpoints."""
        try:
            tensors, manifest = read_tensors(self.slot.path / _FILE)
            step = contents.manifest(int, manifest.get("step"))
            rates = contents.manifest(list[float], manifest.get("rates"))
            parts = _parted(tensors)
            kept = [(parts[f"kept{place}"], rate) for place, rate in enumerate(rates)]
            state = {**optimizer.state_dict(), "state": _remembered(parts["optimizer"])}
            weights, random = parts["model"], parts["random"]["state"]
            model.load_state_dict(weights)  # the one that may refuse, before anything is changed
            optimizer.load_state_dict(state)
            generator.set_state(random)
            return step, kept
        except (OSError, StoreError, RuntimeError, KeyError, ValueError):
            return 0, []  # nothing there, or nothing that can be gone on from

    def write(
        self, step: int, model: nn.Module, optimizer: Optimizer, generator: torch.Generator, kept: Kept
    ) -> None:
        """Write where a training is, unless it did so just now."""
        if step == 0 or time.monotonic() - self._written < _EVERY:
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


def _parted(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Put tensors together by the first part of their names."""
    found: dict[str, dict[str, Tensor]] = {"optimizer": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        found.setdefault(part, {})[rest] = tensor
    return found


def _remembered(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Return what an optimiser remembers of each parameter, by its place."""
    found: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        place, _, own = name.partition("/")
        found.setdefault(int(place), {})[own] = tensor
    return found
