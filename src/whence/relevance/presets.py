"""Assignments of rules to operations: the named presets, and custom ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from whence.core.checks import check_flag, check_is, check_number, shown
from whence.core.naming import import_named
from whence.core.registry import Registry
from whence.errors import InvalidInputError
from whence.relevance.rules import RULES, LayerRule, OperationRule, as_rule

_EPSILON = 1e-6


@dataclass(frozen=True)
class Rules:
    """An assignment of rules to operations.

    A rule is given by its name, by ``module:name``, or as an object, of one's own too.

    Attributes
    ----------
    linear, convolution : rule of dense and of convolutional layers: "epsilon" (every input gets its share of
        the output), "plus" (only shares of the positive part), "flat" (equal shares, whatever the values), or
        a ``LayerRule``
    first : rule of the layers that see the input itself, None for the same as the others. An input that is
        looked up in an embedding has no such layer.
    attention : whether relevance flows to queries and keys; without, all goes to the values
    epsilon : ε of stab(z); 0 leaves linear operations to their plain gradient
    relative : what ε has beyond that in dense and convolutional layers, as a share of the root mean square of
        the layer's outputs for the sample, so that it does not depend on their units
    layers : rules of single layers, by name, or of all layers of a type; a name goes before a type
    operations : rules of torch functions by name, for those that have none here: "gradient" (right for
        what is linear), "identity" (c·z/x: all relevance goes on), "detach" (none does), or an
        ``OperationRule``
    name : what ``whence.register`` makes them known by, and explanations call them

    Examples
    --------
    >>> EPSILON_PLUS_FLAT.with_layers({"features.0": "flat", "features.2": "flat"}).layers
    {'features.0': 'flat', 'features.2': 'flat'}
    """

    linear: str | LayerRule = "epsilon"
    convolution: str | LayerRule = "epsilon"
    first: str | LayerRule | None = None
    attention: bool = True
    epsilon: float = 0.0
    relative: float = 0.0
    layers: Mapping[str | type[nn.Module], str | LayerRule] = field(default_factory=dict)
    operations: Mapping[str, str | OperationRule] = field(default_factory=dict)
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for name in ("layers", "operations"):
            check_is(name, getattr(self, name), Mapping, "a mapping of names to rules")
        check_flag("attention", self.attention)
        check_number("epsilon", self.epsilon, 0)
        check_number("relative", self.relative, 0)
        for operation in self.operations.values():
            as_rule("operations", operation, OperationRule)
        first = [] if self.first is None else [as_rule("first", self.first, LayerRule)]
        needy = [rule.name for rule in (*first, *self.beyond_first()) if rule.needs_epsilon]
        if self.epsilon == 0 and needy:
            raise InvalidInputError(
                f"'epsilon' must be above 0 for the {needy[0]} rule. Got 0; take {_EPSILON:g}."
            )

    def beyond_first(self) -> list[LayerRule]:
        """Return the rules for layers other than the first."""
        chosen = [("linear", self.linear), ("convolution", self.convolution)]
        chosen += [("layers", rule) for rule in self.layers.values()]
        return [as_rule(argument, rule, LayerRule) for argument, rule in chosen]

    def with_layers(self, layers: Mapping[str | type[nn.Module], str | LayerRule]) -> Rules:
        """Return the rules with others for some layers, by name or type."""
        check_is("layers", layers, Mapping, "a mapping of names to rules")
        return replace(self, layers={**self.layers, **layers}, name="")


def _name(rules: Rules) -> str:
    if not rules.name:
        raise InvalidInputError("Rules must have a 'name' to be registered. Got none; pass Rules(…, name=…).")
    return rules.name


PRESETS: Registry[Rules] = Registry(
    "choice of relevance rules", lambda thing: isinstance(thing, Rules), _name
)
EPSILON = PRESETS.add(Rules(epsilon=_EPSILON, name="epsilon"))
EPSILON_PLUS_FLAT = PRESETS.add(
    Rules(convolution="plus", first="flat", epsilon=_EPSILON, name="epsilon_plus_flat")
)
ATTN_LRP = PRESETS.add(Rules(name="attn_lrp"))
ATTN_LRP_CP = PRESETS.add(Rules(attention=False, name="attn_lrp_cp"))


def as_rules(rules: Any, argument: str = "rules") -> Rules:
    """Return rules by their name or themselves, or the rule of a layer for all layers, or raise."""
    if isinstance(rules, str):
        if rules in PRESETS or not (rules in RULES or ":" in rules):
            return PRESETS.get(rules, argument)
        rules = RULES.get(rules) if rules in RULES else import_named(argument, rules)
    if isinstance(rules, Rules):
        return rules
    if not RULES.accepts(rules):
        raise InvalidInputError(
            f"'{argument}' must be one of {', '.join(PRESETS.names())}, Rules, or the rule of a layer. "
            f"Got {shown(rules)}."
        )
    rule = as_rule(argument, rules, LayerRule)
    return Rules(rule, rule, epsilon=_EPSILON, name=rule.name)
