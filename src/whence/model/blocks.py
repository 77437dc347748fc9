"""What goes into a layer as one vector per sample."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from whence.errors import InvalidInputError, ModelError

BUDGET = 1024
"""Numbers per layer and sample at most; only the head's own input may be longer."""

_POOLS: dict[int, Any] = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


@dataclass(frozen=True)
class Block:
    """How what goes into a layer becomes one vector per sample.

    Attributes
    ----------
    name : the layer
    kind : "vector" is taken unchanged; of "mean", tokens and other places are averaged, without padding; of
        "grid", places keep where they are
    channels : numbers at each place
    channels_last : whether they lie behind the places
    sides : of the grid, as first seen
    grid : to which it is pooled by averages
    width : numbers per sample; where fewer than channels × grid, sums of them with random signs
    scale : by which they are divided, the root of their mean squared norm
    """

    name: str
    kind: Literal["vector", "mean", "grid"]
    channels: int
    channels_last: bool = True
    sides: tuple[int, ...] = ()
    grid: tuple[int, ...] = ()
    width: int = 0
    scale: float = 1.0

    def __post_init__(self) -> None:
        sizes = (self.channels, self.width, *self.sides, *self.grid)
        sides = _POOLS if self.kind == "grid" else (0,)
        placed = len(self.grid) in sides and len(self.sides) in sides
        if not (placed and min(sizes) > 0 and self.width <= self.length and 0 < self.scale < math.inf):
            raise InvalidInputError(f"A block of features must have a size and a scale. Got {self}.")

    @classmethod
    def of(
        cls,
        name: str,
        kind: Literal["vector", "mean", "grid"],
        channels: int,
        channels_last: bool,
        sides: Any,
    ) -> Self:
        """Make a block of at most ``BUDGET`` numbers: by a coarser grid, and if still too long, by signs."""
        sides = tuple(sides)
        # As fine as the budget allows, and not below 2 per side: then where things are would be lost.
        finest = max(sides, default=1)
        while finest > 2 and channels * math.prod(min(side, finest) for side in sides) > BUDGET:
            finest -= 1
        grid = tuple(min(side, finest) for side in sides)
        width = min(BUDGET, channels * math.prod(grid))
        return cls(name, kind, channels, channels_last, sides, grid, width)

    @property
    def length(self) -> int:
        """Numbers per sample before the random signs."""
        return self.channels * math.prod(self.grid)

    def vectors(self, x: Tensor, n: int, mask: Tensor | None = None) -> Tensor:
        """Vectors (n, width) of what n samples brought to the layer; linear in it.

        ``mask`` (n, T) is 1 at tokens and 0 at padding.
        """
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        if self.kind == "grid":
            x = x.movedim(-1, 1) if self.channels_last else x  # (n, channels, …)
            flat = (x if x.shape[2:] == self.grid else _POOLS[len(self.grid)](x, self.grid)).flatten(1)
        elif self.kind == "mean":
            x = x if self.channels_last else x.movedim(1, -1)
            flat = _mean(x.reshape(n, -1, x.shape[-1]), mask)
        else:
            flat = x
        if flat.shape != (n, self.length):
            raise ModelError(
                f"Layer {self.name!r} must see what it saw in fitting, {self.length} numbers per sample. "
                f"Got shape {tuple(x.shape)} for {n} samples."
            )
        return (flat if self.width == self.length else _summed(flat, self.name, self.width)) / self.scale

    def __str__(self) -> str:
        """Return one line."""
        size = " × ".join(map(str, (self.channels, *self.sides)))
        pooled = " × ".join(map(str, (self.channels, *self.grid)))
        parts = [f"{size} averaged over places" if self.kind == "mean" else size]
        parts += [f"pooled to {pooled}"] if self.grid != self.sides else []
        parts += [f"by random signs to {self.width:,}"] if self.width < self.length else []
        return f"{self.name!r}: {', '.join(parts)}; divided by {self.scale:g}"


def _mean(x: Tensor, mask: Tensor | None) -> Tensor:
    """Average x (B, P, d) over places, over those of the mask where it is about them."""
    if mask is None or mask.shape != x.shape[:2]:
        return x.mean(1)
    kept = (mask > 0).to(x.device)[..., None]
    # Chosen, not multiplied by 0: padding may hold NaN.
    return torch.where(kept, x, torch.zeros((), dtype=x.dtype, device=x.device)).sum(1) / kept.sum(1).clamp(
        min=1
    )


def _summed(x: Tensor, name: str, width: int) -> Tensor:
    """Random projection (B, width) of x (B, length): every number goes into one sum, with a random sign.

    E f̂(x)·f̂(y) = f(x)·f(y), and the signs depend on the layer's name and length alone.
    """
    order, signs = _signs(name, x.shape[1])
    signed = x[:, order.to(x.device)] * signs.to(x)
    whole = F.pad(signed, (0, -x.shape[1] % width))
    return whole.reshape(len(x), -1, width).sum(1)


@lru_cache(maxsize=64)
def _signs(name: str, length: int) -> tuple[Tensor, Tensor]:
    """Return a random order of so many numbers, and signs: the same everywhere and always."""
    drawn = hashlib.shake_256(f"whence {name} {length}".encode()).digest(8 * length)
    numbers = np.frombuffer(drawn, "<u8")
    order = np.argsort(numbers, kind="stable")
    return torch.from_numpy(order), torch.from_numpy(1 - 2 * (numbers & 1).astype(np.float32))
