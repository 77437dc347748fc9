"""Any function as a model with a head, and what relevance propagation gives for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from whence.model import Pass
from whence.model.extractor import Extractor
from whence.relevance import Rules, trace
from whence.relevance.presets import ATTN_LRP

Function = Callable[..., Tensor]


class Net(nn.Module):
    """``function``, flattened, and a linear head."""

    def __init__(self, function: Function, d: int) -> None:
        super().__init__()
        self.function = function
        self.head = nn.Linear(d, 3)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.head(self.function(*inputs).flatten(1))


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def extractor_of(function: Function, *inputs: Tensor) -> Extractor:
    """Make a model of a function in float64 and eval mode, split at its head."""
    with torch.no_grad():
        d = function(*(x.clone() for x in inputs)).flatten(1).shape[1]
    return Extractor(Net(function, d).double().eval(), "head")


def flow_of(function: Function, *inputs: Tensor, rules: Rules = ATTN_LRP) -> Pass:
    return trace(extractor_of(function, *inputs), inputs if len(inputs) > 1 else inputs[0], rules)


def relevance(function: Function, *inputs: Tensor, rules: Rules = ATTN_LRP) -> tuple[Any, Tensor, Tensor]:
    """Return the map of each input (alone if there is one), the features z, and their c = R/z."""
    flow = flow_of(function, *inputs, rules=rules)
    c = random(*flow.features.shape, seed=99)
    maps = list(flow.maps(c).values())
    return (maps[0] if len(maps) == 1 else maps), flow.features, c


def by_gradient(surrogate: Function, *inputs: Tensor, c: Tensor) -> Any:
    """x times the gradient of Σ c·surrogate(x): relevance where the surrogate's gradient is the rule."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    z = surrogate(*(x.clone() for x in leaves)).flatten(1)
    found = [x.detach() * g for x, g in zip(leaves, torch.autograd.grad(z, leaves, c), strict=True)]
    return found[0] if len(found) == 1 else found


def check(function: Function, surrogate: Function, *inputs: Tensor, rules: Rules = ATTN_LRP) -> None:
    """The function's maps are those of its surrogate's gradient, and its values stay the same to the bit."""
    got, z, c = relevance(function, *inputs, rules=rules)
    with torch.no_grad():
        assert torch.equal(z, function(*(x.clone() for x in inputs)).flatten(1))
    torch.testing.assert_close(got, by_gradient(surrogate, *inputs, c=c), rtol=1e-10, atol=1e-12)


def half(x: Tensor) -> Tensor:
    """x, with half the gradient."""
    return x / 2 + x.detach() / 2


def passed_on(function: Function) -> Function:
    """f(x), with the gradient f(x)/x; 0 at 0."""

    def surrogate(x: Tensor) -> Tensor:
        ratio = torch.where(x == 0, 0, function(x) / torch.where(x == 0, 1, x)).detach()
        return x * ratio

    return surrogate
