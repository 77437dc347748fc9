"""The mode in which every function on a tensor that carries relevance goes by its rule."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.overrides import TorchFunctionMode

from whence.errors import InvalidInputError, ModelError
from whence.relevance.graph import Node, nodes_between
from whence.relevance.presets import LayerRule, Rules
from whence.relevance.primitives import Layer, ruled
from whence.relevance.rules import GATES, TABLE, activation, carries, detached
from whence.relevance.sources import TOKENS, looks_up

# Functions whose output has at each place a function of the input at that place.
_ELEMENTWISE = (
    "add sub rsub radd mul rmul div truediv true_divide neg pow square gelu silu mish tanh elu selu "
    "celu softplus softsign hardswish hardtanh relu relu6 sigmoid hardsigmoid logsigmoid erf clamp clip "
    "clamp_min clamp_max threshold leaky_relu prelu dropout alpha_dropout feature_dropout"
)
# Functions that put the values of their first argument elsewhere.
_STRUCTURAL = (
    "pad view reshape permute transpose flatten unflatten squeeze unsqueeze contiguous clone to float "
    "double getitem movedim expand expand_as"
)


@dataclass(frozen=True)
class Tag:
    """What is known of a tensor that carries relevance, beside its values.

    Attributes
    ----------
    version : of the tensor when it was tagged; a change in place makes the tag void
    root : the tensor of which it is a function element by element
    gate : whether it is the output of a sigmoid
    layer : the layer whose output it is
    shadow : zeros of its shape that receive relevance itself, for the flat rule; kept from the input on
        through everything that only moves values
    mask : 1 at the values of the input, 0 at padding
    first : whether no layer came before it
    """

    version: int = 0
    root: Tensor | None = None
    gate: bool = False
    layer: Layer | None = None
    shadow: Tensor | None = None
    mask: Tensor | None = None
    first: bool = False


@dataclass(frozen=True)
class Source:
    """A tensor at which relevance ends: an input, or the embeddings of tokens."""

    leaf: Tensor
    shadow: Tensor | None
    is_embedding: bool


class Propagation(TorchFunctionMode):
    """While it is active, every function on a tensor that carries relevance goes by its rule.

    The mode is the thread's own, the parameters are replaced by constants in every call, and nothing of the
    model is written to: its weights, gradients, hooks and flags stay as they are, whatever happens.
    """

    def __init__(self, rules: Rules, model: nn.Module, tokens: Tensor | None = None) -> None:
        super().__init__()
        self.rules = rules
        self.tokens = tokens
        self.sources: dict[str, Source] = {}
        self.nodes: set[Node] = set()  # approved though they are not linear
        self.used: set[str | type] = set()  # layers and operations whose own rules were needed
        self._constants: dict[int, Tensor] = {}
        self._past_head = False
        self._names = {
            id(module.weight): (name, type(module))
            for name, module in model.named_modules()
            if isinstance(getattr(module, "weight", None), nn.Parameter)
        }
        # Relevance itself is only carried on beyond the first layer where another one is flat.
        self._deep = "flat" in (rules.linear, rules.convolution, *rules.layers.values())

    def start(self, name: str, values: Tensor, is_embedding: bool = False) -> Tensor:
        """Let relevance end at a tensor; give the tensor to go on with."""
        leaf = values.detach().clone().requires_grad_()
        flat = not is_embedding and (self._deep or self.rules.first == "flat")
        shadow = torch.zeros_like(leaf, requires_grad=True) if flat else None
        self.sources[name] = Source(leaf, shadow, is_embedding)
        x = leaf.clone()  # since a model may write into its input, which autograd forbids for a leaf
        mask = torch.ones_like(values) if flat else None
        _tag(x, Tag(shadow=shadow, mask=mask, first=not is_embedding))
        return x

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function by its rule."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "requires_grad_":  # which the extractor calls on the head's output: the features are there
            self._past_head = True
        if self._past_head or name in ("__get__", "__set__", "__delete__", "backward", "detach", "detach_"):
            return func(*args, **kwargs)
        args, kwargs = self._plain(args), {key: self._plain(value) for key, value in kwargs.items()}
        if name == "embedding" and TOKENS not in self.sources and looks_up(args, self.tokens):
            return self.start(TOKENS, func(*args, **kwargs), is_embedding=True)
        if not torch.is_grad_enabled() or not _any_carries((args, kwargs)):
            return func(*args, **kwargs)
        if (inner := _opened(func)) is not None:
            with self:
                return inner(*args, **kwargs)
        base, in_place = _base(name)
        if not in_place:
            return self._call(base, func, args, kwargs)
        target, rest = args[0], args[1:]
        before = target.clone()  # which the rule may need when relevance comes back
        _tag(before, _tag_of(target))
        result = self._call(base, _out_of_place(base, func), (before, *rest), kwargs)
        target.copy_(result)
        _tag(target, _tag_of(result))
        return target

    def _call(self, base: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Apply the operation's rule and keep what is known of its output."""
        if kwargs.get("out") is not None:
            raise ModelError(
                f"Relevance cannot follow {base}(out=…), which writes into a tensor. Leave it out."
            )
        wish = self.rules.operations.get(base)
        if wish is not None:
            self.used.add(base)
            if wish == "gradient":
                return self.approved(func, args, kwargs)
            return (activation if wish == "identity" else detached)(self, func, *args, **kwargs)
        rule = TABLE.get(base)
        result = func(*args, **kwargs) if rule is None else rule(self, func, *args, **kwargs)
        if isinstance(result, Tensor) and carries(result) and not any(result is x for x in args):
            self._describe(base, func, args, kwargs, result)
        return result

    def _describe(self, base: str, func: Any, args: Any, kwargs: Any, result: Tensor) -> None:
        known = _tag_of(result)
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if base in _ELEMENTWISE.split():
            carriers = [x for x in args if carries(x)]
            roots = {id(root): root for root in map(self.root, carriers)}
            if len(roots) == 1:
                (root,) = roots.values()
                known = replace(known, root=root if root.shape == result.shape else None)
            if len(carriers) == 1 and carriers[0].shape == result.shape:
                old = _tag_of(carriers[0])
                known = replace(known, shadow=old.shadow, mask=old.mask, first=old.first)
            known = replace(known, gate=base in GATES)
        elif base in _STRUCTURAL.split() and first is not None:
            old = _tag_of(first)
            known = replace(known, gate=old.gate)
            if old.shadow is not None and old.mask is not None:
                rest = args[1:]
                moved = func(old.shadow, *rest, **kwargs)
                if base == "pad":  # of any value: padding is no input
                    rest, kwargs = rest[:2], {}
                known = replace(known, shadow=moved, mask=func(old.mask, *rest, **kwargs), first=old.first)
        elif base in ("max_pool1d", "max_pool2d", "max_pool3d") and first is not None:
            known = self._pooled(base, first, args[1:], kwargs)
        _tag(result, known)

    def _pooled(self, base: str, x: Tensor, args: Any, kwargs: Any) -> Tag:
        """Relevance goes where the largest value came from."""
        shadow = _tag_of(x).shadow
        if shadow is None or not self._deep:
            return Tag()
        kwargs = {**kwargs, "return_indices": True}
        _, places = getattr(F, base)(x.detach(), *args, **kwargs)
        moved = shadow.flatten(2).gather(2, places.flatten(2)).view_as(places)
        return Tag(shadow=moved, mask=torch.ones_like(moved))

    # What the rules ask for.

    def approved(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the function and let autograd follow, though it is not linear."""
        result = func(*args, **kwargs)
        flat = [y for x in args for y in (x if isinstance(x, list | tuple) else [x])]
        self.nodes |= nodes_between(result, flat)
        return result

    def layer_rule(self, weight: Any, convolution: bool) -> tuple[LayerRule, bool]:
        """Give the rule of the layer with this weight, and whether the user chose it."""
        name, kind = self._names.get(id(weight), ("", nn.Module))
        for key in (name, *kind.__mro__):
            if key in self.rules.layers:
                self.used.add(key)
                return self.rules.layers[key], True
        return (self.rules.convolution if convolution else self.rules.linear), False

    def run_layer(self, layer: Layer, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Give the value of a layer, with its rule."""
        epsilon, x, tag = self.rules.epsilon, layer.x, _tag_of(layer.x)
        if tag.first and self.rules.first is not None and not layer.named:
            layer = layer._replace(rule=self.rules.first)
        if layer.rule != "flat":
            z = ruled(compute, lambda c, z, x: layer.back(c, z, x, epsilon), x)
            _tag(z, Tag(layer=layer))
            return z
        shadow, mask = tag.shadow, tag.mask
        if shadow is None or mask is None:
            raise InvalidInputError(
                "The flat rule must hold from the input on: of the layers before a flat one, each must be "
                "flat too, with only activations, max pooling, padding and reshaping between them."
            )
        values = x.detach()
        z = ruled(lambda _: compute(values), lambda c, z, _: layer.spread(c * z, mask, epsilon), shadow)
        tag = Tag(layer=layer._replace(x=layer.x))
        if self._deep:
            zeros = ruled(
                lambda _: torch.zeros_like(z), lambda R, z, _: layer.spread(R, mask, epsilon), shadow
            )
            tag = replace(tag, shadow=zeros, mask=torch.ones_like(zeros))
        _tag(z, tag)
        return z

    def made_by(self, z: Tensor) -> Layer | None:
        """Give the layer whose output z is, unchanged."""
        return _tag_of(z).layer

    def root(self, x: Tensor) -> Tensor:
        """Give the tensor of which x is a function element by element, x itself if it is of no other."""
        root = _tag_of(x).root
        return x if root is None else root

    def is_gate(self, x: Tensor) -> bool:
        """Whether x is the output of a sigmoid."""
        return _tag_of(x).gate

    def _plain(self, value: Any) -> Any:
        """Replace parameters by constants: what requires a gradient then carries relevance."""
        if isinstance(value, Tensor):
            return self._constant(value) if value.requires_grad and value.is_leaf else value
        if isinstance(value, list | tuple):
            parts = [self._plain(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return value

    def _constant(self, parameter: Tensor) -> Tensor:
        known = self._constants.get(id(parameter))
        if known is None:
            known = self._constants[id(parameter)] = parameter.detach()
            if id(parameter) in self._names:
                self._names[id(known)] = self._names[id(parameter)]
        return known


def _any_carries(values: Any) -> bool:
    if isinstance(values, Tensor):
        return values.requires_grad
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, list | tuple):
        return False
    return any(map(_any_carries, values))


def _tag(x: Tensor, tag: Tag) -> None:
    x._whence_tag = replace(tag, version=x._version)  # type: ignore[attr-defined]


def _tag_of(x: Any) -> Tag:
    tag = getattr(x, "_whence_tag", None)
    return tag if tag is not None and tag.version == x._version else Tag()


_INPLACE_DUNDERS = {f"__i{name}__": name for name in ("add", "sub", "mul", "truediv", "div", "pow", "matmul")}


def _base(name: str) -> tuple[str, bool]:
    """Give a function's plain name, and whether it works in place: ``__iadd__`` and ``add_`` are add."""
    if name in _INPLACE_DUNDERS:
        return _INPLACE_DUNDERS[name], True
    if name.startswith("__") and name.endswith("__"):
        return name[2:-2], False
    base = name.removesuffix("_")
    return base, base != name and base in TABLE


def _out_of_place(base: str, func: Any) -> Any:
    """Find the function that gives a new tensor instead of writing into its argument."""
    base = {"truediv": "true_divide"}.get(base, base)
    scopes = (Tensor, torch, torch._C._nn)
    found = next((getattr(scope, base) for scope in scopes if hasattr(scope, base)), None)
    if found is None:
        raise ModelError(f"Relevance cannot follow {func.__name__}, which works in place. Use {base}.")
    return found


_OPENED: dict[Any, Any] = {}


def _opened(func: Any) -> Any:
    """Give a function of ``torch.nn.functional`` that is written in Python, to be run inside the mode.

    Such functions hand themselves over to the mode before they do anything. This copy of the function does
    not, so that the mode sees what it is made of.
    """
    if func not in _OPENED:
        opens = isinstance(func, types.FunctionType) and func.__globals__ is vars(F)
        checks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
        if opens:
            inside = {**vars(F), **dict.fromkeys(checks, lambda *_: False)}
            copy = types.FunctionType(
                func.__code__, inside, func.__name__, func.__defaults__, func.__closure__
            )
            copy.__kwdefaults__ = func.__kwdefaults__
        _OPENED[func] = copy if opens else None
    return _OPENED[func]
