"""Which rule goes with which operation: the named choices, and how to make another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import nn

from whence.core.checks import check_choice, check_flag, check_number, shown
from whence.errors import InvalidInputError

LayerRule = Literal["epsilon", "plus", "flat"]
OperationRule = Literal["gradient", "identity", "detach"]

_LAYER_RULES = ("epsilon", "plus", "flat")


@dataclass(frozen=True)
class Rules:
    """Which rule goes with which operation.

    Attributes
    ----------
    linear, convolution : rule of dense and of convolutional layers: "epsilon" (every input gets its share of
        the output), "plus" (only shares of the positive part), or "flat" (equal shares, whatever the values)
    first : rule of the layers that see the input itself, None for the same as the others. An input that is
        looked up in an embedding has no such layer.
    attention : whether relevance flows to queries and keys; without, all goes to the values
    epsilon : ε of stab(z); 0 leaves linear operations to their plain gradient
    layers : rules of single layers, by name, or of all layers of a type; a name goes before a type
    operations : rules of torch functions by name, for those that have none here: "gradient" (right for
        what is linear), "identity" (c·z/x: all relevance goes on), "detach" (none does)

    Examples
    --------
    >>> EPSILON_PLUS_FLAT.with_layers({"features.0": "flat", "features.2": "flat"}).layers
    {'features.0': 'flat', 'features.2': 'flat'}
    """

    linear: LayerRule = "epsilon"
    convolution: LayerRule = "epsilon"
    first: LayerRule | None = None
    attention: bool = True
    epsilon: float = 0.0
    layers: Mapping[str | type[nn.Module], LayerRule] = field(default_factory=dict)
    operations: Mapping[str, OperationRule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("layers", "operations"):
            if not isinstance(getattr(self, name), Mapping):
                raise InvalidInputError(
                    f"'{name}' must be a mapping of names to rules. Got {shown(getattr(self, name))}."
                )
        check_flag("attention", self.attention)
        for name in ("linear", "convolution"):
            check_choice(name, getattr(self, name), _LAYER_RULES)
        check_choice("first", self.first, (*_LAYER_RULES, None))
        for rule in self.layers.values():
            check_choice("layers", rule, _LAYER_RULES)
        for way in self.operations.values():
            check_choice("operations", way, ("gradient", "identity", "detach"))
        check_number("epsilon", self.epsilon, 0)
        chosen = (self.linear, self.convolution, self.first, *self.layers.values())
        if self.epsilon == 0 and "plus" in chosen:
            raise InvalidInputError("'epsilon' must be above 0 for the plus rule. Got 0; take 1e-6.")

    def with_layers(self, layers: Mapping[str | type[nn.Module], LayerRule]) -> Rules:
        """Give the same rules with others for some layers, by name or type."""
        if not isinstance(layers, Mapping):
            raise InvalidInputError(f"'layers' must be a mapping of names to rules. Got {shown(layers)}.")
        return replace(self, layers={**self.layers, **layers})


EPSILON = Rules(epsilon=1e-6)
EPSILON_PLUS_FLAT = Rules(convolution="plus", first="flat", epsilon=1e-6)
ATTN_LRP = Rules()
ATTN_LRP_CP = Rules(attention=False)

NAMED = {
    "epsilon": EPSILON,
    "epsilon_plus_flat": EPSILON_PLUS_FLAT,
    "attn_lrp": ATTN_LRP,
    "attn_lrp_cp": ATTN_LRP_CP,
}


def as_rules(rules: str | Rules) -> Rules:
    """Give the rules of a name, or raise."""
    if isinstance(rules, Rules):
        return rules
    if not isinstance(rules, str) or rules not in NAMED:
        raise InvalidInputError(f"'rules' must be one of {', '.join(NAMED)}, or Rules. Got {shown(rules)}.")
    return NAMED[rules]
