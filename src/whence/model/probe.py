"""What a model makes of made-up inputs: two models that make the same of them are taken for the same.

Weights and settings do not say all that a model does: code, hooks and modules that it does not register
change its features too, and cannot be compared between machines. What it computes can.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from whence.core.arrays import Array, Doubles
from whence.errors import WhenceError
from whence.model.extractor import Extractor
from whence.model.inputs import to_model
from whence.model.layers import Layers
from whence.model.modules import evaluating

_ROWS = 4
_SUMS = 16
_TOLERANCE = 2e-3  # of the length of features; libraries add up in other orders
_HALF = 0.05  # the same in half precision


@dataclass(frozen=True)
class MadeUp:
    """How one of a model's inputs is made up: numbers (4, …) between the least and the largest of a batch."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    name: str
    dtype: str
    shape: tuple[int, ...]
    low: float
    high: float

    @classmethod
    def like(cls, name: str, values: Tensor | Array) -> Self:
        """Describe inputs that look like those of a batch (B, …)."""
        tensor = values.detach() if isinstance(values, Tensor) else torch.tensor(values)
        known = tensor[tensor.isfinite()].double() if tensor.numel() else tensor.double()
        low, high = (float(known.min()), float(known.max())) if known.numel() else (0.0, 1.0)
        return cls(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape[1:]), low, high)

    def values(self) -> Tensor:
        """Make the inputs, the same everywhere: noise, noise beyond the range, and the middle."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        rng = np.random.default_rng(0)
        shape = (_ROWS, *self.shape)
        if not dtype.is_floating_point:
            return torch.from_numpy(rng.integers(int(self.low), int(self.high) + 1, shape)).to(dtype)
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        spread = np.array([1.0, 1.0, 3.0, 0.0]).reshape(-1, *(1 for _ in self.shape))
        return torch.from_numpy(middle + spread * half * rng.uniform(-1, 1, shape)).to(dtype)


@dataclass(frozen=True)
class MadeUpRun:
    """Sums with fixed signs (4, 16) of the features that a model makes of made-up inputs."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    form: Literal["tensor", "tuple", "mapping"]
    inputs: tuple[MadeUp, ...]
    lengths: tuple[float, ...]
    sums: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, extractor: Extractor, batch: Any) -> Self | None:
        """Run the model on inputs made up like a batch; None where it takes none of these."""
        form: Any = "mapping" if isinstance(batch, Mapping) else "tuple" if type(batch) is tuple else "tensor"
        parts = {"": batch}
        if form != "tensor":
            parts = dict(batch) if form == "mapping" else {str(i): part for i, part in enumerate(batch)}
        known = {name: p for name, p in parts.items() if isinstance(p, Tensor | np.ndarray) and p.ndim > 0}
        if (len(known) < len(parts) and form != "mapping") or not known:
            return None
        try:
            inputs = tuple(MadeUp.like(str(name), part) for name, part in known.items())
            probe = cls(form, inputs, (), ())
            lengths, sums = probe._run(extractor.model, extractor.layer, extractor.layers)
        except (WhenceError, RuntimeError, ValueError, TypeError, IndexError, KeyError):
            return None  # of a model whose inputs have to make sense
        if not (np.isfinite(lengths).all() and np.isfinite(sums).all()):
            return None
        return cls(form, inputs, tuple(lengths.tolist()), tuple(tuple(row) for row in sums.tolist()))

    def differs(self, model: nn.Module, layer: str, layers: Layers | None = None) -> str:
        """Return how a model differs from then on the made-up inputs; empty if not at all."""
        try:
            lengths, sums = self._run(model, layer, layers)
        except (
            WhenceError,
            RuntimeError,
            ValueError,
            TypeError,
            IndexError,
            KeyError,
            AttributeError,
        ) as error:
            return f"it cannot run on inputs of the same shape ({type(error).__name__}: {error})"
        before = np.array(self.sums)
        if sums.shape != before.shape:
            return f"it has other inputs or outputs, {sums.shape} for {before.shape}"
        apart = np.sqrt(((sums - before) ** 2).mean(axis=1)) / np.maximum(
            np.maximum(lengths, self.lengths), 1e-6
        )
        half = any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters())
        worst = float(np.nan_to_num(apart, nan=np.inf).max())
        if worst <= (_HALF if half else _TOLERANCE):
            return ""
        return f"its features of the same made-up inputs differ by {worst:.2g} of their length"

    def _run(self, model: nn.Module, layer: str, layers: Layers | None) -> tuple[Doubles, Doubles]:
        made = {part.name: part.values() for part in self.inputs}
        inputs: Any = made
        if self.form != "mapping":
            inputs = made[""] if self.form == "tensor" else tuple(made.values())
        with evaluating(model):
            features = Extractor(model, layer, layers=layers).forward(to_model(model, inputs))
        rows: Doubles = features.detach().double().cpu().numpy()
        if len(rows) != _ROWS:
            raise ValueError(f"{len(rows)} rows for {_ROWS} inputs")
        lengths: Doubles = np.linalg.norm(rows, axis=1)
        return lengths, rows @ _signs(rows.shape[1])


def _signs(width: int) -> Doubles:
    """Return fixed signs (width, 16): E (s·δ)² = ‖δ‖²."""
    n = width * _SUMS
    bits = np.unpackbits(np.frombuffer(hashlib.shake_256(b"probe").digest(-(-n // 8)), np.uint8))[:n]
    return (1.0 - 2.0 * bits.reshape(width, _SUMS)).astype(np.float64)
