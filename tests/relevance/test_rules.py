"""Layers and sums go by their rules, which are written out here with dense matrices in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.helpers.relevance_nets import Function, by_gradient, flow_of, random, relevance
from whence.errors import InvalidInputError
from whence.relevance import Rules

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")


def matrix(function: Function, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """W (out, in) and b (out,) of an affine function of a sample, by its values at unit vectors."""
    n = torch.Size(shape).numel()
    with torch.no_grad():
        b = function(torch.zeros(1, *shape, dtype=torch.float64)).flatten()
        W = function(torch.eye(n, dtype=torch.float64).view(n, *shape)).flatten(1).T - b[:, None]
    return W, b


def ones_in(function: Function) -> Function:
    """The same layer with all weights 1; paddings before it and no normalisation after it."""
    layer = copy.deepcopy(function)
    for module in layer.modules() if isinstance(layer, nn.Module) else []:
        if isinstance(module, nn.modules.conv._ConvNd | nn.Linear):
            nn.init.ones_(module.weight)
    return layer


def stab(z: Tensor, epsilon: float | Tensor) -> Tensor:
    return torch.where(z >= 0, z + epsilon, z - epsilon)


def by_matrix(rule: str, function: Function, x: Tensor, R: Tensor, epsilon: float | Tensor) -> Tensor:
    """Relevance of x (B, …) from R (B, out) by the rule's definition."""
    W, b = matrix(function, tuple(x.shape[1:]))
    rows = x.flatten(1)  # (B, in)
    if rule == "epsilon":
        found = rows * ((R / stab(rows @ W.T + b, epsilon)) @ W)
    elif rule == "plus":
        above, below = rows.clamp(min=0), rows.clamp(max=0)
        z = above @ W.clamp(min=0).T + below @ W.clamp(max=0).T + b.clamp(min=0)
        s = R / stab(z, epsilon)
        found = above * (s @ W.clamp(min=0)) + below * (s @ W.clamp(max=0))
    else:
        A, _ = matrix(ones_in(function), tuple(x.shape[1:]))
        found = (R / stab(A.sum(1), epsilon)) @ A
    return found.view_as(x)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    layer = make().double().eval()
    for module in layer.modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.running_mean is not None:
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return layer


def norm_after(layer: nn.Module, norm: nn.Module) -> nn.Module:
    return nn.Sequential(layer, norm)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 4), (5,)),
    "linear, no bias": (lambda: nn.Linear(5, 4, bias=False), (5,)),
    "linear over places": (lambda: nn.Linear(5, 4), (3, 5)),
    "conv1d": (lambda: nn.Conv1d(2, 4, 3, stride=2, padding=1), (2, 7)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, (1, 2), (1, 2), (1, 2), groups=2), (4, 5, 7)),
    "conv2d, no bias": (lambda: nn.Conv2d(2, 3, (2, 3), padding="valid", bias=False), (2, 4, 5)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2, 2, 1), (2, 3, 4, 3)),
    "padding wider than the kernel": (lambda: nn.Conv2d(2, 3, 1, padding=1), (2, 3, 3)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(4, 6, 3, 2, 1, groups=2), (4, 4)),
    "transposed 2d": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2, dilation=2), (4, 3, 4)),
    "transposed 3d": (lambda: nn.ConvTranspose3d(2, 2, 2, 2), (2, 2, 3, 2)),
    "same": (lambda: nn.Conv2d(2, 3, 3, padding="same", dilation=2), (2, 5, 5)),
    "same, even kernel": (lambda: nn.Conv2d(2, 3, (2, 4), padding="same"), (2, 5, 6)),
    "same, even kernel 1d": (lambda: nn.Conv1d(2, 3, 4, padding="same"), (2, 6)),
    "circular": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 5, 5)),
    "padded before": (lambda: nn.Sequential(nn.ZeroPad2d((1, 2, 0, 1)), nn.Conv2d(2, 3, 3)), (2, 4, 4)),
    "after reshaping": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), (3, 4)),
    "conv, norm": (lambda: norm_after(nn.Conv2d(2, 4, 3, groups=2), nn.BatchNorm2d(4)), (2, 5, 5)),
    "linear, norm": (lambda: norm_after(nn.Linear(5, 4), nn.BatchNorm1d(4)), (5,)),
    "transposed, norm": (
        lambda: norm_after(nn.ConvTranspose2d(4, 6, 3, 2, groups=2, bias=False), nn.BatchNorm2d(6)),
        (4, 3, 3),
    ),
    "conv, norm, norm": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.BatchNorm1d(3)),
        (2, 6),
    ),
    "conv, instance norm with fixed statistics": (
        lambda: norm_after(nn.Conv2d(2, 3, 3), nn.InstanceNorm2d(3, affine=True, track_running_stats=True)),
        (2, 5, 5),
    ),
}


