"""Operations go by their rules: plain autograd agrees on a function with the rule's constants detached."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.helpers.relevance_nets import Function, check, half, passed_on, random, relevance
from whence.relevance.presets import ATTN_LRP_CP

X, CONSTANT, WEIGHT = random(4, 6), random(4, 6, seed=1), random(6, seed=2)
X[0, :2] = 0

ACTIVATIONS: list[Function] = [
    *(F.gelu, F.silu, F.mish, F.elu, F.selu, F.celu, F.softplus, F.softsign, F.hardswish, F.hardtanh),
    *(F.relu6, F.hardsigmoid, F.logsigmoid, F.tanhshrink, F.hardshrink, F.softshrink, F.leaky_relu, F.rrelu),
    *(torch.tanh, torch.sigmoid, torch.erf, torch.square, torch.relu, torch.abs, torch.special.expit),
    lambda x: F.gelu(x, approximate="tanh"),
    lambda x: F.threshold(x, 0.3, 0.1),
    lambda x: x.clamp(-0.5, 0.8),
    lambda x: x.clip(min=0.1),
    lambda x: x**3,
    lambda x: torch.pow(input=x, exponent=2),
    lambda x: x.abs() ** 0.7,
    lambda x: torch.ops.aten.tanh.default(x),
    lambda x: F.prelu(x, WEIGHT),
    # In place, by function, by method and by operator.
    *(lambda x: F.silu(x, inplace=True), lambda x: F.elu(x, inplace=True), lambda x: x.tanh_()),
    *(
        lambda x: F.hardtanh(x, inplace=True),
        lambda x: x.relu_(),
        lambda x: x.sigmoid_(),
        lambda x: x.pow_(2),
    ),
    *(lambda x: torch.clamp_(x, -1, 1), lambda x: F.mish(x, inplace=True), lambda x: x.square_()),
    # Written by hand: functions of one tensor are one function of it.
    lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    lambda x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3)))),
    lambda x: x * torch.sigmoid(1.702 * x),
    lambda x: torch.multiply(x, F.relu6(x + 3)) / 6,
    lambda x: torch.mul(input=x, other=F.softplus(x).tanh()),
    lambda x: x * x,
    lambda x: x * x.detach().exp(),
]


@pytest.mark.parametrize("number", range(len(ACTIVATIONS)))
def test_activations_hand_all_relevance_on(number: int) -> None:
    function = ACTIVATIONS[number]
    check(function, passed_on(lambda x: function(x.detach().clone())), X)


def test_hand_written_gelu_is_gelu() -> None:
    got = relevance(lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))), X)[0]
    torch.testing.assert_close(got, relevance(F.gelu, X)[0])


def scaled(x: Tensor, dims: tuple[int, ...], eps: float = 1e-5) -> Tensor:
    """x without its mean, divided by its deviation, which is a constant."""
    deviation = (x.var(dims, correction=0, keepdim=True) + eps).sqrt().detach()
    return (x - x.mean(dims, keepdim=True)) / deviation


IMAGES = random(2, 6, 3, 4)
NORMS: dict[str, tuple[Function, Function, Tensor]] = {
    "layer": (
        lambda x: F.layer_norm(x, (6,), WEIGHT, CONSTANT[0]),
        lambda x: scaled(x, (1,)) * WEIGHT + CONSTANT[0],
        X,
    ),
    "layer over two axes": (lambda x: F.layer_norm(x, (3, 4)), lambda x: scaled(x, (2, 3)), IMAGES),
    "layer by name": (
        lambda x: torch.layer_norm(input=x, normalized_shape=(6,)),
        lambda x: scaled(x, (1,)),
        X,
    ),
    "group": (
        lambda x: F.group_norm(x, 2, WEIGHT, WEIGHT),
        lambda x: scaled(x.view(2, 2, -1), (2,)).view_as(x) * WEIGHT[:, None, None] + WEIGHT[:, None, None],
        IMAGES,
    ),
    "instance": (
        lambda x: F.instance_norm(x, weight=WEIGHT),
        lambda x: scaled(x, (2, 3)) * WEIGHT[:, None, None],
        IMAGES,
    ),
    "root mean square": (
        lambda x: F.rms_norm(x, (6,), WEIGHT, 1e-3),
        lambda x: x * WEIGHT / (x.square().mean(1, keepdim=True) + 1e-3).sqrt().detach(),
        X,
    ),
    "root mean square, default eps": (
        lambda x: F.rms_norm(x, (6,)),
        lambda x: x / (x.square().mean(1, keepdim=True) + torch.finfo(x.dtype).eps).sqrt().detach(),
        X,
    ),
    "Llama's": (
        lambda x: WEIGHT * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)),
        lambda x: WEIGHT * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3).detach(),
        X,
    ),
    "by a negative power": (
        lambda x: x * (x.pow(2).mean(-1, keepdim=True) + 1e-3) ** -0.5,
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3).detach(),
        X,
    ),
    "by var_mean": (
        lambda x: (x - torch.var_mean(x, 1, keepdim=True)[1]) / torch.std_mean(x, 1, keepdim=True)[0],
        lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True).detach(),
        X,
    ),
    "normalize": (F.normalize, lambda x: x / x.norm(dim=1, keepdim=True).detach(), X),
    "local response": (
        lambda x: F.local_response_norm(x, 3),
        passed_on(lambda x: F.local_response_norm(x.detach(), 3)),
        IMAGES,
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_have_a_constant_scale_and_keep_the_subtraction_of_the_mean(name: str) -> None:
    function, surrogate, x = NORMS[name]
    check(function, surrogate, x)


def gate(s: Tensor) -> Tensor:
    return s.sigmoid().detach()


def se_block(x: Tensor, s: Callable[[Tensor], Tensor]) -> Tensor:
    """Squeeze and excitation of channels, through views."""
    y = x.mean((2, 3)) @ random(6, 6, seed=5)
    return x * s(y).view(len(x), 6, 1, 1).expand_as(x)


A, B = random(4, 6, seed=7), random(4, 6, seed=8)
CASES: dict[str, tuple[Function, Function, list[Tensor]]] = {
    "product": (lambda a, b: a * b, lambda a, b: half(a) * half(b), [A, B]),
    "product by name": (lambda a, b: torch.mul(a, other=b), lambda a, b: half(a) * half(b), [A, B]),
    "product in place": (lambda a, b: a.mul_(b), lambda a, b: half(a) * half(b), [A, B]),
    "product with a sum of two": (
        lambda a, b: torch.add(a, other=b) * a,
        lambda a, b: half(a + b) * half(a),
        [A, B],
    ),
    "product of a function of what was there before": (
        lambda a, b: (lambda t: t * a.add_(b))(a.relu()),
        lambda a, b: half(a.relu()) * half(a + b),
        [A, B],
    ),
    "matrices": (lambda a, b: a @ b.mT, lambda a, b: half(a) @ half(b).mT, [A, B]),
    "matrices by name": (
        lambda a, b: torch.matmul(input=a, other=b.T),
        lambda a, b: half(a) @ half(b).T,
        [A, B],
    ),
    "batches of matrices": (
        lambda a, b: torch.baddbmm(a[:, :, None], a[:, :, None], b[:, None]),
        lambda a, b: a[:, :, None] + half(a)[:, :, None] @ half(b)[:, None],
        [A, B],
    ),
    "three in einsum": (
        lambda a, b: torch.einsum("bi,bi,bj->bj", a, b, a),
        lambda a, b: torch.einsum("bi,bi,bj->bj", *((t + 2 * t.detach()) / 3 for t in (a, b, a))),
        [A, B],
    ),
    "einsum of a list": (
        lambda a, b: torch.einsum("bi,bj->bij", [a, b]),
        lambda a, b: half(a)[:, :, None] * half(b)[:, None],
        [A, B],
    ),
    "gate": (lambda a, b: a * b.sigmoid(), lambda a, b: a * gate(b) + 0 * b, [A, B]),
    "gate first": (
        lambda a, b: F.hardsigmoid(b) * a,
        lambda a, b: F.hardsigmoid(b.detach()) * a + 0 * b,
        [A, B],
    ),
    "gate in place": (lambda a, b: a.mul_(b.sigmoid()), lambda a, b: a * gate(b) + 0 * b, [A, B]),
    "two sides of a gate": (
        lambda a, b: b.sigmoid() * a + (1 - b.sigmoid()) * a.flip(1),
        lambda a, b: gate(b) * a + (1 - gate(b)) * a.flip(1) + 0 * b,
        [A, B],
    ),
    "one of several gates": (
        lambda a, b: a[:, :3] * b.sigmoid().chunk(2, 1)[1],
        lambda a, b: a[:, :3] * gate(b)[:, 3:] + 0 * b[:, :3],
        [A, B],
    ),
    "squeeze and excitation": (lambda x: se_block(x, torch.sigmoid), lambda x: se_block(x, gate), [IMAGES]),
    "glu": (lambda a: F.glu(a, 1), lambda a: a[:, :3] * gate(a[:, 3:]), [A]),
    "quotient": (lambda a, b: a / (b.abs() + 1), lambda a, b: a / (b.abs() + 1).detach() + 0 * b, [A, B]),
    "quotient in place": (
        lambda a, b: a.div_(b.abs() + 1),
        lambda a, b: a / (b.abs() + 1).detach() + 0 * b,
        [A, B],
    ),
    "one over": (lambda a, b: a * (1 / (b + 9)), lambda a, b: a / (b + 9).detach() + 0 * b, [A, B]),
    "softmax": (lambda a: torch.softmax(input=a, dim=1), lambda a: a.softmax(1), [A]),
    "max pooling": (lambda a: F.max_pool1d(a[:, None], 2), lambda a: a.view(4, 3, 2).amax(2), [A]),
    "maximum": (torch.maximum, lambda a, b: torch.where(a > b, a, b), [A, B]),
    "cat and index": (
        lambda a, b: torch.cat([a[:, [1, 1]], b[:, None, ::2].squeeze(1)], 1),
        lambda a, b: torch.stack([a[:, 1], a[:, 1], b[:, 0], b[:, 2], b[:, 4]], 1),
        [A, B],
    ),
    "masks": (
        lambda a, b: torch.where(a > 0, a.masked_fill(b > 0, 3.0), b),
        lambda a, b: a * ((a > 0) & (b <= 0)) + b * (a <= 0) + 3 * ((a > 0) & (b > 0)),
        [A, B],
    ),
    "Fourier": (lambda a: torch.fft.fft(a).real, lambda a: a @ torch.fft.fft(torch.eye(6).to(a)).real, [A]),
    "rotation by complex numbers": (
        lambda a: torch.view_as_real(torch.view_as_complex(a.view(4, 3, 2)) * 1j),
        lambda a: torch.stack([-a[:, 1::2], a[:, ::2]], -1),
        [A],
    ),
    "without gradient": (lambda a, b: a + no_grad(b), lambda a, b: a + b.detach() + 0 * b, [A, B]),
    "another precision": (lambda a: a.float().double() * 2, lambda a: a.float().double() * 2, [A]),
    "learned root pooling": (
        lambda a: F.lp_pool1d(a.abs()[:, None], 2, 2),
        lambda a: (lambda q: q * (q.sqrt() / q).detach())((a * a.detach()).view(4, 3, 2).sum(2)),
        [A],
    ),
}


def no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x.exp()


@pytest.mark.parametrize("name", CASES)
def test_operations_go_by_their_rules(name: str) -> None:
    function, surrogate, inputs = CASES[name]
    check(function, surrogate, *inputs)


def written(x: Tensor) -> Tensor:
    """Change the input, a slice and a view in place."""
    x.sub_(CONSTANT)
    x /= 2
    x[:, 0] = x[:, 1] * 3
    view = x[:, 2:4]
    view += x[:, 4:]
    x[:, 5:].relu_()
    out = torch.zeros(4, 3, dtype=x.dtype)
    out[:, :2] = x[:, :2]
    out[:, 2] += x[:, 5]
    return torch.cat([x, out], 1)


def unwritten(x: Tensor) -> Tensor:
    """The same without a change in place."""
    x = (x - CONSTANT) / 2
    parts = [x[:, 1:2] * 3, x[:, 1:2], x[:, 2:4] + x[:, 4:], x[:, 4:5], x[:, 5:].relu()]
    x = torch.cat(parts, 1)
    return torch.cat([x, x[:, :2], x[:, 5:]], 1)


def test_changes_in_place_are_followed() -> None:
    x = X.clone()
    check(written, unwritten, x)
    assert torch.equal(x, X)


def test_softmax_is_a_constant_where_relevance_does_not_flow_to_queries_and_keys() -> None:
    check(lambda a: a.softmax(1) * a, lambda a: a.softmax(1).detach() * a, A, rules=ATTN_LRP_CP)


def test_one_layer_called_twice_and_tied_weights() -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(6, 6).double(), nn.Linear(6, 6).double()
    second.weight = first.weight
    function = nn.Sequential(first, nn.ReLU(), first, second)
    check(function, function, X)


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrised_layers_go_by_the_weight_they_stand_for(kind: str) -> None:
    torch.manual_seed(0)
    layer = getattr(nn.utils.parametrizations, kind)(nn.Linear(6, 6).double()).eval()
    weight, bias = layer.weight.detach(), layer.bias.detach()
    check(layer, lambda x: F.linear(x, weight, bias), X)
