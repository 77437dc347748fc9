"""The rules of layers with weights: dense, convolutional, and normalisation layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from whence.errors import ModelError
from whence.relevance.operations import product, stabilised
from whence.relevance.primitives import carries, kept, must_be_constant, ruled

if TYPE_CHECKING:
    from whence.relevance.propagation import Propagation


def linear(ctx: Propagation, func: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    """Dense layer."""
    if carries(weight) or carries(bias) or weight.ndim == 1:
        z = product(ctx, torch.matmul, input, weight.t())
        return z if bias is None else stabilised(ctx, torch.add, z, bias)
    return ctx.run_layer(ctx.layer(input, weight, bias), lambda x: F.linear(x, weight, bias))


def addmm(
    ctx: Propagation, func: Any, input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    """Dense layer with a transposed weight."""
    if carries(mat2) or carries(input) or input.ndim > 1 or beta != 1 or alpha != 1:
        return product(ctx, func, input, mat1, mat2, beta=beta, alpha=alpha)
    layer = ctx.layer(mat1, mat2.t(), input, stored=mat2)
    return ctx.run_layer(layer, lambda x: torch.addmm(input, x, mat2))


def convolution(dims: int, transposed: bool) -> Callable[..., Any]:
    """Make the rule of ``conv1d`` … ``conv_transpose3d``."""

    def several(value: Any) -> list[int]:
        return [value] * dims if isinstance(value, int) else list(value)

    def forwards(
        ctx: Propagation, func: Any, input: Any, weight: Any, bias: Any = None,
        stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    ) -> Any:  # fmt: skip
        x = input
        if padding == "same":
            total = [d * (k - 1) for d, k in zip(several(dilation), weight.shape[2:], strict=True)]
            if any(t % 2 for t in total):
                x = ctx.inside(F.pad, x, [side for t in reversed(total) for side in (0, t % 2)])
            padding = [t // 2 for t in total]
        padding = 0 if padding == "valid" else padding
        geometry = (several(stride), several(padding), several(dilation), False, [0] * dims, groups)
        return run(ctx, func, x, weight, bias, geometry)

    def backwards(
        ctx: Propagation, func: Any, input: Any, weight: Any, bias: Any = None, stride: Any = 1,
        padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        parts = (several(part) for part in (stride, padding, dilation, output_padding))
        stride, padding, dilation, output_padding = parts
        return run(ctx, func, input, weight, bias, (stride, padding, dilation, True, output_padding, groups))

    def run(ctx: Propagation, func: Any, x: Any, weight: Any, bias: Any, geometry: tuple[Any, ...]) -> Any:
        must_be_constant("a convolution's weight", weight, bias)
        batched = x if x.ndim == dims + 2 else ctx.inside(torch.unsqueeze, x, 0)
        layer = ctx.layer(batched, weight, bias, geometry)
        z = ctx.run_layer(layer, lambda x: torch.convolution(x, weight, bias, *geometry))
        return z if batched is x else z[0]

    return backwards if transposed else forwards


def batch_norm(
    ctx: Propagation, func: Any, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
    training: bool, momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    """Batch normalisation with fixed statistics: merged with the dense or convolutional layer before it.

    With max pooling between them, the selected values still count as those of one layer.
    """
    if training:
        raise ModelError(
            "Relevance has no rule for batch normalisation by the batch's own statistics. "
            "Set track_running_stats=True, or normalise by group or layer."
        )
    must_be_constant("a normalisation's weight", weight, bias)
    scale = torch.rsqrt(running_var + eps) * (1 if weight is None else weight)
    shift = (0 if bias is None else bias) - running_mean * scale

    def compute(x: Tensor) -> Tensor:
        return torch.batch_norm(
            x, weight, bias, running_mean, running_var, False, momentum, eps, cudnn_enabled
        )

    layer = ctx.made_by(input)
    # For a dense layer's output (B, T, d), the T places are normalised.
    if layer is not None and (layer.geometry is not None or input.ndim == 2):
        before = input.detach()
        fused = layer.fused(scale, shift)
        # Computed from the layer's output, so that the value is exactly the model's.
        return ctx.run_layer(fused, lambda x: compute(before))
    pooled = ctx.pooled(input)
    if pooled is not None:
        whole = ctx.run_layer(pooled.layer.fused(scale, shift), lambda x: compute(pooled.values))
        before, rows = input.detach(), pooled.places().flatten(2)

        def back(c: Tensor, z: Tensor, whole: Tensor) -> Tensor:
            # Windows may overlap: a value selected twice has the relevance of both.
            total = torch.zeros_like(whole).flatten(2).scatter_add(2, rows, c.reshape(rows.shape))
            return total.reshape(whole.shape)

        return ruled(lambda whole: compute(before), back, whole)
    across = scale.view(1, -1, *(1,) * (input.ndim - 2))
    epsilon = ctx.rules.epsilon
    return ruled(compute, lambda c, z, x: c * (kept(z, epsilon) if epsilon else 1) * across, input)


def layer_norm(
    ctx: Propagation, func: Any, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None,
    eps: float = 1e-5, cudnn_enable: bool = True,
) -> Any:  # fmt: skip
    """Layer normalisation: the scale is a constant, the subtraction of the mean is linear."""
    shape = normalized_shape
    return _normalised(
        lambda x: torch.layer_norm(x, shape, weight, bias, eps, cudnn_enable),
        input, _last(len(shape)), weight, bias, eps,
    )  # fmt: skip


def group_norm(
    ctx: Propagation, func: Any, input: Any, num_groups: int, weight: Any = None, bias: Any = None,
    eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    """Group normalisation, as layer normalisation of each group."""
    return _normalised(
        lambda x: torch.group_norm(x, num_groups, weight, bias, eps, cudnn_enabled),
        input, lambda x: x.reshape(len(x), num_groups, -1), _by_channel(weight, input), bias, eps,
    )  # fmt: skip


def instance_norm(
    ctx: Propagation, func: Any, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
    use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    """Instance normalisation, as group normalisation with one group per channel."""
    rest = (weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled)
    if not use_input_stats:
        return batch_norm(ctx, func, input, *rest)
    return _normalised(
        lambda x: torch.instance_norm(x, *rest),
        input, lambda x: x.reshape(*x.shape[:2], -1), _by_channel(weight, input), bias, eps,
    )  # fmt: skip


def rms_norm(
    ctx: Propagation, func: Any, input: Any, normalized_shape: Any, weight: Any = None,
    eps: float | None = None,
) -> Any:  # fmt: skip
    """Root mean square normalisation: the scale is a constant."""
    shape, floor = normalized_shape, torch.finfo(input.dtype).eps if eps is None else eps
    return _normalised(
        lambda x: torch.rms_norm(x, shape, weight, eps),
        input, _last(len(shape)), weight, None, floor, centred=False,
    )  # fmt: skip


def _last(n: int) -> Callable[[Tensor], Tensor]:
    """Return the function that flattens the last n dimensions to one."""
    return lambda x: x.reshape(*x.shape[:-n], -1)


def _by_channel(weight: Any, x: Tensor) -> Any:
    """Reshape the weights of channels for x (B, channels, …)."""
    return None if weight is None else weight.view(-1, *(1,) * (x.ndim - 2))


def _normalised(
    compute: Callable[[Tensor], Tensor], x: Any, rows: Callable[[Tensor], Tensor], weight: Any, bias: Any,
    eps: float, centred: bool = True,
) -> Any:  # fmt: skip
    """Normalise along the last dimension of ``rows``: the scale is a constant, centring is linear."""
    must_be_constant("a normalisation's weight", weight, bias)

    def back(c: Tensor, z: Tensor, x: Tensor) -> Tensor:
        values, s = rows(x), rows(c if weight is None else c * weight)
        size = (
            values.var(-1, correction=0, keepdim=True) if centred else values.square().mean(-1, keepdim=True)
        )
        s = s * torch.rsqrt(size + eps)
        return (s - s.mean(-1, keepdim=True) if centred else s).view_as(x)

    return ruled(compute, back, x)
