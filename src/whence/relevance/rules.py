"""Relevance rules: objects that propagate relevance through a layer, or a torch function.

Autograd carries c = R / activation instead of the relevance R itself. Every linear operation is then right by
its plain gradient, nothing divides by activations, and only what is nonlinear, bilinear or has a rule of its
own is written down. z is the output of a layer or function, x its input, ε a small constant, and
stab(z) = z + ε·sign(z) with sign(0) = 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from whence.core.checks import shown
from whence.core.registry import Registry
from whence.errors import InvalidInputError
from whence.relevance.primitives import identity, kept, mapped, must_be_constant, ruled, stab

if TYPE_CHECKING:
    from whence.relevance.primitives import Layer, Stabiliser
    from whence.relevance.propagation import Propagation


class Rule(ABC):
    """The base of all rules: a name, by which registered rules are found."""

    name: str
    needs_epsilon: ClassVar[bool] = False
    """Whether ε must be above 0."""


class SharingRule(Rule):
    """A rule for a dense or convolutional layer z = W∗x + b, with relevance for inputs that are not 0.

    A rule of one's own is a subclass with a name and ``back``; an object of it goes wherever ``Rules`` take
    the name of a rule.

    Examples
    --------
    >>> class Gamma(SharingRule):
    ...     name = "gamma"
    ...
    ...     def back(self, layer, c, z, x, epsilon):
    ...         weight = layer.weight + 0.25 * layer.weight.clamp(min=0)
    ...         return layer.transpose(c * z / stab(layer.apply(x, weight, layer.bias), epsilon), weight)
    """

    @abstractmethod
    def back(self, layer: Layer, c: Tensor, z: Tensor, x: Tensor, epsilon: Stabiliser) -> Tensor:
        """Return c of the layer's input x, whose relevance is c·x, from c of its output z.

        Parameters
        ----------
        layer
            Has ``weight`` and ``bias``, with a batch normalisation after it folded in; ``apply(x, W, b)``
            runs the layer with others, and ``transpose(s, W)`` is Wᵀs.
        epsilon
            For ``stab``: a number, or a tensor that goes with z where ``Rules(relative=…)`` ask for it.
        """


class SpreadingRule(Rule):
    """A rule for a layer with relevance for all of its inputs, also those that are 0.

    It must hold from the input on: before the layer may only be layers with such rules, and what moves or
    chooses values.
    """

    @abstractmethod
    def spread(self, layer: Layer, R: Tensor, x: Tensor, mask: Tensor, epsilon: float) -> Tensor:
        """Return the relevance of the layer's input x from that of its output, R.

        Parameters
        ----------
        layer
            As for ``SharingRule.back``.
        mask
            Mask of x's shape, 1 for values and 0 for padding, which is not an input.
        """


LayerRule = SharingRule | SpreadingRule


class OperationRule(Rule):
    """A rule for a torch function.

    Examples
    --------
    >>> class Halved(OperationRule):
    ...     name = "halved"
    ...
    ...     def __call__(self, ctx, func, x):
    ...         return ruled(func, lambda c, z, x: 0.5 * c * identity(z, x), x)
    """

    @abstractmethod
    def __call__(self, ctx: Propagation, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the function's exact value, such that autograd propagates c by the rule; see ``ruled``."""


RULES: Registry[Any] = Registry(
    "relevance rule",
    lambda thing: isinstance(thing, Rule) or (isinstance(thing, type) and issubclass(thing, Rule)),
)


def as_rule(argument: str, rule: Any, kind: Any) -> Any:
    """Return a rule by its name, its class or itself, or raise if it is of another kind."""
    chosen = RULES.get(rule, argument) if isinstance(rule, str) else rule
    if isinstance(chosen, type) and issubclass(chosen, Rule):
        chosen = chosen()
    if not isinstance(chosen, kind):
        classes = ((known.name, known if isinstance(known, type) else type(known)) for known in RULES)
        names = sorted(name for name, known in classes if issubclass(known, kind))
        raise InvalidInputError(
            f"'{argument}' must be one of {', '.join(names)}, or a rule of your own. Got {shown(rule)}."
        )
    return chosen


@RULES.add
class Epsilon(SharingRule):
    """Every input gets its share of the output: R_j = x_j Σ_k w_kj R_k / stab(z_k)."""

    name = "epsilon"

    def back(self, layer: Layer, c: Tensor, z: Tensor, x: Tensor, epsilon: Stabiliser) -> Tensor:
        """Return Wᵀ(c z / stab(z))."""
        plain = isinstance(epsilon, float | int) and epsilon == 0
        return layer.transpose(c if plain else c * kept(z, epsilon), layer.weight)


@RULES.add
class Plus(SharingRule):
    """Only shares of the positive part count: R_j = Σ_k (x_j w_kj)⁺ R_k / stab(z⁺_k)."""

    name = "plus"
    needs_epsilon = True

    def back(self, layer: Layer, c: Tensor, z: Tensor, x: Tensor, epsilon: Stabiliser) -> Tensor:
        """Use positive weights for inputs above 0, and negative ones for inputs below."""
        positive, negative = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
        bias = None if layer.bias is None else layer.bias.clamp(min=0)
        z_plus = layer.apply(x.clamp(min=0), positive, bias)
        any_below = bool((x < 0).any())
        if any_below:
            z_plus = z_plus + layer.apply(x.clamp(max=0), negative)
        s = c * (z / stab(z_plus, epsilon))
        from_above = layer.transpose(s, positive)
        return torch.where(x >= 0, from_above, layer.transpose(s, negative)) if any_below else from_above


@RULES.add
class Flat(SpreadingRule):
    """Equal shares for all inputs except padding, independent of their values."""

    name = "flat"

    def spread(self, layer: Layer, R: Tensor, x: Tensor, mask: Tensor, epsilon: float) -> Tensor:
        """Use weights of 1."""
        ones = torch.ones_like(layer.weight)
        return mask * layer.transpose(R / stab(layer.apply(mask, ones), epsilon), ones)


@RULES.add
class Identity(OperationRule):
    """All relevance passes, element by element, as c·z/x: for activations."""

    name = "identity"

    def __call__(self, ctx: Propagation, func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the value of a function of one tensor with relevance."""
        must_be_constant(f"an argument of {func.__name__} besides the first", *args, *kwargs.values())
        return ruled(lambda x: func(x, *args, **kwargs), lambda c, z, x: c * identity(z, x), input)


@RULES.add
class Gradient(OperationRule):
    """The function's own gradient: for linear functions."""

    name = "gradient"

    def __call__(self, ctx: Propagation, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Let autograd differentiate the function."""
        return ctx.approved(func, args, kwargs)


@RULES.add
class Detach(OperationRule):
    """No relevance passes: for norms, variances, roots and denominators, which are constants."""

    name = "detach"

    def __call__(self, ctx: Propagation, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the value for constants."""
        constants = {key: mapped(Tensor.detach, value) for key, value in kwargs.items()}
        return func(*mapped(Tensor.detach, args), **constants)
