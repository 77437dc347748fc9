"""The functions that a model calls: their plain names, what they are made of, and which rule they go by."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from whence.errors import ModelError
from whence.relevance import layers, operations

UNTOUCHED = {"__get__", "__set__", "__delete__", "backward", "detach", "detach_", "requires_grad_"}
_ALIASES = {"multiply": "mul", "rmul": "mul", "divide": "div", "true_divide": "div", "truediv": "div"}
_ALIASES |= {"subtract": "sub", "radd": "add", "negative": "neg", "absolute": "abs", "clip": "clamp"}
_ALIASES |= {"special_erf": "erf", "special_expit": "sigmoid", "special_softmax": "softmax"}
_INPLACE_DUNDERS = {f"__i{name}__": name for name in ("add", "sub", "mul", "truediv", "div", "pow", "matmul")}


def base_name(name: str) -> tuple[str, bool]:
    """Return a function's plain name, and whether it works in place by its looks: add of ``__iadd__``."""
    name = name.split(".")[0]  # torch.ops.aten.add.Tensor
    if name in _INPLACE_DUNDERS:
        base, in_place = _INPLACE_DUNDERS[name], True
    elif name.startswith("__") and name.endswith("__"):
        base, in_place = name[2:-2], False
    else:
        base, in_place = name.removesuffix("_"), name.endswith("_")
    return _ALIASES.get(base, base), in_place


def out_of_place(base: str, func: Any) -> Any:
    """Find the function that gives a new tensor instead of writing into its argument."""
    scopes = (Tensor, torch, torch._C._nn)
    found = next((getattr(scope, base) for scope in scopes if hasattr(scope, base)), None)
    if found is None:
        raise ModelError(f"Relevance cannot follow {func.__name__}, which works in place. Use {base}.")
    return found


@cache
def opened(func: Any) -> Any:
    """Return a function of ``torch.nn.functional`` that is written in Python, to be run inside the mode.

    Such functions hand themselves over to the mode before they do anything. This copy of the function does
    not, so that the mode sees what it is made of.
    """
    if not isinstance(func, types.FunctionType) or func.__globals__ is not vars(F):
        return None
    checks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    inside = {**vars(F), **dict.fromkeys(checks, lambda *_: False)}
    copy = types.FunctionType(func.__code__, inside, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


ACTIVATIONS = (
    "gelu silu mish tanh elu selu celu softplus hardswish hardtanh relu6 sigmoid hardsigmoid rrelu "
    "log_sigmoid erf clamp clamp_min clamp_max threshold hardshrink softshrink square"
)
_CONSTANTS = (
    "norm vector_norm linalg_vector_norm linalg_norm var std sqrt rsqrt reciprocal rdiv sign round floor ceil"
)
_SUMS = (
    "add sub rsub mean sum avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d"
)
_PRODUCTS = "matmul rmatmul mm bmm mv dot einsum baddbmm addbmm addmv addr inner outer tensordot"

GATES = {"sigmoid", "hardsigmoid"}

TABLE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(ACTIVATIONS.split(), operations.IDENTITY),
    **dict.fromkeys(_CONSTANTS.split(), operations.DETACH),
    **dict.fromkeys(_SUMS.split(), operations.stabilised),
    **dict.fromkeys(_PRODUCTS.split(), operations.product),
    **{f"conv{n}d": layers.convolution(n, False) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": layers.convolution(n, True) for n in (1, 2, 3)},
    "linear": layers.linear,
    "addmm": layers.addmm,
    "batch_norm": layers.batch_norm,
    "layer_norm": layers.layer_norm,
    "group_norm": layers.group_norm,
    "instance_norm": layers.instance_norm,
    "rms_norm": layers.rms_norm,
    "glu": operations.glu,
    "pow": operations.power,
    "float_power": operations.power,
    "abs": operations.absolute,
    "var_mean": operations.spread_and_mean,
    "std_mean": operations.spread_and_mean,
    "mul": operations.multiply,
    "div": operations.divide,
    "softmax": operations.softmax,
    "scaled_dot_product_attention": operations.attention,
}