@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
@pytest.mark.parametrize("rule", ["epsilon", "plus", "flat"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_go_by_the_closed_form_of_their_rule(name: str, rule: str, epsilon: float) -> None:
    make, shape = LAYERS[name]
    layer, x = seeded(make), random(2, *shape)  # inputs of both signs
    x[0, 0] = 0
    got, z, c = relevance(layer, x, rules=Rules(rule, rule, epsilon=epsilon))
    with torch.no_grad():
        assert torch.equal(z, layer(x).flatten(1))
    # Where the norm's dense matrix is of one layer, flat shares do not depend on it.
    function = layer[0] if rule == "flat" and "norm" in name else layer  # type: ignore[index]
    torch.testing.assert_close(got, by_matrix(rule, function, x, c * z, epsilon), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("rule", ["epsilon", "plus"])
@pytest.mark.parametrize("name", ["linear", "linear over places", "conv1d", "conv2d", "conv, norm"])
def test_a_relative_epsilon_is_a_share_of_what_the_layer_gives_for_the_sample(name: str, rule: str) -> None:
    make, shape = LAYERS[name]
    layer, x = seeded(make), random(2, *shape)
    x[1] *= 100  # another size than the first sample's
    got, z, c = relevance(layer, x, rules=Rules(rule, rule, epsilon=1e-3, relative=0.5))
    with torch.no_grad():
        out = layer(x)
    dims = -1 if name.startswith("linear") else tuple(range(1, out.ndim))
    epsilon = 1e-3 + 0.5 * out.square().mean(dims, keepdim=True).sqrt().expand_as(out).flatten(1)
    torch.testing.assert_close(got, by_matrix(rule, layer, x, c * z, epsilon), rtol=1e-9, atol=1e-11)


def test_units_of_a_layer_do_not_matter_to_a_relative_epsilon() -> None:
    def network(factor: float) -> nn.Module:
        first, second = seeded(lambda: nn.Conv2d(2, 3, 3)), seeded(lambda: nn.Conv2d(3, 4, 3))
        last = seeded(lambda: nn.Linear(16, 5))
        with torch.no_grad():
            second.weight.mul_(factor)
            second.bias.mul_(factor)
            last.weight.div_(factor)
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), last, nn.ReLU())

    x = random(2, 2, 6, 6)

    def moved_by_units(rules: Rules) -> float:
        one, other = (relevance(network(factor), x, rules=rules)[0] for factor in (1.0, 10.0))
        return float((one - other).norm() / one.norm())

    assert moved_by_units(Rules(convolution="plus", epsilon=1e-14, relative=0.25)) < 1e-9
    assert moved_by_units(Rules(convolution="plus", epsilon=0.25)) > 0.01


@pytest.mark.parametrize("rule", ["epsilon", "plus", "flat"])
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_padding_of_any_kind_gives_back_what_it_took_from_the_input(mode: str, rule: str) -> None:
    conv, x = seeded(lambda: nn.Conv2d(2, 3, 3)), random(2, 2, 4, 5)
    value = 7.0 if mode == "constant" else None

    def padded(x: Tensor) -> Tensor:
        return F.pad(x, (1, 2, 0, 1), mode, value)

    rules = Rules(rule, rule, epsilon=1e-6)
    got, z, c = relevance(lambda x: conv(padded(x)), x, rules=rules)
    P, _ = matrix(padded, tuple(x.shape[1:]))  # which input each place of the padded image is
    R = c * z
    if rule == "flat":  # places that are no input have no share
        A = matrix(ones_in(conv), tuple(padded(x).shape[1:]))[0] * P.sum(1)
        R = (R / (A.sum(1) + 1e-6)) @ A
    else:
        R = by_matrix(rule, conv, padded(x), R, 1e-6).flatten(1)
    torch.testing.assert_close(got, (R @ P).view_as(x), rtol=1e-9, atol=1e-11)


def test_a_layer_of_one_unbatched_sample_keeps_the_flat_rule() -> None:
    conv = seeded(lambda: nn.Conv1d(1, 2, 3))
    x = random(2, 6)  # a batch of 2 that the convolution takes for a sample of two channels

    def function(x: Tensor) -> Tensor:
        return torch.stack([conv(row[None]) for row in x])

    got, z, c = relevance(function, x, rules=Rules(first="flat", epsilon=1e-6))
    torch.testing.assert_close(got[:, None], by_matrix("flat", conv, x[:, None], c * z, 1e-6))


SUMS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "mean": (lambda x: x.mean(1), (3, 4)),
    "sum": (lambda x: torch.sum(input=x, dim=(1, 2)).unsqueeze(1), (3, 4)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2, 1), (2, 5)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 5, 5)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (2, 4, 4, 2)),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 2), (2, 5)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 2), (2, 5, 4)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 1), (2, 3, 4, 2)),
    "skip": (lambda x: x + x.flip(1), (4,)),
    "skip, in place": (lambda x: x.clone().add_(x.flip(1)), (4,)),
    "difference": (lambda x: torch.subtract(x, x.flip(1)), (4,)),
    "constant minus x": (lambda x: 2 - x, (4,)),
    "matmul": (lambda x: x @ random(4, 5), (3, 4)),
    "matmul by a vector": (lambda x: torch.matmul(input=x, other=random(4)), (3, 4)),
    "weight on the left": (lambda x: random(5, 3) @ x, (3, 4)),
    "linear with one output": (lambda x: F.linear(x, random(4)), (3, 4)),
    "einsum": (lambda x: torch.einsum("bij,jk->bki", x, random(4, 5)), (3, 4)),
    "tensordot": (lambda x: torch.tensordot(x, random(4, 5), 1), (3, 4)),
    "addmm": (lambda x: torch.addmm(random(5), x, random(4, 5)), (4,)),
    "addmm, by name": (lambda x: torch.addmm(input=random(5), mat1=x, mat2=random(4, 5)), (4,)),
    "aten": (lambda x: torch.ops.aten.addmm.default(random(5), x, random(4, 5)), (4,)),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_and_products_with_constants_give_stabilised_shares(name: str) -> None:
    function, shape = SUMS[name]
    x = random(2, *shape, seed=3)
    got, z, c = relevance(function, x, rules=Rules(epsilon=0.1))
    torch.testing.assert_close(got, by_matrix("epsilon", function, x, c * z, 0.1), rtol=1e-10, atol=1e-12)


