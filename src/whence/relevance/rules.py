"""A rule is an object: how relevance goes back through a layer, or through a torch function.

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
    """What all rules have: a name, by which they are found once ``whence.register`` has taken them."""

    name: str
    needs_epsilon: ClassVar[bool] = False
    """Whether ε must be above 0."""


class SharingRule(Rule):
    """How relevance goes back through a dense or convolutional layer z = W∗x + b, to inputs that are not 0.

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
        """Return c of the layer's input x, whose relevance is c·x, of c of its output z.

        Parameters
        ----------
        layer
            Has ``weight`` and ``bias``, with a batch normalisation after it folded in; ``apply(x, W, b)``
            runs the layer with others, and ``transpose(s, W)`` is Wᵀs.
        epsilon
            For ``stab``: a number, or a tensor that goes with z where ``Rules(relative=…)`` ask for it.
        """


class SpreadingRule(Rule):
    """How relevance goes back through a layer to all of its inputs, also to those that are 0.

    It must hold from the input on: before the layer may only be layers with such rules, and what moves or
    chooses values.
    """

    @abstractmethod
    def spread(self, layer: Layer, R: Tensor, x: Tensor, mask: Tensor, epsilon: float) -> Tensor:
        """Return the relevance of the layer's input x, of that of its output, R.

        Parameters
        ----------
        layer
            As for ``SharingRule.back``.
        mask
            Of x's shape, 1 at its values and 0 at padding, which is no input.
        """


LayerRule = SharingRule | SpreadingRule


class OperationRule(Rule):
    """How relevance goes back through a torch function.

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
        """Return the function's exact value, such that autograd carries c back by the rule; see ``ruled``."""


RULES: Registry[Any] = Registry(
    "relevance rule",
    lambda thing: isinstance(thing, Rule) or (isinstance(thing, type) and issubclass(thing, Rule)),
)


def as_rule(argument: str, rule: Any, kind: Any) -> Any:
    """Return a rule by its name, by its class or itself, or raise where it is of another kind."""
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
        """Wᵀ(c z / stab(z))."""
        plain = isinstance(epsilon, float | int) and epsilon == 0
        return layer.transpose(c if plain else c * kept(z, epsilon), layer.weight)


@RULES.add
class Plus(SharingRule):
    """Only shares of the positive part count: R_j = Σ_k (x_j w_kj)⁺ R_k / stab(z⁺_k)."""

    name = "plus"
    needs_epsilon = True

    def back(self, layer: Layer, c: Tensor, z: Tensor, x: Tensor, epsilon: Stabiliser) -> Tensor:
        """Go by the positive weights for inputs above 0, by the negative ones for those below."""
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
    """Equal shares to all inputs that are no padding, whatever their values."""

    name = "flat"

    def spread(self, layer: Layer, R: Tensor, x: Tensor, mask: Tensor, epsilon: float) -> Tensor:
        """Go by weights of 1."""
        ones = torch.ones_like(layer.weight)
        return mask * layer.transpose(R / stab(layer.apply(mask, ones), epsilon), ones)


@RULES.add
class Identity(OperationRule):
    """All relevance goes on, element by element, c·z/x: for activations."""

    name = "identity"

    def __call__(self, ctx: Propagation, func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the value of a function of one tensor that carries relevance."""
        must_be_constant(f"an argument of {func.__name__} besides the first", *args, *kwargs.values())
        return ruled(lambda x: func(x, *args, **kwargs), lambda c, z, x: c * identity(z, x), input)


@RULES.add
class Gradient(OperationRule):
    """The function's own gradient: for what is linear."""

    name = "gradient"

    def __call__(self, ctx: Propagation, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Let autograd follow the function."""
        return ctx.approved(func, args, kwargs)


@RULES.add
class Detach(OperationRule):
    """No relevance goes on: for norms, variances, roots and denominators, which are constants."""

    name = "detach"

    def __call__(self, ctx: Propagation, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the value for constants."""
        constants = {key: mapped(Tensor.detach, value) for key, value in kwargs.items()}
        return func(*mapped(Tensor.detach, args), **constants)
