"""The rules of relevance propagation: one small function an operation.

Autograd carries c = R / activation instead of the relevance R itself. Every linear operation is then right by
its plain gradient, nothing divides by activations, and only what is nonlinear, bilinear or has a rule of its
own is written here. A rule returns the operation's exact value and says how c goes backwards; z is the
operation's output, ε a small constant, and stab(z) = z + ε·sign(z) with sign(0) = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from whence.errors import ModelError
from whence.relevance.presets import LayerRule, Rules
from whence.relevance.primitives import Layer, fraction, identity, kept, ruled, stabilise


class Context(Protocol):
    """What a rule knows of the propagation that it is part of."""

    rules: Rules

    def approved(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the function and let autograd follow, though it is not linear."""

    def layer_rule(self, weight: Any, convolution: bool) -> tuple[LayerRule, bool]:
        """Give the rule of the layer with this weight, and whether the user chose it."""

    def run_layer(self, layer: Layer, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Give the value of a layer, with its rule."""

    def made_by(self, z: Tensor) -> Layer | None:
        """Give the layer whose output z is, unchanged."""

    def root(self, x: Tensor) -> Tensor:
        """Give the tensor of which x is a function element by element, x itself if it is of no other."""

    def is_gate(self, x: Any) -> bool:
        """Whether x is the output of a sigmoid."""


def carries(x: Any) -> bool:
    """Whether relevance flows through x."""
    return isinstance(x, Tensor) and x.requires_grad


def linear(ctx: Context, func: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    """Dense layer."""
    if carries(weight) or carries(bias):
        z = product(ctx, torch.matmul, input, weight.mT)
        return z if bias is None else stabilised(ctx, torch.add, z, bias)
    rule, named = ctx.layer_rule(weight, False)
    return ctx.run_layer(Layer(input, weight, bias, None, rule, named), lambda x: F.linear(x, weight, bias))


def addmm(ctx: Context, func: Any, bias: Any, x: Any, weight: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Dense layer whose weight is stored the other way round."""
    if carries(weight) or carries(bias) or beta != 1 or alpha != 1:
        return product(ctx, func, bias, x, weight, beta=beta, alpha=alpha)
    rule, named = ctx.layer_rule(weight, False)
    layer = Layer(x, weight.t(), bias, None, rule, named)
    return ctx.run_layer(layer, lambda x: torch.addmm(bias, x, weight))


def convolution(dims: int, transposed: bool) -> Callable[..., Any]:
    """Make the rule of ``conv1d`` … ``conv_transpose3d``."""

    def several(value: Any) -> list[int]:
        return [value] * dims if isinstance(value, int) else list(value)

    def forwards(
        ctx: Context, func: Any, input: Any, weight: Any, bias: Any = None,
        stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    ) -> Any:  # fmt: skip
        if carries(weight):
            raise ModelError("Relevance has no rule for a convolution whose weight depends on the input.")
        x = input
        if padding == "same":
            total = [d * (k - 1) for d, k in zip(several(dilation), weight.shape[2:], strict=True)]
            if any(t % 2 for t in total):
                x = F.pad(x, [side for t in reversed(total) for side in (0, t % 2)])
            padding = [t // 2 for t in total]
        padding = 0 if padding == "valid" else padding
        geometry = (several(stride), several(padding), several(dilation), False, [0] * dims, groups)
        return run(ctx, func, x, weight, bias, geometry)

    def backwards(
        ctx: Context, func: Any, input: Any, weight: Any, bias: Any = None, stride: Any = 1,
        padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        parts = (several(part) for part in (stride, padding, dilation, output_padding))
        stride, padding, dilation, output_padding = parts
        return run(ctx, func, input, weight, bias, (stride, padding, dilation, True, output_padding, groups))

    def run(ctx: Context, func: Any, x: Any, weight: Any, bias: Any, geometry: tuple[Any, ...]) -> Any:
        batched = x if x.ndim == dims + 2 else x[None]
        rule, named = ctx.layer_rule(weight, True)
        layer = Layer(batched, weight, bias, geometry, rule, named)
        z = ctx.run_layer(layer, lambda x: torch.convolution(x, weight, bias, *geometry))
        return z if batched is x else z[0]

    return backwards if transposed else forwards


def batch_norm(
    ctx: Context, func: Any, input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool,
    momentum: float, eps: float, cudnn: bool = True,
) -> Any:  # fmt: skip
    """Batch normalisation with fixed statistics: one layer with the dense or convolutional one before it."""
    if training:
        raise ModelError(
            "Relevance has no rule for batch normalisation by the batch's own statistics. "
            "Set track_running_stats=True, or normalise by group or layer."
        )
    scale = torch.rsqrt(var + eps) * (1 if weight is None else weight)
    shift = (0 if bias is None else bias) - mean * scale

    def compute(x: Tensor) -> Tensor:
        return torch.batch_norm(x, weight, bias, mean, var, False, momentum, eps, cudnn)

    layer = ctx.made_by(input)
    if layer is not None:
        before = input.detach()
        fused = layer.fused(scale, shift)
        # Computed from the layer's own output, so that the value is the model's to the bit.
        return ctx.run_layer(fused, lambda x: compute(before))
    across = scale.view(1, -1, *(1,) * (input.ndim - 2))
    epsilon = ctx.rules.epsilon
    return ruled(compute, lambda c, z, x: c * (kept(z, epsilon) if epsilon else 1) * across, input)


def layer_norm(
    ctx: Context, func: Any, input: Any, shape: Any, weight: Any = None, bias: Any = None,
    eps: float = 1e-5, cudnn: bool = True,
) -> Any:  # fmt: skip
    """Layer normalisation: the scale is a constant, the subtraction of the mean is linear."""
    dims = list(range(-len(shape), 0))

    def back(c: Tensor, z: Tensor, x: Tensor) -> Tensor:
        s = (c if weight is None else c * weight) * torch.rsqrt(x.var(dims, correction=0, keepdim=True) + eps)
        return s - s.mean(dims, keepdim=True)

    return ruled(lambda x: torch.layer_norm(x, shape, weight, bias, eps, cudnn), back, input)


def group_norm(
    ctx: Context, func: Any, input: Any, num_groups: int, weight: Any = None, bias: Any = None,
    eps: float = 1e-5, cudnn: bool = True,
) -> Any:  # fmt: skip
    """Group normalisation, as layer normalisation of each group."""

    def back(c: Tensor, z: Tensor, x: Tensor) -> Tensor:
        groups = x.reshape(len(x), num_groups, -1)  # (B, groups, channels × places)
        scale = torch.rsqrt(groups.var(2, correction=0, keepdim=True) + eps)
        s = c if weight is None else c * weight.view(-1, *(1,) * (x.ndim - 2))
        s = s.reshape(groups.shape) * scale
        return (s - s.mean(2, keepdim=True)).view_as(x)

    return ruled(lambda x: torch.group_norm(x, num_groups, weight, bias, eps, cudnn), back, input)


def instance_norm(
    ctx: Context, func: Any, input: Any, weight: Any, bias: Any, mean: Any, var: Any, use_input_stats: bool,
    momentum: float, eps: float, cudnn: bool = True,
) -> Any:  # fmt: skip
    """Instance normalisation, as group normalisation with a group a channel."""
    if not use_input_stats:
        return batch_norm(ctx, func, input, weight, bias, mean, var, False, momentum, eps, cudnn)
    return group_norm(ctx, func, input, input.shape[1], weight, bias, eps, cudnn)


def rms_norm(
    ctx: Context, func: Any, input: Any, shape: Any, weight: Any = None, eps: float | None = None
) -> Any:
    """Root mean square normalisation: the scale is a constant."""
    dims = list(range(-len(shape), 0))
    floor = torch.finfo(input.dtype).eps if eps is None else eps

    def back(c: Tensor, z: Tensor, x: Tensor) -> Tensor:
        s = c if weight is None else c * weight
        return s * torch.rsqrt(x.square().mean(dims, keepdim=True) + floor)

    return ruled(lambda x: torch.rms_norm(x, shape, weight, eps), back, input)


def activation(ctx: Context, func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Activation, element by element: all relevance goes on, c·f(x)/x."""
    if not carries(input):  # a number to the power of x, say
        return detached(ctx, func, input, *args, **kwargs)
    args, kwargs = constants(args), dict(zip(kwargs, constants(kwargs.values()), strict=True))
    return ruled(lambda x: func(x, *args, **kwargs), lambda c, z, x: c * identity(z, x), input)


def glu(ctx: Context, func: Any, input: Any, dim: int = -1) -> Any:
    """Gated linear unit: the gate is a constant."""
    gate = input.detach().chunk(2, dim)[1].sigmoid()
    values = input.chunk(2, dim)[0]
    both = input.detach()
    return ruled(lambda values: torch.nn.functional.glu(both, dim), lambda c, z, v: c * gate, values)


def detached(ctx: Context, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Norms, variances, roots and denominators are constants."""
    return func(*constants(args), **dict(zip(kwargs, constants(kwargs.values()), strict=True)))


def multiply(ctx: Context, func: Any, input: Any, other: Any) -> Any:
    """Product, element by element."""
    a, b = input, other
    if not (carries(a) and carries(b)):
        return func(a, b)
    if ctx.is_gate(a) or ctx.is_gate(b):
        return func(a.detach(), b) if ctx.is_gate(a) else func(a, b.detach())
    root = ctx.root(a)
    if root is ctx.root(b) and root.numel() == max(a.numel(), b.numel()):
        # Two functions of one tensor are one function of it: an activation in several steps.
        a, b = a.detach(), b.detach()
        return ruled(lambda x: func(a, b), lambda c, z, x: c * identity(z, x), root)
    return product(ctx, func, a, b)


def divide(ctx: Context, func: Any, input: Any, other: Any, **kwargs: Any) -> Any:
    """Quotient: the denominator is a constant."""
    return func(input, *constants([other]), **kwargs)


def product(ctx: Context, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Product of matrices or elements: each of n factors that carry relevance gets 1/n of the gradient."""
    name = getattr(func, "__name__", "")
    addend = args[:1] if name in ("addmm", "addbmm", "baddbmm", "addmv") else ()
    operands = args[len(addend) :]
    parts = operands[1] if name == "einsum" and len(operands) == 2 else operands
    n = sum(map(carries, parts if isinstance(parts, list | tuple) else [parts]))
    if n < 2:
        return stabilised(ctx, func, *args, **kwargs)

    def share(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return type(x)(map(share, x))
        return fraction(x, 1 / n) if carries(x) else x

    return ctx.approved(func, (*addend, *map(share, operands)), kwargs)


def stabilised(ctx: Context, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Sums, means and products with constants: shares of a stabilised output."""
    z = func(*args, **kwargs)
    # An operation may give back its input, which must stay as it is, or a view of it.
    fresh = carries(z) and not z._is_view() and not any(z is x for x in args)
    return stabilise(z, ctx.rules.epsilon) if ctx.rules.epsilon and fresh else z


def attention(
    ctx: Context, func: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Scaled dot-product attention: two products and a softmax between them."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    flows = ctx.rules.attention and (carries(query) or carries(key))
    share = 0.5 if flows and carries(value) else 1.0
    within = 0.5 if carries(query) and carries(key) else 1.0

    def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )

    def back(c: Tensor, z: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor | None, ...]:
        groups = q.shape[-3] // k.shape[-3] if enable_gqa else 1
        if groups > 1:
            k, v = k.repeat_interleave(groups, -3), v.repeat_interleave(groups, -3)
        weights = _attention_weights(q @ k.mT * factor, attn_mask, is_causal)
        c = share * c
        to_v: Tensor = weights.mT @ c
        to_q = to_k = None
        if flows:
            s = c @ v.mT
            s = weights * (s - (weights * s).sum(-1, keepdim=True)) * (factor * within)
            to_q, to_k = s @ k, s.mT @ q
        if groups > 1:
            to_v = _grouped(to_v, groups)
            to_k = None if to_k is None else _grouped(to_k, groups)
        return to_q, to_k, to_v

    return ruled(compute, back, query, key, value)


def _grouped(c: Tensor, groups: int) -> Tensor:
    """Sum over the queries' heads that share a head of keys and values."""
    heads = c.shape[-3] // groups
    return c.reshape(*c.shape[:-3], heads, groups, *c.shape[-2:]).sum(-3)


def _attention_weights(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    if is_causal:
        rows, columns = scores.shape[-2:]
        mask = torch.ones(rows, columns, dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1).nan_to_num(0.0)  # a row that may look nowhere gives 0


def softmax(ctx: Context, func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Softmax: its gradient, or a constant where relevance does not flow to queries and keys."""
    if not ctx.rules.attention:
        return detached(ctx, func, x, *args, **kwargs)
    return ctx.approved(func, (x, *args), kwargs)


def constants(values: Any) -> tuple[Any, ...]:
    """Detach the tensors among some values."""
    return tuple(
        value.detach()
        if isinstance(value, Tensor)
        else type(value)(constants(value))
        if isinstance(value, list | tuple)
        else value
        for value in values
    )


_ACTIVATIONS = (
    "gelu silu mish tanh elu selu celu softplus softsign hardswish hardtanh relu6 sigmoid hardsigmoid rrelu "
    "logsigmoid log_sigmoid erf clamp clip clamp_min clamp_max threshold tanhshrink hardshrink softshrink "
    "square pow"
)
_CONSTANTS = (
    "norm vector_norm linalg_vector_norm linalg_norm var std var_mean std_mean sqrt rsqrt reciprocal rdiv "
    "rtruediv sign round floor ceil"
)
_SUMS = (
    "add sub rsub radd mean sum avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d"
)
_PRODUCTS = "matmul rmatmul mm bmm mv dot einsum baddbmm addbmm addmv inner outer tensordot"

GATES = {"sigmoid", "hardsigmoid"}

TABLE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_ACTIVATIONS.split(), activation),
    **dict.fromkeys(_CONSTANTS.split(), detached),
    **dict.fromkeys(_SUMS.split(), stabilised),
    **dict.fromkeys(_PRODUCTS.split(), product),
    **{f"conv{n}d": convolution(n, False) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": convolution(n, True) for n in (1, 2, 3)},
    "linear": linear,
    "addmm": addmm,
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "rms_norm": rms_norm,
    "glu": glu,
    "mul": multiply,
    "multiply": multiply,
    "rmul": multiply,
    "div": divide,
    "divide": divide,
    "true_divide": divide,
    "truediv": divide,
    "softmax": softmax,
    "scaled_dot_product_attention": attention,
}
