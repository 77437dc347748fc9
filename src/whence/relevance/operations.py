"""The rules of single operations without weights, one small function each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from whence.relevance.primitives import (
    carries,
    fraction,
    identity,
    mapped,
    must_be_constant,
    ruled,
    stabilise,
    tensors_in,
)
from whence.relevance.rules import Detach, Identity

if TYPE_CHECKING:
    from whence.relevance.propagation import Propagation

IDENTITY, DETACH = Identity(), Detach()


def power(ctx: Propagation, func: Any, input: Any, exponent: Any) -> Any:
    """Power: an activation; with a negative exponent a constant, like other denominators."""
    must_be_constant("an exponent", exponent)
    negative = bool((torch.as_tensor(exponent) < 0).all())
    return (DETACH if negative else IDENTITY)(ctx, func, input, exponent)


def absolute(ctx: Propagation, func: Any, input: Any) -> Any:
    """Absolute value: linear on both sides of 0; a norm for complex numbers."""
    return DETACH(ctx, func, input) if input.is_complex() else func(input)


def glu(ctx: Propagation, func: Any, input: Any, dim: int = -1) -> Any:
    """Gated linear unit: the gate is a constant."""
    gate = input.detach().chunk(2, dim)[1].sigmoid()
    values = input.chunk(2, dim)[0]
    both = input.detach()
    return ruled(lambda values: torch.nn.functional.glu(both, dim), lambda c, z, v: c * gate, values)


def spread_and_mean(ctx: Propagation, func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Variance or standard deviation, a constant, with the mean, which is linear."""
    spread, _ = func(input.detach(), *args, **kwargs)
    mean = ctx.approved(lambda x: func(x, *args, **kwargs)[1], (input,), {})
    return spread, stabilise(mean.clone(), ctx.rules.epsilon) if ctx.rules.epsilon else mean


def multiply(ctx: Propagation, func: Any, input: Any, other: Any) -> Any:
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


def divide(ctx: Propagation, func: Any, input: Any, other: Any, **kwargs: Any) -> Any:
    """Quotient: the denominator is a constant."""
    return func(input, mapped(Tensor.detach, other), **kwargs)


def product(ctx: Propagation, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Product of matrices or elements: each of n factors with relevance gets 1/n of the gradient."""
    adds = func.__name__.split(".")[0] in ("addmm", "addbmm", "baddbmm", "addmv", "addr")
    addend, operands = (args[:1], args[1:]) if adds else ((), args)
    named = {key: value for key, value in kwargs.items() if not (adds and key == "input")}
    n = sum(map(carries, tensors_in((operands, named))))
    if n < 2:
        return stabilised(ctx, func, *args, **kwargs)

    def share(x: Tensor) -> Tensor:
        return fraction(x, 1 / n) if carries(x) else x

    shared = {key: mapped(share, value) for key, value in named.items()}
    return ctx.approved(func, (*addend, *mapped(share, operands)), {**kwargs, **shared})


def stabilised(ctx: Propagation, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Sums, means and products with constants: shares of a stabilised output."""
    z = func(*args, **kwargs)
    if not ctx.rules.epsilon or not carries(z):
        return z
    # An operation may return its input, or a view of it: then nothing was summed.
    memory = z.untyped_storage().data_ptr()
    if any(x.untyped_storage().data_ptr() == memory for x in tensors_in((args, kwargs))):
        return z
    return stabilise(z.clone() if z._is_view() else z, ctx.rules.epsilon)


def attention(
    ctx: Propagation, func: Any, query: Any, key: Any, value: Any, attn_mask: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Scaled dot-product attention: two products and a softmax between them."""
    must_be_constant("an attention mask", attn_mask)
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
    """Sum over the query heads that share a head of keys and values."""
    heads = c.shape[-3] // groups
    return c.reshape(*c.shape[:-3], heads, groups, *c.shape[-2:]).sum(-3)


def _attention_weights(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    if is_causal:
        rows, columns = scores.shape[-2:]
        mask = torch.ones(rows, columns, dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1).nan_to_num(0.0)  # a fully masked row gives 0


def softmax(ctx: Propagation, func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Softmax: its gradient, or a constant if relevance does not flow to queries and keys."""
    if not ctx.rules.attention:
        return DETACH(ctx, func, input, *args, **kwargs)
    return ctx.approved(func, (input, *args), kwargs)
