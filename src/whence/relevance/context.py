"""What a rule may ask of the propagation that it is part of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from whence.errors import ModelError

if TYPE_CHECKING:
    from whence.relevance.presets import Rules
    from whence.relevance.primitives import Layer
    from whence.relevance.rules import LayerRule


class Context(Protocol):
    """What a rule knows of the propagation that it is part of."""

    rules: Rules

    def approved(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the function and let autograd follow, though it is not linear."""

    def inside(self, func: Callable[..., Any], *args: Any) -> Any:
        """Call the function as the model would, by its own rule."""

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


def must_be_constant(what: str, *values: Any) -> None:
    """Raise ModelError where one of the values carries relevance."""
    if any(map(carries, values)):
        raise ModelError(f"Relevance has no rule for {what} that depends on the input.")
