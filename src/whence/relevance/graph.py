"""The leak check: every operation on the path of relevance is linear or has a rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.autograd.function import BackwardCFunction

from whence.errors import ModelError
from whence.relevance.primitives import RULES

Node = Any  # torch.autograd.graph.Node

# Operations whose gradient is their rule: linear ones, selections among inputs, and activations that are
# linear on both sides of 0. By the names of their autograd nodes.
_LINEAR = (
    "Add Sub Rsub Neg Sum Mean Cumsum Trace Diff View UnsafeView Reshape ReshapeAlias AsStrided Expand "
    "Permute Transpose T MT Unsqueeze Squeeze Select Slice Narrow Index IndexSelect Gather Scatter "
    "ScatterAdd IndexAdd IndexCopy IndexPut IndexPutImpl TakeAlongDim Take Cat Stack Split SplitWithSizes "
    "SafeSplit Chunk Unbind Clone ToCopy Copy CopyBackwards CopySlices Alias Detach Diagonal Unfold "
    "Im2Col Col2Im Repeat RepeatInterleave Roll Flip Rot90 Tril Triu MaskedFill MaskedScatter "
    "MaskedSelect Where PixelShuffle PixelUnshuffle ChannelShuffle ConstantPadNd ReflectionPad1D "
    "ReflectionPad2D ReflectionPad3D ReplicationPad1D ReplicationPad2D ReplicationPad3D AvgPool2D "
    "AvgPool3D AdaptiveAvgPool2D AdaptiveAvgPool3D MkldnnAdaptiveAvgPool2D UpsampleNearest1D "
    "UpsampleNearest2D UpsampleNearest3D UpsampleBilinear2D UpsampleBicubic2D UpsampleLinear1D "
    "UpsampleTrilinear3D UpsampleNearestExact1D UpsampleNearestExact2D UpsampleNearestExact3D "
    "NativeDropout Relu LeakyRelu Abs Maximum Minimum Max Min Amax Amin Topk Sort Kthvalue "
    "MaxPool2DWithIndices MaxPool3DWithIndices AdaptiveMaxPool2D AdaptiveMaxPool3D Lift Real Imag Complex "
    "ViewAsReal ViewAsComplex Conj ConjPhysical NegView FftR2C FftC2C FftC2R"
)
# Linear if only one of their inputs has relevance; for a quotient, the numerator.
_BILINEAR = {"Mul", "Div", "Mm", "Bmm", "Mv", "Dot", "Addmm", "Addmv", "Baddbmm", "Addbmm", "Addr", "Addcmul"}
_BILINEAR |= {"Lerp", "Prelu", "PreluKernel"}
_PLAIN = set(_LINEAR.split())
_SUMMAND_FIRST = {"Addmm", "Addmv", "Baddbmm", "Addbmm", "Addcmul", "Addr"}


def nodes_between(outputs: Iterable[Tensor], inputs: Iterable[Tensor]) -> set[Node]:
    """Collect the autograd nodes of one operation, from its outputs to its inputs."""
    ends = {x.grad_fn for x in inputs}
    return {node for output in outputs for node in _walk(output.grad_fn, ends)}


def check_no_leak(features: Tensor, approved: set[Node], ends: Iterable[Tensor]) -> None:
    """Raise ModelError, naming the operation, if relevance would flow by a gradient that is not a rule.

    ``approved`` are the nodes whose gradient was chosen for a rule, ``ends`` the tensors where it may end.
    """
    leaves = {id(end) for end in ends}
    for node in _walk(features.grad_fn, set()):
        if node in approved:
            continue
        kind = _kind(node)
        if kind == "AccumulateGrad":
            if id(node.variable) not in leaves:
                raise ModelError(
                    f"Relevance would flow to a tensor of shape {tuple(node.variable.shape)} that is no "
                    "input of the model. A weight that was computed before the pass, or that a scripted part "
                    "uses, must not require a gradient: detach it."
                )
        elif not _has_rule(node, kind):
            readable = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()
            raise ModelError(
                f"Relevance has no rule for the operation '{readable}' (autograd node {node.name()}). "
                "If it is a torch function, give it a rule with Rules(operations={…}): gradient where "
                "it is linear, identity for an activation, detach for a gate. If it is a custom autograd "
                "Function or a scripted part, write it with torch functions. Remove backward hooks of "
                "modules."
            )


def _has_rule(node: Node, kind: str) -> bool:
    """Return whether a node's gradient is a rule, one of ours or that of a linear operation."""
    if isinstance(node, BackwardCFunction):
        return getattr(node, "_forward_cls", None) in RULES
    first = 1 if kind in _SUMMAND_FIRST else 0
    factors = [i for i, (inner, _) in enumerate(node.next_functions) if inner is not None and i >= first]
    alone = len(factors) <= 1 and (kind != "Div" or factors == [0])
    return kind in _PLAIN or (kind in _BILINEAR and alone)


def _walk(start: Node | None, ends: set[Node]) -> Iterator[Node]:
    """Return all nodes from ``start`` to ``ends``, without the latter."""
    seen, waiting = set(ends), [start]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [inner for inner, _ in node.next_functions]


def _kind(node: Node) -> str:
    """Return a node's name without namespace, number and suffix: AddBackward0 is Add."""
    name = node.name().split("::")[-1].removesuffix("Backward")
    return re.sub(r"Backward\d*$", "", name) or name
