"""Features of several layers: what goes into each, a vector per sample, all at one scale, side by side."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from whence.core.arrays import Floats
from whence.core.checks import check_count, shown
from whence.errors import InvalidInputError, ModelError
from whence.model.heads import Head, terms
from whence.model.inputs import n_rows

BUDGET = 1024
"""Numbers per layer and sample at most; only the head's own input may be longer."""

WORDS = ("last", "all", "auto")
Asked = str | int | tuple[str, ...]
"""Which layers: "last", "all", "auto", the number of the last ones, or names."""

_POOLS: dict[int, Any] = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def check_layers(name: str, value: Any) -> Asked:
    """Return which layers a user asks for, in its plain form, or raise."""
    if isinstance(value, str) and value in WORDS:
        return value
    listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if listed and value and all(isinstance(layer, str) and layer for layer in value):
        if len({*value}) == len(value):
            return tuple(map(str, value))
        raise InvalidInputError(f"'{name}' must name each layer once. Got {shown(list(value))}.")
    if isinstance(value, str) or listed or not isinstance(value, int | np.integer) or value is True:
        raise InvalidInputError(
            f'\'{name}\' must be "last", "all", "auto", a number of layers, or a list of layers\' names. '
            f"Got {shown(value)}."
        )
    return check_count(name, value)


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


@dataclass(frozen=True)
class Layers:
    """The layers that features come from, in order of execution, the head last.

    Features (B, D) are the layers' vectors side by side, each divided by its scale, so that every layer has
    a mean squared norm near 1. Where the head is the only one, features are what goes into it, unchanged.

    Attributes
    ----------
    asked : what was asked for
    blocks : one per layer

    Examples
    --------
    >>> import torch, whence
    >>> body = torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 5), torch.nn.ReLU()
    >>> model = torch.nn.Sequential(*body, torch.nn.Linear(5, 2))
    >>> data = torch.randn(20, 4), torch.arange(20) % 2
    >>> bank = whence.features.extract(model, data, layers="all", show_progress=False)
    >>> bank.layers.names, bank.layers.widths, bank.features.shape
    (('2', '4'), (3, 5), (20, 8))
    """

    asked: Asked
    blocks: tuple[Block, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The layers' names."""
        return tuple(block.name for block in self.blocks)

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers of each layer."""
        return tuple(block.width for block in self.blocks)

    @property
    def places(self) -> dict[str, slice]:
        """Which of the D features are each layer's."""
        ends = np.cumsum(self.widths).tolist()
        return {
            name: slice(end - width, end)
            for name, width, end in zip(self.names, self.widths, ends, strict=True)
        }

    def scaled(self, squares: Sequence[float]) -> Layers:
        """Return layers whose blocks are divided by the root of these mean squared norms, too."""
        if len(self.blocks) == 1:  # no other layer to be balanced with
            return self
        # Four digits: batches of other sizes, which differ by rounding, then have the same features.
        roots = [float(f"{math.sqrt(value):.3e}") or 1.0 for value in squares]
        blocks = zip(self.blocks, roots, strict=True)
        return replace(self, blocks=tuple(replace(b, scale=b.scale * root) for b, root in blocks))

    def head(self, head: Head) -> Head:
        """Return the model's last layer as one of all features: W times the scale, zeros for other layers."""
        if len(self.blocks) == 1:
            return head
        weight: Floats = np.zeros((len(head.weight), sum(self.widths)), head.weight.dtype)
        weight[:, self.places[self.names[-1]]] = head.weight * np.float32(self.blocks[-1].scale)
        return Head(weight, head.bias)

    def joined(self, vectors: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """Put the vectors that ``reading`` collected before the head's features (B, d): features (B, D)."""
        if len(self.blocks) == 1:
            return features
        silent = [name for name in self.names[:-1] if name not in vectors]
        if silent:
            raise ModelError(
                f"Layer {silent[0]!r} must run before the head, as it did when its features were chosen. It "
                "did not."
            )
        parts = [vectors[name] for name in self.names[:-1]]
        return torch.cat([*parts, self.blocks[-1].vectors(features, len(features))], dim=1)

    @contextmanager
    def reading(self, model: nn.Module, inputs: Any) -> Iterator[dict[str, Tensor]]:
        """Collect the vectors of the layers before the head while the model runs; the hooks then go.

        They are made at once, before the model can write into what a layer read. Where a layer runs several
        times, its last time before the head counts.
        """
        vectors: dict[str, Tensor] = {}
        blocks = {block.name: block for block in self.blocks[:-1]}
        n, mask = n_rows(inputs), token_mask(inputs)

        def read(name: str, x: Tensor) -> None:
            # Plain torch: relevance that starts at features goes through a linear map by its gradient.
            with torch._C.DisableTorchFunction():
                vectors[name] = blocks[name].vectors(x, len(x) if n is None else n, mask)

        with watching(model, list(blocks), self.names[-1], read):
            yield vectors

    def __str__(self) -> str:
        """Return the layers, one per line."""
        return "\n".join(map(str, self.blocks))


@contextmanager
def watching(
    model: nn.Module, names: Sequence[str], head: str, read: Callable[[str, Tensor], None]
) -> Iterator[None]:
    """Call ``read`` with what goes into layers while the model runs, until the last of the head's begins."""
    last = {name for _, name in terms(head)}
    to_run = set(last)

    def hook(name: str, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else next(iter(kwargs.values()), None)
        if to_run and name in names and isinstance(x, Tensor):
            read(name, x)
        to_run.discard(name)

    with ExitStack() as stack:
        for name in dict.fromkeys([*names, *last]):
            layer = model.get_submodule(name)
            stack.enter_context(layer.register_forward_pre_hook(partial(hook, name), with_kwargs=True))
        yield


def token_mask(inputs: Any) -> Tensor | None:
    """Return the mask (B, T) that says which tokens are no padding, where the inputs have one."""
    mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
    return mask if isinstance(mask, Tensor) and mask.ndim == 2 else None


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
