"""Which operation goes by which rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whence.relevance import layers, operations

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
    **dict.fromkeys(_ACTIVATIONS.split(), operations.IDENTITY),
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
