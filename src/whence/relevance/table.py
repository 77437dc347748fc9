"""Which operation goes by which rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whence.relevance.layers import (
    addmm,
    batch_norm,
    convolution,
    group_norm,
    instance_norm,
    layer_norm,
    linear,
    rms_norm,
)
from whence.relevance.operations import (
    DETACH,
    IDENTITY,
    absolute,
    attention,
    divide,
    glu,
    multiply,
    power,
    product,
    softmax,
    spread_and_mean,
    stabilised,
)

_ACTIVATIONS = (
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
    **dict.fromkeys(_ACTIVATIONS.split(), IDENTITY),
    **dict.fromkeys(_CONSTANTS.split(), DETACH),
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
    "pow": power,
    "float_power": power,
    "abs": absolute,
    "var_mean": spread_and_mean,
    "std_mean": spread_and_mean,
    "mul": multiply,
    "div": divide,
    "softmax": softmax,
    "scaled_dot_product_attention": attention,
}
