"""Relevance propagation as a whole: linear, conserving, exact in its values, the model left as it was."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.families import FAMILIES, IMAGES, Family, ResNet, Vgg
from tests.helpers.nets import Network
from tests.helpers.relevance_nets import random
from tests.relevance.test_rules import by_matrix
from whence.errors import HeadError, InvalidInputError, ModelError
from whence.features import extract
from whence.model.bound import BoundModel
from whence.model.extractor import Extractor
from whence.model.modules import unwrap
from whence.relevance import Rules, lrp, trace
from whence.relevance.lrp import default_rules
from whence.relevance.presets import ATTN_LRP, ATTN_LRP_CP, EPSILON, EPSILON_PLUS_FLAT, PRESETS, as_rules
from whence.relevance.xda import start

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:transformers", "ignore::DeprecationWarning:peft"
)


def convolutional(bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3, 2, 1, bias=bias), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(4, 5, 3, padding=1, bias=bias), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(20, 6, bias=bias), nn.ReLU(), nn.Linear(6, 3)).double()


def dense(bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(48, 9, bias=bias), nn.ReLU(), nn.Linear(9, 6, bias=bias), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(6, 3)).double()


X = random(3, 3, 16, 16)


def test_maps_are_linear_in_the_relevance() -> None:
    flow = trace(Extractor(convolutional(), "9"), X, EPSILON_PLUS_FLAT)
    a, b = random(3, 6), random(3, 6, seed=1)
    parts = 2 * flow.maps(a)["input"] - 3 * flow.maps(b)["input"]
    torch.testing.assert_close(flow.maps(2 * a - 3 * b)["input"], parts)


@pytest.mark.parametrize("n", [1, 3])
def test_several_relevances_in_one_pass_are_as_many_passes(n: int) -> None:
    for model, layer, x in [(convolutional(), "9", X), (dense(), "5", X[:, :, :4, :4])]:
        flow, c = trace(Extractor(model, layer), x[:n]), random(4, n, 6)
        together = flow.maps(c)["input"]
        assert together.shape == (4, *x[:n].shape)
        torch.testing.assert_close(together, torch.stack([flow.maps(each)["input"] for each in c]))


def test_samples_of_a_batch_do_not_meet() -> None:
    extractor, R = Extractor(convolutional(), "9"), random(3, 6)
    together = lrp(extractor, X, R)
    alone = [lrp(extractor, X[i : i + 1], R[i : i + 1]) for i in range(3)]
    torch.testing.assert_close(together, torch.cat(alone))  # type: ignore[arg-type]


CONSERVING = [Rules(convolution="plus", epsilon=1e-14), Rules("plus", "plus", "flat", epsilon=1e-14)]


@pytest.mark.parametrize("rules", CONSERVING, ids=["plus", "flat"])
def test_relevance_is_conserved_without_biases(rules: Rules) -> None:
    for model, layer, x in [(convolutional(False), "9", X), (dense(False), "5", X[:, :, :4, :4])]:
        extractor = Extractor(model, layer)
        R = extractor(x) * random(3, 6).abs()  # none where the feature is 0
        got = lrp(extractor, x, R, rules)
        torch.testing.assert_close(got.flatten(1).sum(1), R.sum(1), rtol=1e-9, atol=1e-11)  # type: ignore


def test_a_relevance_of_another_shape_is_refused() -> None:
    flow = trace(Extractor(dense(), "5"), X[:, :, :4, :4])
    with pytest.raises(InvalidInputError, match=r"\(3, 6\).*Got \(3, 5\)"):
        flow.maps(random(3, 5))


def test_two_inputs_have_a_map_each() -> None:
    model = Network(
        lambda self, a, b: self.head(torch.cat([self.a(a), self.b(b)]).view(2, -1, 5).sum(0)),
        a=nn.Linear(4, 5), b=nn.Linear(3, 5, bias=False), head=nn.Linear(5, 3),
    ).double()  # fmt: skip
    a, b, c = random(2, 4), random(2, 3), random(2, 5)
    maps = trace(Extractor(model, "head"), (a, b), Rules()).maps(c)
    torch.testing.assert_close(maps["0"], a * (c @ model.a.weight.detach()))
    torch.testing.assert_close(maps["1"], b * (c @ model.b.weight.detach()))


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def family(request: pytest.FixtureRequest) -> Family:
    if (missing := request.param.missing()) is not None:
        pytest.skip(missing)
    return request.param  # type: ignore[no-any-return]


def test_every_family_runs_with_its_own_values(family: Family) -> None:
    model, inputs = family.made()
    model.train()
    before = state(unwrap(model))
    extractor = Extractor(model, family.head)
    flow = trace(extractor, inputs)
    assert torch.equal(flow.features, extractor(inputs))
    maps = flow.maps(torch.randn(2, *flow.features.shape))
    assert all(each.isfinite().all() and each.any() for each in maps.values())
    assert_same(before, state(unwrap(model)))
    kind = family.name.split(",")[0].split(" ")[0]
    convolves = {
        "VGG",
        "ResNet",
        "DenseNet",
        "ConvNeXt",
        "EfficientNet",
        "EfficientNet-lite0",
        "1×1",
        "average",
    }
    expected = EPSILON_PLUS_FLAT if kind in convolves else EPSILON if kind == "Sequential" else ATTN_LRP_CP
    assert default_rules(extractor, inputs) is expected


def state(model: nn.Module) -> dict[str, Any]:
    """Everything of a model that a pass could touch."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    found: dict[str, Any] = {f"value {name}": (id(t), t.detach().clone()) for name, t in tensors.items()}
    for name, t in tensors.items():
        found[f"flags {name}"] = (t.requires_grad, None if t.grad is None else t.grad.clone(), t._version)
    for name, module in model.named_modules():
        hooks = {key: dict(value) for key, value in vars(module).items() if "hooks" in key and value}
        found[f"module {name}"] = (module.training, hooks, sorted(vars(module)))
    return found


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert before.keys() == after.keys()
    for key in before:
        for a, b in zip(before[key], after[key], strict=True):
            assert torch.equal(a, b) if isinstance(a, Tensor) else a == b, key


