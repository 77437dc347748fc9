"""Building blocks of rules: autograd functions with a rule as gradient, and calls of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from whence.errors import ModelError

if TYPE_CHECKING:
    from whence.relevance.rules import LayerRule


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Return the tensors in lists, tuples and dicts."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple | dict):
        for value in values.values() if isinstance(values, dict) else values:
            yield from tensors_in(value)


def mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Apply a function to the tensors in lists and tuples."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        parts = [mapped(change, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def carries(x: Any) -> bool:
    """Return whether relevance flows through x."""
    return isinstance(x, Tensor) and x.requires_grad


def must_be_constant(what: str, *values: Any) -> None:
    """Raise ModelError if one of the values has relevance."""
    if any(map(carries, values)):
        raise ModelError(f"Relevance has no rule for {what} that depends on the input.")


Stabiliser = float | Tensor
"""ε, a number, or one per sample or place if it is relative."""


def stab(z: Tensor, epsilon: Stabiliser) -> Tensor:
    """Move z away from 0 by ε, upwards at 0."""
    return z + epsilon * torch.where(z >= 0, 1.0, -1.0).to(z)  # ±1 is exact in every precision


def kept(z: Tensor, epsilon: Stabiliser) -> Tensor:
    """Return z / stab(z), the share of c that the stabiliser keeps: 0 at 0."""
    return z / stab(z, epsilon)


def identity(z: Tensor, x: Tensor) -> Tensor:
    """Return z / x, the factor that passes on all relevance, 0 at x = 0."""
    return torch.where(x == 0, 0, z / torch.where(x == 0, 1, x))


class Ruled(torch.autograd.Function):
    """An operation with a rule: ``compute(*inputs)`` is its value, ``back(c, z, *inputs)`` the inputs' c.

    ``again(*inputs)`` gives the value once more, where the model has overwritten it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[..., Tensor],
        back: Callable[..., Any],
        again: Callable[..., Tensor],
        *inputs: Tensor,
    ) -> Tensor:
        """Compute the value."""
        z = compute(*inputs)
        ctx.save_for_backward(*inputs)
        ctx.again, ctx.back = again, back
        ctx.z, ctx.version = z.detach(), z._version
        return z

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> Any:
        """Apply the rule."""
        inputs = ctx.saved_tensors
        # An in-place ReLU may have overwritten the value since.
        z = ctx.z if ctx.z._version == ctx.version else ctx.again(*inputs)
        given = ctx.back(c, z, *inputs)
        return None, None, None, *(given if isinstance(given, tuple) else (given,))


class Scaled(torch.autograd.Function):
    """A value whose c is multiplied by a factor: in place, or as a view if others use it too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor | float, own: bool) -> Tensor:
        """Return x itself."""
        ctx.factor = factor
        if own:
            ctx.mark_dirty(x)
        return x if own else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> Any:
        """Apply the rule."""
        return c * ctx.factor, None, None


RULES = (Ruled, Scaled)


def ruled(
    compute: Callable[..., Tensor],
    back: Callable[..., Any],
    *inputs: Tensor,
    again: Callable[..., Tensor] | None = None,
) -> Tensor:
    """Return the value ``compute(*inputs)`` with the rule ``back(c, z, *inputs)``."""
    return Ruled.apply(compute, back, again or compute, *inputs)  # type: ignore[no-untyped-call, no-any-return]


def fraction(x: Tensor, part: float) -> Tensor:
    """Return x as a factor of a product, which gets a share of the incoming c."""
    return Scaled.apply(x, part, False)  # type: ignore[no-untyped-call, no-any-return]


def stabilise(z: Tensor, epsilon: float) -> Tensor:
    """Return the value z of a linear operation, whose c is multiplied by z / stab(z)."""
    return Scaled.apply(z, kept(z.detach(), epsilon), True)  # type: ignore[no-untyped-call, no-any-return]


class Layer(NamedTuple):
    """A call of a dense or convolutional layer: z = W∗x + b.

    Attributes
    ----------
    geometry : stride, padding, dilation, transposed, output padding and groups of a convolution; None for
        a dense layer
    named : whether the user chose the rule for this very layer
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    geometry: tuple[Any, ...] | None
    rule: LayerRule
    named: bool

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Apply the layer with another weight."""
        if self.geometry is None:
            return F.linear(x, weight, bias)
        return torch.convolution(x, weight, bias, *self.geometry)

    def transpose(self, s: Tensor, weight: Tensor) -> Tensor:
        """Apply the layer's transpose, Wᵀs."""
        if self.geometry is None:
            return s @ weight
        gradients = torch.ops.aten.convolution_backward(
            s, self.x.detach(), weight, None, *self.geometry, [True, False, False]
        )
        return gradients[0]  # type: ignore[no-any-return]

    def size(self, z: Tensor) -> Tensor:
        """Return the root mean square of outputs z, per sample (B, 1, …) or place of a dense layer (…, 1)."""
        dims = -1 if self.geometry is None else tuple(range(1, z.ndim))
        return z.square().mean(dims, keepdim=True).sqrt()

    def fused(self, scale: Tensor, shift: Tensor) -> Layer:
        """Return the layer with the output ``scale`` · z + ``shift``, channel by channel."""
        transposed = self.geometry is not None and self.geometry[3]
        weight = self.weight
        if transposed:  # (in, out / groups, …): output channels are in groups
            groups = self.geometry[5]  # type: ignore[index]
            per_input = scale.view(groups, -1).repeat_interleave(len(weight) // groups, 0)
            weight = weight * per_input.view(*per_input.shape, *(1,) * (weight.ndim - 2))
        else:
            weight = weight * scale.view(-1, *(1,) * (weight.ndim - 1))
        return self._replace(weight=weight, bias=shift if self.bias is None else self.bias * scale + shift)


class Pooled(NamedTuple):
    """The selection of max pooling from a layer's output.

    Attributes
    ----------
    layer, values : the layer, and its output
    places : gives where in each channel of the output the chosen values lie
    """

    layer: Layer
    values: Tensor
    places: Callable[[], Tensor]


def chosen(x: Tensor, places: Tensor) -> Tensor:
    """Return the values of x (B, channels, …) at places (B, channels, …) of each channel."""
    return x.flatten(2).gather(2, places.flatten(2)).view_as(places)
