"""Tangent features: their inner products say how training on one sample moves another's logits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from whence.core.projection import Projection
from whence.errors import ModelError
from whence.model.blocks import Block

WIDTH = 4096
"""Numbers of the random projection of the gradients and inputs of all layers."""

DIRECTIONS = 16
"""Backward passes at most: of more logits, random combinations are differentiated."""

_HELD = 1 << 25  # numbers in memory at a time, of gradients before the projection


class LayerCall(NamedTuple):
    """One call of a layer: its input, and a zero that was added to its output."""

    x: Tensor
    zero: Tensor


Calls = Mapping[str, list[LayerCall]]


@dataclass(frozen=True)
class Tangent:
    """How a layer before the head takes part.

    Attributes
    ----------
    block : how its input becomes a vector
    parameters : numbers in its weight and bias
    scale : root mean squared norm of its gradient over samples; 0 until it is measured
    """

    block: Block
    parameters: int
    scale: float = 0.0


@dataclass(frozen=True)
class Tangents:
    """Tangent features of the layers before the head.

    With g_k(x) the gradient of logit k by the weights of a layer, and a(x) the layer's input as a vector, the
    inner product of two samples' features estimates

        Σ_layers w · (1/K Σ_k g_k(x)·g_k(x') / s² + ½ a(x)·a(x')),    w = s √P / Σ_layers s √P,

    where P is the layer's number of weights, s² the mean of 1/K Σ_k ‖g_k‖², and a has a mean squared norm
    of 1. So a layer counts as its gradient does after division by the root mean square of its entries, as
    in Adam's steps. The estimate is a random projection to ``WIDTH`` numbers, with a standard deviation of at
    most 2.2 % of ‖φ(x)‖‖φ(x')‖; it is exact where that many numbers hold everything.

    Attributes
    ----------
    layers : in order of execution
    n_outputs : K
    parameters : numbers in the head's weight and bias
    bias : whether the head has a bias
    head : root mean square of s for the head, whose gradient by each logit is its input; 0 until measured
    """

    layers: tuple[Tangent, ...]
    n_outputs: int
    parameters: int
    bias: bool
    head: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The layers before the head."""
        return tuple(layer.block.name for layer in self.layers)

    @property
    def measured(self) -> bool:
        """Whether scales are known; until then features are the norms of gradients and inputs."""
        return self.head > 0

    @property
    def length(self) -> int:
        """Numbers per sample before the projection."""
        n_gradients = min(DIRECTIONS, self.n_outputs) * sum(layer.parameters for layer in self.layers)
        return n_gradients + sum(layer.block.width for layer in self.layers)

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers per sample; norms are columns of their own."""
        return (min(WIDTH, self.length),) if self.measured else (1,) * (2 * len(self.layers))

    def scaled(self, roots: Sequence[float]) -> tuple[Tangents, float]:
        """Return the same with scales, and by what the head's input is divided.

        ``roots`` are the root mean squares of the norms of gradient and input of each layer, then of the
        head's input.
        """
        layers = tuple(
            replace(layer, scale=scale, block=replace(layer.block, scale=layer.block.scale * width))
            for layer, scale, width in zip(self.layers, roots[:-1:2], roots[1:-1:2], strict=True)
        )
        made = replace(self, layers=layers, head=math.sqrt(roots[-1] ** 2 + self.bias))
        share = made._share(made.parameters, made.head)
        return made, (share * (1 / made.head**2 + 0.5 / roots[-1] ** 2)) ** -0.5

    def _share(self, parameters: int, scale: float) -> float:
        """Return w of a layer."""
        total = sum(layer.scale * math.sqrt(layer.parameters) for layer in self.layers)
        return scale * math.sqrt(parameters) / (total + self.head * math.sqrt(self.parameters))

    def __str__(self) -> str:
        """Return one line, with what is approximate."""
        parts = [f"gradients and inputs of {', '.join(map(repr, self.names))}"]
        if self.n_outputs > DIRECTIONS:
            parts.append(f"{DIRECTIONS} random combinations of {self.n_outputs:,} logits")
        if self.length > WIDTH:
            parts.append(f"projected at random from {self.length:,} to {WIDTH:,} numbers")
        return "; ".join(parts)

    def features(
        self, model: nn.Module, calls: Calls, features: Tensor, head: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Compute tangent features (B, k), or norms (B, 2·layers) until scales are known.

        Parameters
        ----------
        calls : of the layers, recorded while the model made ``features``
        features : (B, d), what goes into the head, which autograd can follow
        head : (K, d), the head's weight
        mask : (B, T) 1 at tokens and 0 at padding, or None
        """
        leaves = [call.zero for name in self.names for call in calls[name]]
        silent = [name for name in self.names if not calls[name]]
        if silent or not features.requires_grad:
            raise ModelError(
                f"Layer {(silent or self.names)[0]!r} must run before the head, with gradients, for "
                'layers="tangent". It did not. Choose other layers, or look for no_grad in forward.'
            )
        slopes = _directions(self.n_outputs).to(head) @ head  # (J, d)
        derivatives = [
            torch.autograd.grad(
                features, leaves, slope.to(features).expand_as(features),
                retain_graph=True, allow_unused=True, materialize_grads=True,
            )
            for slope in slopes
        ]  # fmt: skip
        n, place, records, inputs = len(features), 0, [], []
        for layer in self.layers:
            name, module = layer.block.name, model.get_submodule(layer.block.name)
            own = []
            for call in calls[name]:
                d = [output_rows(module, each[place], n) for each in derivatives]
                own.append((torch.stack(d, 1), input_rows(module, call.x, n)))  # (B, J, T, o), (B, T, i)
                place += 1
            records.append(own)
            inputs.append(layer.block.vectors(calls[name][-1].x, n, mask).float())
        step = max(1, _HELD // self.length)
        parts = [self._rows(records, inputs, slice(k, k + step)) for k in range(0, n, step)]
        return torch.cat(parts).to(features)

    def _rows(self, records: list[list[tuple[Tensor, Tensor]]], inputs: list[Tensor], rows: slice) -> Tensor:
        """Compute the features of some samples from derivatives and inputs of the calls of each layer."""
        columns = []
        for layer, calls, vector in zip(self.layers, records, inputs, strict=True):
            own = [torch.einsum("bjto,bti->bjoi", d[rows].to(a), a[rows]).flatten(1) for d, a in calls]
            gradient = torch.stack(own).sum(0) if len(own) > 1 else own[0]
            if self.measured:
                share = math.sqrt(self._share(layer.parameters, layer.scale))
                columns += [gradient.mul_(share / layer.scale), vector[rows] * (share * math.sqrt(0.5))]
            else:
                columns += [gradient.norm(dim=1, keepdim=True), vector[rows].norm(dim=1, keepdim=True)]
        whole = torch.cat(columns, 1)
        if not self.measured or self.length <= WIDTH:
            return whole
        return Projection(WIDTH, self.length)(whole)


@contextmanager
def recording(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, list[LayerCall]]]:
    """Collect the calls of layers while the model runs, with gradients enabled; the hooks then go."""
    calls: dict[str, list[LayerCall]] = {name: [] for name in names}

    def hook(name: str, layer: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor:
        x = args[0] if args else next(iter(kwargs.values()))
        zero = torch.zeros_like(output, requires_grad=True)
        calls[name].append(LayerCall(x.detach().clone(), zero))  # the model may write into it later
        return output + zero

    with ExitStack() as hooks, torch.enable_grad():
        for name in names:
            layer = model.get_submodule(name)
            hooks.enter_context(layer.register_forward_hook(partial(hook, name), with_kwargs=True))
        yield calls


def has_matrix(module: nn.Module) -> bool:
    """Whether a layer has a weight matrix to train: ``nn.Linear``, or ``nn.Conv2d`` without groups."""
    plain = type(module) is nn.Linear or (type(module) is nn.Conv2d and module.groups == 1)
    return plain and module.weight.requires_grad  # type: ignore[return-value]


def input_rows(layer: nn.Module, x: Tensor, n: int) -> Tensor:
    """Return the inputs of a layer's weights at T places of n samples, (n, T, i), with a 1 last for bias."""
    x = _patches(layer, x) if isinstance(layer, nn.Conv2d) else x
    rows = x.reshape(n, -1, x.shape[-1])
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    return rows if layer.bias is None else functional.pad(rows, (0, 1), value=1.0)


def output_rows(layer: nn.Module, derivative: Tensor, n: int) -> Tensor:
    """Return the derivatives by a layer's outputs at T places of n samples, (n, T, o)."""
    if isinstance(layer, nn.Conv2d):
        derivative = derivative.flatten(2).transpose(1, 2)
    return derivative.reshape(n, -1, derivative.shape[-1])


def _patches(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Return the patches (B, T, i·h·w) of a convolution."""
    reach = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    if layer.padding == "same":
        sides = [(r // 2, r - r // 2) for r in reach]
    elif layer.padding == "valid":
        sides = [(0, 0), (0, 0)]
    else:
        sides = [(int(p), int(p)) for p in layer.padding]
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = functional.pad(x, (*sides[1], *sides[0]), mode=mode)
    return functional.unfold(padded, layer.kernel_size, layer.dilation, 0, layer.stride).transpose(1, 2)


def _directions(n_outputs: int) -> Tensor:
    """Return combinations V (J, K) of the logits with E VᵀV = I/K: each logit, or random signs of all."""
    if n_outputs <= DIRECTIONS:
        return torch.eye(n_outputs) / math.sqrt(n_outputs)
    signs = torch.randint(0, 2, (DIRECTIONS, n_outputs), generator=torch.Generator().manual_seed(0))
    return (2.0 * signs - 1.0) / math.sqrt(DIRECTIONS * n_outputs)