def test_what_is_moved_and_not_summed_is_not_stabilised() -> None:
    function = lambda x: torch.einsum("bij->bji", x)  # noqa: E731
    x = random(2, 3, 4)
    got, _, c = relevance(function, x, rules=Rules(epsilon=0.1))
    torch.testing.assert_close(got, by_gradient(function, x, c=c))


def test_batch_norm_alone_is_an_affine_layer() -> None:
    norm, x = seeded(lambda: nn.BatchNorm2d(3)), random(2, 3, 4, 4)
    got, z, c = relevance(norm, x, rules=Rules(epsilon=0.1))
    torch.testing.assert_close(got, by_matrix("epsilon", norm, x, c * z, 0.1), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rule", ["epsilon", "plus", "flat"])
@pytest.mark.parametrize(
    "pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, stride=1, padding=1)], ids=["2", "overlapping"]
)
def test_batch_norm_after_max_pooling_is_one_layer_with_the_convolution(pool: nn.Module, rule: str) -> None:
    conv, norm = seeded(lambda: nn.Conv2d(2, 4, 3, padding=1)), seeded(lambda: nn.BatchNorm2d(4))
    with torch.no_grad():  # by a factor below 0 the largest value becomes the smallest
        norm.weight.copy_(torch.tensor([0.7, -0.4, 1.2, -0.9]))
    x, epsilon = random(2, 2, 6, 6), 0.1
    net = nn.Sequential(conv, pool, norm, nn.ReLU())
    got, z, c = relevance(net, x, rules=Rules(convolution=rule, epsilon=epsilon))
    with torch.no_grad():
        assert torch.equal(z, net(x).flatten(1))
    y = conv(x).detach().requires_grad_()
    pooled = pool(y)
    (R,) = torch.autograd.grad(pooled, y, (c * z).view_as(pooled))  # to where the largest value came from
    layer = conv if rule == "flat" else nn.Sequential(conv, norm)
    torch.testing.assert_close(got, by_matrix(rule, layer, x, R.flatten(1), epsilon))
    flow = flow_of(net, x, rules=Rules(convolution=rule, epsilon=epsilon))
    several = random(3, *flow.features.shape)
    at_once = flow.maps(several)["input"]
    torch.testing.assert_close(at_once, torch.stack([flow.maps(one)["input"] for one in several]))


def test_batch_norm_over_the_places_of_a_dense_layer_is_not_fused_with_it() -> None:
    # As many places as outputs, so that fusing would go through.
    linear, norm = seeded(lambda: nn.Linear(6, 5)), seeded(lambda: nn.BatchNorm1d(5))
    x, epsilon = random(2, 5, 6), 0.1
    got, z, c = relevance(nn.Sequential(linear, norm), x, rules=Rules(epsilon=epsilon))
    with torch.no_grad():
        y = linear(x)
    inner = by_matrix("epsilon", norm, y, c * z, epsilon)
    torch.testing.assert_close(got, by_matrix("epsilon", linear, x, inner.flatten(1), epsilon))


@pytest.mark.parametrize("rule", ["plus", "flat"])
def test_values_that_the_model_overwrites_are_found_again(rule: str) -> None:
    conv, norm = seeded(lambda: nn.Conv2d(2, 3, 3, padding=1)), seeded(lambda: nn.BatchNorm2d(3))

    def function(x: Tensor, in_place: bool) -> Tensor:
        y = conv(x)
        z = norm(y)
        if not in_place:
            return z.relu()
        y.zero_()
        return z.relu_()

    x, rules = random(2, 2, 5, 5), Rules(convolution=rule, epsilon=1e-6)
    got = relevance(lambda x: function(x, True), x, rules=rules)[0]
    torch.testing.assert_close(got, relevance(lambda x: function(x, False), x, rules=rules)[0])


@pytest.mark.parametrize("between", [nn.Tanh(), nn.ReLU(), nn.ReLU(inplace=True), nn.SiLU(inplace=True)])
def test_two_flat_layers_share_alike_from_the_input_on(between: nn.Module) -> None:
    first, second = seeded(lambda: nn.Conv2d(2, 3, 3, padding=1)), seeded(lambda: nn.Conv2d(3, 2, 2))
    x, rules = random(2, 2, 6, 6), Rules(convolution="flat", epsilon=1e-6)
    net = nn.Sequential(first, between, nn.MaxPool2d(2), second)
    got, z, c = relevance(net, x, rules=rules)
    with torch.no_grad():
        y = between(first(x))
    R = by_matrix("flat", second, F.max_pool2d(y, 2), c * z, 1e-6)
    y.requires_grad_()
    (R,) = torch.autograd.grad(F.max_pool2d(y, 2), y, R)  # to where the largest value came from
    torch.testing.assert_close(got, by_matrix("flat", first, x, R.flatten(1), 1e-6))


def test_flat_after_another_rule_is_refused() -> None:
    first, second = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 2, 2)
    net = nn.Sequential(first, nn.ReLU(), second).double()
    rules = Rules(convolution="plus", epsilon=1e-6).with_layers({"function.2": "flat"})
    with pytest.raises(InvalidInputError, match="flat rule must hold from the input on"):
        relevance(net, random(2, 2, 6, 6), rules=rules)


@pytest.mark.parametrize("where", [{"linear": "plus"}, {"first": "plus"}, {"layers": {"a": "plus"}}])
def test_the_plus_rule_needs_an_epsilon(where: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="'epsilon' must be above 0"):
        Rules(**where)  # type: ignore[arg-type]