def marked() -> nn.Module:
    """A model with hooks, gradients, a frozen weight and modules in both modes."""
    model = Vgg()
    model.features[0].register_forward_hook(lambda *_: None)
    model.classifier[0].register_forward_pre_hook(lambda *_: None)
    model.classifier[0].weight.grad = torch.ones_like(model.classifier[0].weight)
    model.classifier[0].bias.requires_grad_(False)
    nn.utils.parametrizations.spectral_norm(model.classifier[3])
    nn.utils.parametrizations.spectral_norm(model.features[3][0])
    model.train()
    model.features[1].eval()
    return model


def test_the_model_is_as_before_after_success_and_failure() -> None:
    model = marked()
    before, extractor = state(model), Extractor(model, "classifier.3")
    for rules in PRESETS:
        lrp(extractor, IMAGES, torch.randn(10, 16), rules)
    assert_same(before, state(model))

    def fail(*_: Any) -> None:
        raise RuntimeError("in the middle")

    handle = model.classifier[1].register_forward_hook(fail)
    with pytest.raises(ModelError, match="in the middle"):
        trace(extractor, IMAGES, EPSILON_PLUS_FLAT)
    handle.remove()
    assert_same(before, state(model))
    assert torch.tanh(torch.zeros(1, requires_grad=True)).grad_fn.name() == "TanhBackward0"  # type: ignore


def test_backward_hooks_of_the_user_are_refused_and_kept() -> None:
    model = dense()
    calls: list[Any] = []
    model[1].register_full_backward_hook(lambda *args: calls.append(args))
    before = state(model)
    with pytest.raises(ModelError, match="backward hooks"):
        trace(Extractor(model, "5"), X[:, :, :4, :4])
    assert_same(before, state(model))
    assert not calls


def test_threads_do_not_see_one_another() -> None:
    model = ResNet()
    before, extractor = state(model), Extractor(model, "fc")
    R = torch.randn(10, 12, generator=torch.Generator().manual_seed(0))
    want, features = lrp(extractor, IMAGES, R), extractor(IMAGES)
    stop = threading.Event()

    def plain() -> bool:
        same = True
        while not stop.is_set():
            same &= torch.equal(extractor(IMAGES), features)
        return same

    with ThreadPoolExecutor(8) as pool:
        other = pool.submit(plain)
        found = list(pool.map(lambda _: lrp(extractor, IMAGES, R), range(14)))
        stop.set()
        assert other.result()
    assert all(torch.equal(each, want) for each in found)  # type: ignore[arg-type]
    assert_same(before, state(model))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_callers_mode_changes_nothing(mode: Any) -> None:
    extractor, R = Extractor(convolutional(), "9"), random(3, 6)
    want = lrp(extractor, X, R)
    with mode():
        got = lrp(extractor, X.clone(), R.clone())
        several = trace(extractor, X.clone()).maps(random(2, 3, 6))["input"]
    assert torch.equal(got, want)  # type: ignore[arg-type]
    assert torch.equal(several, trace(extractor, X).maps(random(2, 3, 6))["input"])


