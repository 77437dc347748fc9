"""The mode in which every function on a tensor with relevance uses its rule."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from whence.errors import InvalidInputError, ModelError
from whence.model.extractor import HeadMode
from whence.relevance import layers, operations
from whence.relevance.graph import Node, nodes_between
from whence.relevance.presets import Rules
from whence.relevance.primitives import Layer, Pooled, carries, chosen, mapped, ruled, tensors_in
from whence.relevance.rules import LayerRule, OperationRule, SharingRule, SpreadingRule, as_rule
from whence.relevance.sources import TOKENS, looks_up

_UNTOUCHED = {"__get__", "__set__", "__delete__", "backward", "detach", "detach_", "requires_grad_"}
_ALIASES = {"multiply": "mul", "rmul": "mul", "divide": "div", "true_divide": "div", "truediv": "div"}
_ALIASES |= {"subtract": "sub", "radd": "add", "negative": "neg", "absolute": "abs", "clip": "clamp"}
_ALIASES |= {"special_erf": "erf", "special_expit": "sigmoid", "special_softmax": "softmax"}
_INPLACE_DUNDERS = {f"__i{name}__": name for name in ("add", "sub", "mul", "truediv", "div", "pow", "matmul")}
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

_GATES = {"sigmoid", "hardsigmoid"}

_TABLE: dict[str, Callable[..., Any]] = {
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

# Elementwise functions besides activations.
_ELEMENTWISE = "add sub rsub mul div neg abs pow relu leaky_relu prelu dropout alpha_dropout feature_dropout"
# Functions that move the values of their first argument.
_STRUCTURAL = (
    "pad view reshape view_as permute transpose flatten unflatten squeeze unsqueeze contiguous clone to type "
    "float double half bfloat16 getitem select narrow chunk split unbind movedim expand expand_as repeat "
    "repeat_interleave flip roll"
)
_IS_ELEMENTWISE = {*_ELEMENTWISE.split(), *_ACTIVATIONS.split()}
_IS_STRUCTURAL = set(_STRUCTURAL.split())


@dataclass(frozen=True)
class Tag:
    """What is known about a tensor with relevance, besides its values.

    Attributes
    ----------
    version : of the tensor when it was tagged; a change in place makes the tag void
    root : the tensor of which it is a function element by element, as it was at ``root_version``
    gate : whether it is made of nothing but outputs of sigmoids
    layer : the layer whose output it is
    pooled : what of a layer's output it is, where max pooling chose
    shadow : zeros of its shape that receive relevance itself, for rules that spread it; kept from the input
        on through everything that only moves values
    mask : 1 at the values of the input, 0 at padding
    first : whether no layer came before it
    """

    version: int = 0
    root: Tensor | None = None
    root_version: int = 0
    gate: bool = False
    layer: Layer | None = None
    pooled: Pooled | None = None
    shadow: Tensor | None = None
    mask: Tensor | None = None
    first: bool = False


@dataclass(frozen=True)
class RelevanceSource:
    """A tensor at which relevance ends: an input, or the embeddings of tokens."""

    leaf: Tensor
    shadow: Tensor | None
    is_embedding: bool


class Propagation(HeadMode):
    """While it is active, every function on a tensor with relevance uses its rule.

    The mode is the thread's own, the parameters are replaced by constants in every call, and nothing of the
    model is changed: its weights, gradients, hooks and flags stay unchanged, even after an error.
    """

    def __init__(self, rules: Rules, model: nn.Module, tokens: Tensor | None = None) -> None:
        super().__init__()
        self.rules = rules
        self.tokens = tokens
        self.sources: dict[str, RelevanceSource] = {}
        self.nodes: set[Node] = set()  # approved nonlinear nodes
        self.used: set[str | type] = set()  # layers and operations whose own rules were used
        # By identity, together with the parameter, so that its id is not reused.
        self._constants: dict[int, tuple[Tensor, Tensor]] = {}
        # Not by getattr: a parametrised weight is computed on access, which may change the model.
        self._names = {
            id(weight): (name, type(module))
            for name, module in model.named_modules()
            for key, weight in module.named_parameters(recurse=False)
            if key == "weight"
        }
        self._first = None if rules.first is None else as_rule("first", rules.first, LayerRule)
        # Relevance itself is only carried on beyond the first layer where another one spreads it.
        self._deep = any(isinstance(rule, SpreadingRule) for rule in rules.beyond_first())

    def start(self, name: str, values: Tensor, is_embedding: bool = False) -> Tensor:
        """Make relevance end at a tensor; return the tensor to continue with."""
        leaf = values.detach().clone().requires_grad_()
        flat = not is_embedding and (self._deep or isinstance(self._first, SpreadingRule))
        shadow = torch.zeros_like(leaf, requires_grad=True) if flat else None
        self.sources[name] = RelevanceSource(leaf, shadow, is_embedding)
        x = leaf.clone()  # a model may write into its input, which autograd forbids for a leaf
        mask = torch.ones_like(values) if flat else None
        return _tag(x, Tag(shadow=shadow, mask=mask, first=not is_embedding))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function with its rule."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if not self.before_head() or name in _UNTOUCHED:  # no rules are needed after the head
            return func(*args, **kwargs)
        args = mapped(self._plain, args)
        kwargs = {key: mapped(self._plain, value) for key, value in kwargs.items()}
        if name == "embedding" and TOKENS not in self.sources and looks_up(args, self.tokens):
            return self.start(TOKENS, func(*args, **kwargs), is_embedding=True)
        if not torch.is_grad_enabled() or not any(map(carries, tensors_in((args, kwargs)))):
            return func(*args, **kwargs)
        base, ends_in_place = _base_name(name)
        has_rule = base in _TABLE or base in self.rules.operations
        if base not in self.rules.operations and (inner := _opened(func)) is not None:
            return self.inside(inner, *args, **kwargs)
        if not (ends_in_place and has_rule):
            return self._call(base, func, args, kwargs)
        target, rest = args[0], args[1:]
        before = _tag(target.clone(), _tag_of(target))  # the rule may need it in the backward pass
        result = self._call(base, _out_of_place(base, func), (before, *rest), kwargs)
        target.copy_(result)
        return _tag(target, _tag_of(result))

    def _call(self, base: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Apply the operation's rule and record what is known about its output."""
        if kwargs.get("out") is not None:
            raise ModelError(
                f"Relevance cannot follow {base}(out=…), which writes into a tensor. Leave it out."
            )
        wish = self.rules.operations.get(base)
        if wish is not None:
            self.used.add(base)
            return as_rule("operations", wish, OperationRule)(self, func, *args, **kwargs)
        if any(x.layout is not torch.strided for x in tensors_in((args, kwargs))):
            raise ModelError(
                f"Relevance has no rule for {base} with a sparse tensor. Make it dense by tensor.to_dense()."
            )
        first = args[0] if args else None
        before = _tag_of(first)
        rule = _TABLE.get(base)
        result = func(*args, **kwargs) if rule is None else rule(self, func, *args, **kwargs)
        changed = result is first and _tag_of(first) is not before
        if changed and base in _IS_ELEMENTWISE and len(list(filter(carries, args))) == 1:
            # For example, an in-place ReLU keeps every value at its place.
            _tag(result, Tag(shadow=before.shadow, mask=before.mask, first=before.first))
        if any(result is x for x in args):
            return result
        if base in _IS_STRUCTURAL and isinstance(first, Tensor):
            self._describe_moved(base, func, args, kwargs, result)
        elif base in _IS_ELEMENTWISE and carries(result):
            self._describe_elementwise(base, [x for x in tensors_in((args, kwargs)) if carries(x)], result)
        elif base in ("max_pool1d", "max_pool2d", "max_pool3d") and isinstance(first, Tensor):
            _tag(result, self._pooled(base, first, args[1:], kwargs))
        return result

    def _describe_elementwise(self, base: str, carriers: list[Tensor], result: Tensor) -> None:
        known = Tag(gate=base in _GATES or all(map(self.is_gate, carriers)))
        roots = {id(root): root for root in map(self.root, carriers)}
        root = next(iter(roots.values()))
        if len(roots) == 1 and root.shape == result.shape:
            known = replace(known, root=root, root_version=root._version)
        if len(carriers) == 1 and carriers[0].shape == result.shape:
            old = _tag_of(carriers[0])
            known = replace(known, shadow=old.shadow, mask=old.mask, first=old.first)
        _tag(result, known)

    def _describe_moved(self, base: str, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        old, rest = _tag_of(args[0]), args[1:]
        results = [result] if isinstance(result, Tensor) else list(result)
        shadows: list[Any] = [None] * len(results)
        masks = shadows
        if old.shadow is not None and old.mask is not None:
            shadows = list(tensors_in([func(old.shadow, *rest, **kwargs)]))
            if base == "pad":  # padding of any value is no input
                rest, kwargs = rest[:2], {}
            masks = list(tensors_in([func(old.mask, *rest, **kwargs)]))
        for x, shadow, mask in zip(results, shadows, masks, strict=True):
            _tag(x, Tag(gate=old.gate, shadow=shadow, mask=mask, first=old.first))

    def _pooled(self, base: str, x: Tensor, args: Any, kwargs: Any) -> Tag:
        """Relevance goes to the place of the largest value."""
        before = _tag_of(x)
        if x.ndim != int(base[-2]) + 2:  # without a batch
            return Tag()
        kwargs = {**kwargs, "return_indices": True}
        values = x.detach()

        def places() -> Tensor:
            indices: Tensor = getattr(F, base)(values, *args, **kwargs)[1]
            return indices

        tag = Tag(pooled=None if before.layer is None else Pooled(before.layer, values, places))
        if before.shadow is None or not self._deep:
            return tag
        moved = chosen(before.shadow, places())
        return replace(tag, shadow=moved, mask=torch.ones_like(moved))

    # Methods for rules

    def approved(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the function and let autograd differentiate it, though it is not linear."""
        result = func(*args, **kwargs)
        self.nodes |= nodes_between(tensors_in(result), tensors_in((args, kwargs)))
        return result

    def inside(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the function with its default rule."""
        with self:
            return func(*args, **kwargs)

    def layer(self, x: Any, weight: Any, bias: Any, geometry: Any = None, stored: Any = None) -> Layer:
        """Return a layer with its rule, by its weight, or by the parameter that stores it."""
        name, kind = self._names.get(id(weight if stored is None else stored), ("", nn.Module))
        for key in (name, *kind.__mro__):
            if key in self.rules.layers:
                self.used.add(key)
                chosen = as_rule("layers", self.rules.layers[key], LayerRule)
                return Layer(x, weight, bias, geometry, chosen, True)
        rule = self.rules.linear if geometry is None else self.rules.convolution
        return Layer(x, weight, bias, geometry, as_rule("linear", rule, LayerRule), False)

    def run_layer(self, layer: Layer, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the value of a layer, with its rule."""
        epsilon, x, tag = self.rules.epsilon, layer.x, _tag_of(layer.x)
        if tag.first and self._first is not None and not layer.named:
            layer = layer._replace(rule=self._first)
        rule = layer.rule

        def again(*inputs: Tensor) -> Tensor:
            return layer.apply(inputs[-1], layer.weight, layer.bias)

        if isinstance(rule, SharingRule):
            share = self.rules.relative

            def back(c: Tensor, z: Tensor, x: Tensor) -> Tensor:
                return rule.back(layer, c, z, x, epsilon + share * layer.size(z) if share else epsilon)

            z = ruled(compute, back, x, again=again)
            return _tag(z, Tag(layer=layer))
        shadow, mask = tag.shadow, tag.mask
        if shadow is None or mask is None:
            raise InvalidInputError(
                f"The {rule.name} rule must hold from the input on: of the layers before one that has it, "
                "each must have it too, with only activations, max pooling, padding and reshaping between."
            )
        values = x.detach()

        def spread(R: Tensor, x: Tensor) -> tuple[Tensor, None]:
            return rule.spread(layer, R, x, mask, epsilon), None

        z = ruled(lambda _, x: compute(x), lambda c, z, _, x: spread(c * z, x), shadow, values, again=again)
        tag = Tag(layer=layer)
        if self._deep:
            zeros = ruled(lambda *_: torch.zeros_like(z), lambda R, z, _, x: spread(R, x), shadow, values)
            tag = replace(tag, shadow=zeros, mask=torch.ones_like(zeros))
        return _tag(z, tag)

    def made_by(self, z: Tensor) -> Layer | None:
        """Return the layer whose unchanged output z is."""
        return _tag_of(z).layer

    def pooled(self, z: Tensor) -> Pooled | None:
        """Return max pooling's selection from a layer's output that z is, unchanged."""
        return _tag_of(z).pooled

    def root(self, x: Tensor) -> Tensor:
        """Return the tensor of which x is an elementwise function; x itself if there is none."""
        tag = _tag_of(x)
        return x if tag.root is None or tag.root._version != tag.root_version else tag.root

    def is_gate(self, x: Tensor) -> bool:
        """Return whether x depends only on outputs of sigmoids."""
        return _tag_of(x).gate

    def _plain(self, x: Tensor) -> Tensor:
        """Replace a parameter by a constant: tensors that require a gradient have relevance."""
        if not (x.requires_grad and x.is_leaf):
            return x
        if id(x) not in self._constants:
            constant = x.detach()
            self._constants[id(x)] = x, constant
            if id(x) in self._names:
                self._names[id(constant)] = self._names[id(x)]
        return self._constants[id(x)][1]


def _tag(x: Tensor, tag: Tag) -> Tensor:
    """Record what is known about x; return x."""
    x._whence_tag = replace(tag, version=x._version)  # type: ignore[attr-defined]
    return x


def _tag_of(x: Any) -> Tag:
    tag = getattr(x, "_whence_tag", None)
    return tag if tag is not None and tag.version == x._version else Tag()


def _base_name(name: str) -> tuple[str, bool]:
    """Return a function's plain name, and whether it looks in-place: add for ``__iadd__``."""
    name = name.split(".")[0]  # torch.ops.aten.add.Tensor
    if name in _INPLACE_DUNDERS:
        base, in_place = _INPLACE_DUNDERS[name], True
    elif name.startswith("__") and name.endswith("__"):
        base, in_place = name[2:-2], False
    else:
        base, in_place = name.removesuffix("_"), name.endswith("_")
    return _ALIASES.get(base, base), in_place


def _out_of_place(base: str, func: Any) -> Any:
    """Return the out-of-place version of a function."""
    scopes = (Tensor, torch, torch._C._nn)
    function = next((getattr(scope, base) for scope in scopes if hasattr(scope, base)), None)
    if function is None:
        raise ModelError(f"Relevance cannot follow {func.__name__}, which works in place. Use {base}.")
    return function


@cache
def _opened(func: Any) -> Any:
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
