"""Rules of a user's own: written here, checked against their matrices in float64, and used by explain."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import whence
from tests.helpers.relevance_nets import random, relevance
from tests.relevance.test_rules import LAYERS, matrix, seeded, stab
from whence.errors import InvalidInputError, ModelError
from whence.model.extractor import Extractor
from whence.relevance import OperationRule, Rules, SharingRule, SpreadingRule, lrp
from whence.relevance.primitives import Layer, ruled
from whence.relevance.primitives import stab as stabilised

EPS = 1e-6


class Gamma(SharingRule):
    """Positive weights count more."""

    needs_epsilon = True

    def __init__(self, gamma: float = 0.25, name: str = "gamma") -> None:
        self.gamma, self.name = gamma, name

    def more(self, weight: Tensor) -> Tensor:
        return weight + self.gamma * weight.clamp(min=0)

    def back(self, layer: Layer, c: Tensor, z: Tensor, x: Tensor, epsilon: float) -> Tensor:
        weight = self.more(layer.weight)
        bias = None if layer.bias is None else self.more(layer.bias)
        return layer.transpose(c * z / stabilised(layer.apply(x, weight, bias), epsilon), weight)


@whence.register
class Squares(SpreadingRule):
    """Shares by squared weights, whatever the values."""

    name = "squares"

    def spread(self, layer: Layer, R: Tensor, x: Tensor, mask: Tensor, epsilon: float) -> Tensor:
        squares = layer.weight**2
        return mask * layer.transpose(R / stabilised(layer.apply(mask, squares), epsilon), squares)


class Halved(OperationRule):
    """Half of the relevance goes on."""

    name = "halved"

    def __call__(self, ctx: object, func: object, x: Tensor) -> Tensor:
        return ruled(func, lambda c, z, x: 0.5 * c * z / x, x)  # type: ignore[arg-type]


gamma = whence.register(Gamma(0.5, "test gamma"))
both = whence.register(Rules(gamma, gamma, first="squares", epsilon=EPS, name="test gamma squares"))


def by_gamma(W: Tensor, b: Tensor, x: Tensor, R: Tensor, g: float) -> Tensor:
    W, b = W + g * W.clamp(min=0), b + g * b.clamp(min=0)
    return x * ((R / stab(x @ W.T + b, EPS)) @ W)


def by_squares(W: Tensor, R: Tensor) -> Tensor:
    return (R / stab((W**2).sum(1), EPS)) @ W**2


@pytest.mark.parametrize("name", [name for name in LAYERS if "norm" not in name and "even" not in name])
@pytest.mark.parametrize("rule", ["gamma", "squares"])
def test_layers_go_by_the_closed_form_of_a_users_rule(name: str, rule: str) -> None:
    make, shape = LAYERS[name]
    layer, x = seeded(make), random(2, *shape)
    x[0, 0] = 0
    given = Gamma(0.7) if rule == "gamma" else Squares
    got, z, c = relevance(layer, x, rules=Rules(given, given, epsilon=EPS))  # type: ignore[arg-type]
    W, b = matrix(layer, shape)
    R = c * z
    want = by_gamma(W, b, x.flatten(1), R, 0.7) if rule == "gamma" else by_squares(W, R)
    torch.testing.assert_close(got, want.view_as(x), rtol=1e-9, atol=1e-11)


def network() -> nn.Sequential:
    torch.manual_seed(3)
    layers = [nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)]
    return nn.Sequential(*layers).double()


def expected(model: nn.Sequential, x: Tensor, R: Tensor) -> Tensor:
    """Squares at the first layer, gamma at the second."""
    y = model[1](model[0](x))
    second, first = model[2], model[0]
    return by_squares(first.weight, by_gamma(second.weight, second.bias, y, R, 0.5)).detach()


@pytest.mark.parametrize("rules", [both, "test gamma squares", f"{__name__}:both"])
def test_rules_are_found_by_name_and_by_module(rules: str | Rules) -> None:
    model, x = network(), random(4, 6)
    extractor = Extractor(model, "4")
    R = extractor(x)
    torch.testing.assert_close(lrp(extractor, x, R, rules), expected(model, x, R))


def test_a_rule_alone_holds_for_all_layers_and_by_type_for_those_of_the_type() -> None:
    model, x = network(), random(4, 6)
    extractor = Extractor(model, "4")
    R = extractor(x)
    want = lrp(extractor, x, R, Rules(gamma, gamma, epsilon=EPS))
    typed = Rules(epsilon=EPS, layers={nn.Linear: "test gamma"})
    for rules in (gamma, "test gamma", f"{__name__}:gamma", typed):
        assert torch.equal(lrp(extractor, x, R, rules), want)  # type: ignore[arg-type]


def test_explain_takes_a_users_rules() -> None:
    model, X = network(), random(60, 6)
    explainer = whence.DualDA(metric="raw", C=1.0, bias=False, show_progress=False).fit(
        model, (X, torch.arange(60) % 3)
    )
    x = X[:1]
    f = Extractor(model, "4")(x)
    for method, name in (
        ("test gamma squares", "test gamma squares"),
        (f"{__name__}:both", f"{__name__}:both"),
        (both, "test gamma squares"),
    ):
        why = explainer.explain(x, k=2, method=method)[0]
        assert why.method == name
        W = torch.as_tensor(explainer.coef_)[why.target]
        want = expected(model, x, f * W)
        torch.testing.assert_close(torch.as_tensor(why.logit_map).double(), want[0], rtol=1e-4, atol=1e-6)
    assert explainer.explain(x, k=1, method=gamma)[0].method == "test gamma"


def test_an_operation_goes_by_a_users_rule_and_without_one_is_refused() -> None:
    x = random(2, 4)
    got, z, c = relevance(torch.expm1, x, rules=Rules(operations={"expm1": Halved()}))
    torch.testing.assert_close(got, 0.5 * c * z)
    with pytest.raises(ModelError, match="no rule for the operation 'expm1'"):
        relevance(torch.expm1, x, rules=Rules())


def test_what_is_no_such_rule_is_refused() -> None:
    for options, message in (
        ({"linear": Halved()}, "'linear' must be one of epsilon, flat, plus.*, or a rule of your own"),
        ({"operations": {"exp": gamma}}, "'operations' must be one of detach, gradient, identity"),
        ({"layers": {"a": "gamma"}}, "'layers' must be one of .*, or module:name of your own. Got 'gamma'"),
        ({"linear": f"{__name__}:EPS"}, "'linear' must name a relevance rule"),
        ({"linear": gamma}, "'epsilon' must be above 0 for the test gamma rule"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            Rules(**options)  # type: ignore[arg-type]
    for thing in (Rules(), Rules(name="epsilon", attention=False), Gamma(0.1, "test gamma")):
        with pytest.raises(InvalidInputError, match=r"must (have a 'name'|be new)"):
            whence.register(thing)
