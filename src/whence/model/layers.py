"""Features of several layers: what goes into each, a vector per sample, all at one scale, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whence.core.arrays import Floats
from whence.core.checks import check_count, shown
from whence.errors import InvalidInputError, ModelError
from whence.model.blocks import Block
from whence.model.heads import Head, terms
from whence.model.inputs import n_rows
from whence.model.tangents import Tangents, recording

WORDS = ("last", "all", "auto", "tangent")
Asked = str | int | tuple[str, ...]
"""Which layers: "last", "all", "auto", the number of the last ones, or names; or gradients, "tangent"."""


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
            f'\'{name}\' must be "last", "all", "auto", "tangent", a number of layers, or a list of layers\' '
            f"names. Got {shown(value)}."
        )
    return check_count(name, value)


@dataclass(frozen=True)
class Layers:
    """The layers that features come from, in order of execution, the head last.

    Features (B, D) are the layers' vectors side by side, each divided by its scale, so that every layer has
    a mean squared norm near 1. Where the head is the only one, features are what goes into it, unchanged.

    Attributes
    ----------
    asked : what was asked for
    blocks : one per layer
    tangents : of "tangent", the layers whose gradients and inputs are the features before the head's; the
        head is then the only block

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
    tangents: Tangents | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The layers' names."""
        before = () if self.tangents is None else self.tangents.names
        return (*before, *(block.name for block in self.blocks))

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers of each layer; of tangents, which are mixed, their number as a whole."""
        before = () if self.tangents is None else self.tangents.widths
        return (*before, *(block.width for block in self.blocks))

    @property
    def places(self) -> dict[str, slice]:
        """Which of the D features are each layer's, or the tangents'."""
        names = self.names
        if self.tangents is not None:
            n = len(self.tangents.widths)
            names = (*(f"tangent {i}" for i in range(n)), names[-1]) if n > 1 else ("tangent", names[-1])
        ends = np.cumsum(self.widths).tolist()
        return {
            name: slice(end - width, end) for name, width, end in zip(names, self.widths, ends, strict=True)
        }

    def scaled(self, squares: Sequence[float]) -> Layers:
        """Return layers whose blocks are divided by the root of these mean squared norms, too."""
        if self.alone:  # no other layer to be balanced with
            return self
        # Four digits: batches of other sizes, which differ by rounding, then have the same features.
        roots = [float(f"{math.sqrt(value):.3e}") or 1.0 for value in squares]
        if self.tangents is not None:
            tangents, scale = self.tangents.scaled(roots)
            return replace(self, blocks=(replace(self.blocks[-1], scale=scale),), tangents=tangents)
        blocks = zip(self.blocks, roots, strict=True)
        return replace(self, blocks=tuple(replace(b, scale=b.scale * root) for b, root in blocks))

    def head(self, head: Head) -> Head:
        """Return the model's last layer as one of all features: W times the scale, zeros for other layers."""
        if self.alone:
            return head
        weight: Floats = np.zeros((len(head.weight), sum(self.widths)), head.weight.dtype)
        weight[:, -self.widths[-1] :] = head.weight * np.float32(self.blocks[-1].scale)
        return Head(weight, head.bias)

    @property
    def alone(self) -> bool:
        """Whether features are what goes into the head, unchanged."""
        return len(self.blocks) == 1 and self.tangents is None

    def joined(
        self, model: nn.Module, inputs: Any, before: Mapping[str, Any], features: Tensor, head: Tensor
    ) -> Tensor:
        """Put what ``reading`` collected before the head's features (B, d): features (B, D).

        ``head`` is the head's weight (K, d).
        """
        if self.alone:
            return features
        last = self.blocks[-1].vectors(features, len(features))
        if self.tangents is not None:
            mask = token_mask(inputs)
            return torch.cat([self.tangents.features(model, before, features, head, mask), last], dim=1)
        silent = [name for name in self.names[:-1] if name not in before]
        if silent:
            raise ModelError(
                f"Layer {silent[0]!r} must run before the head, as it did when its features were chosen. It "
                "did not."
            )
        return torch.cat([*(before[name] for name in self.names[:-1]), last], dim=1)

    @contextmanager
    def reading(self, model: nn.Module, inputs: Any) -> Iterator[Mapping[str, Any]]:
        """Collect what ``joined`` needs of the layers before the head while the model runs.

        Vectors are made at once, before the model can write into what a layer read. Where a layer runs
        several times, its last time before the head counts; of gradients, the sum.
        """
        if self.tangents is not None:
            with recording(model, self.tangents.names) as calls:
                yield calls
            return
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
        before = [] if self.tangents is None else [self.tangents]
        return "\n".join(map(str, [*before, *self.blocks]))


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