def test_a_model_that_lets_nothing_through_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).double()
    model.register_forward_pre_hook(lambda _, args: args[0].detach())
    with pytest.raises(ModelError, match="no way from input"):
        trace(Extractor(model, "1"), random(2, 4))


class Special(nn.Conv2d):
    pass


def test_rules_of_layers_by_name_and_type_name_first() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Special(3, 4, 3), nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(8, 3)).double()
    x, eps = random(2, 3, 6, 6), 1e-6
    with torch.no_grad():
        y = model[0](x)
        z = model[1](y).flatten(1)
    R = z * random(2, 8)

    def expected(first: str, second: str) -> Tensor:
        return by_matrix(first, model[0], x, by_matrix(second, model[1], y, R, eps).flatten(1), eps)

    for layers, pair in [
        ({}, ("epsilon", "epsilon")),
        ({"1": "plus"}, ("epsilon", "plus")),
        ({nn.Conv2d: "plus"}, ("plus", "plus")),
        ({Special: "flat", nn.Conv2d: "plus"}, ("flat", "plus")),
        ({nn.Conv2d: "plus", "1": "epsilon"}, ("plus", "epsilon")),
        ({nn.Module: "plus", "0": "flat"}, ("flat", "plus")),
    ]:
        got = lrp(Extractor(model, "3"), x, R, EPSILON.with_layers(layers))  # type: ignore[arg-type]
        torch.testing.assert_close(got, expected(*pair), rtol=1e-9, atol=1e-11)


def test_a_rule_for_the_first_layer_holds_after_reshaping_and_not_beyond() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Linear(5, 4), nn.Linear(4, 3)).double()
    x = random(2, 3, 4)
    with torch.no_grad():
        y = model[1](x.flatten(1))
        R = model[2](y)
    want = by_matrix("plus", model[1], x.flatten(1), by_matrix("epsilon", model[2], y, R, 1e-6), 1e-6)
    got = lrp(Extractor(model, "3"), x, R, Rules(first="plus", epsilon=1e-6))
    torch.testing.assert_close(got, want.view_as(x))


def test_unknown_names_are_refused() -> None:
    extractor = Extractor(convolutional(), "9")
    for layers in ({"99": "flat"}, {nn.Conv3d: "plus"}, {"1": "plus"}):
        with pytest.raises(InvalidInputError, match="'layers' must name"):
            trace(extractor, X, EPSILON.with_layers(layers))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="'rules' must be one of attn_lrp"):
        trace(extractor, X, "gamma")
    for options in ({"linear": "gamma"}, {"operations": {"exp": "plus"}}, {"epsilon": -1.0}):
        with pytest.raises(InvalidInputError, match="must be"):
            Rules(**options)  # type: ignore[arg-type]
    assert as_rules("attn_lrp") is ATTN_LRP


def test_what_comes_after_the_head_does_not_choose_the_rules() -> None:
    model = nn.Sequential(*copy.deepcopy(convolutional()), nn.Softmax(1))
    assert default_rules(Extractor(model, "9"), X) is EPSILON_PLUS_FLAT


def test_a_pass_with_a_graph_runs_the_model_once() -> None:
    """A fit has seen what the model does, so that a test costs one forward pass, logits and maps included."""
    model, calls = convolutional(), []
    data = X.repeat(4, 1, 1, 1), torch.arange(12) % 3
    bound = extract(model, data, show_progress=False).model
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    found = start(bound, X)
    assert len(calls) == 1
    want = trace(Extractor(model, "9"), X, EPSILON_PLUS_FLAT)
    assert torch.equal(found.logits, model.eval()(X))
    assert torch.equal(found.features, want.features)
    c = random(3, 6)
    assert torch.equal(found.maps(c)["input"], want.maps(c)["input"])
    assert torch.equal(found[1:].inputs, X[1:])
    assert len(found[1:]) == 2
    with pytest.raises(InvalidInputError, match="needs a pass with a graph"):
        found[1:].maps(c[1:])


def test_a_pass_with_a_graph_refuses_what_the_head_did_not_make() -> None:
    def bent(self: Network, x: Tensor) -> Tensor:
        z = self.inner(x)
        return torch.where(x.flatten(1).sum(1, keepdim=True) > 1e3, z.exp(), z)

    x = X[:, :, :4, :4]
    extractor = Extractor(Network(bent, inner=dense()), "inner.5", exact=True)
    bound = BoundModel(extractor)
    start(bound, x)
    for run in (extractor.read, partial(start, extractor)):
        with pytest.raises(HeadError, match="row 1 of the batch"):
            run(torch.stack([x[0], x[1] + 1e3]))
    with pytest.raises(HeadError, match="test 8 of 'x'"):
        start(bound, torch.stack([x[0], x[1] + 1e3]), first=7)
