"""The contract that every attribution method keeps, on two small networks that were trained for real."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whence
from tests.helpers.lazy import Samples
from tests.helpers.nets import train
from whence import methods
from whence.errors import InvalidInputError, ModelError, NotFittedError, StoreError
from whence.features import FeatureBank, extract
from whence.methods import Attributor

K, N, B = 3, 61, 7
PLANTED, FLIPPED = 0, N - 1  # the last sample is the first one again, with another label

METHODS = methods.names()
MEANT = [name for name in METHODS if name != "random"]  # whose scores mean something
NETWORKS = ["mlp", "cnn"]
NOT_SAVED = {"ekfac", "tracin", "random"}


class Case(NamedTuple):
    """A trained network, its training set, new inputs, and its weights in the course of training."""

    model: nn.Module
    x: Tensor
    y: Tensor
    tests: Tensor
    checkpoints: list[dict[str, Tensor]]


def mlp() -> nn.Module:
    layers = (nn.Linear(36, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, K))
    return nn.Sequential(nn.Flatten(), *layers)


def cnn() -> nn.Module:
    layers = (nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, K))
    return nn.Sequential(*layers)


@functools.cache
def trained(network: str) -> Case:
    torch.manual_seed(0)
    y = torch.arange(N) % K
    patterns = torch.randn(K, 1, 6, 6)
    x = patterns[y] + 0.5 * torch.randn(N, 1, 6, 6)
    x[PLANTED] = patterns[0]  # typical of its class, so that the network believes the right one of its labels
    x[FLIPPED], y[FLIPPED] = x[PLANTED], (y[PLANTED] + 1) % K
    tests = patterns[torch.arange(B) % K] + 0.5 * torch.randn(B, 1, 6, 6)
    model = mlp() if network == "mlp" else cnn()
    checkpoints = train(model, x, y, 12, 0.1, batch=16, optimizer=torch.optim.SGD, momentum=0.9, every=4)
    return Case(model.eval(), x, y, tests, checkpoints)


def make(method: str, **options: Any) -> Attributor:
    return methods.get(method)(**{"show_progress": False, **options})


def fit(method: str, case: Case, **options: Any) -> Attributor:
    explainer = make(method, **options)
    return explainer.fit(case.model, (case.x, case.y), **extra(explainer, case))


def extra(explainer: Attributor, case: Case) -> dict[str, Any]:
    """What ``fit`` of a method needs besides model and data."""
    return {"checkpoints": case.checkpoints} if explainer.capabilities.needs_checkpoints else {}


@functools.cache
def fitted(method: str, network: str = "mlp") -> Attributor:
    return fit(method, trained(network))


def test_the_registry_lists_the_methods() -> None:
    assert {"dualda", "graddot", "gradcos", "tracin", "trak"} <= set(METHODS)
    assert sorted(METHODS) == METHODS
    assert methods.get("dualda") is whence.DualDA
    assert methods.get("trak").name == "trak"
    with pytest.raises(InvalidInputError, match=r"one of .*dualda.*Got 'nothing'"):
        methods.get("nothing")


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("method", METHODS)
def test_shapes(method: str, network: str) -> None:
    case, e = trained(network), fitted(method, network)
    scores = e.attribute(case.tests)
    assert scores.shape == (B, N)
    assert scores.is_floating_point()
    assert scores.isfinite().all()
    assert not scores.requires_grad
    assert e.attribute(case.tests[:1]).shape == (1, N)
    assert e.attribute(case.tests, 1).shape == e.attribute(case.tests, [1] * B).shape == (B, N)
    own = e.self_influence()
    assert own.shape == (N,)
    assert own.isfinite().all()
    assert (e.n_train_, e.n_classes_) == (N, K)
    assert e.fit_seconds_ > 0
    assert isinstance(e.cache_bytes_, int)
    assert e.cache_bytes_ >= 0


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("method", METHODS)
def test_no_target_is_the_class_that_the_model_predicts(method: str, network: str) -> None:
    case, e = trained(network), fitted(method, network)
    with torch.no_grad():
        classes = case.model(case.tests).argmax(1)
    torch.testing.assert_close(e.attribute(case.tests), e.attribute(case.tests, classes))
    top = e.top_k(case.tests, 2)
    assert top.target.tolist() == classes.tolist()
    assert top.target.dtype == torch.int64


@pytest.mark.parametrize("k", [1, 4, N + 2])
@pytest.mark.parametrize("method", METHODS)
def test_top_k_is_the_head_and_tail_of_the_scores(
    method: str, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whence.core.ranking._BLOCK", 3 * N)  # three tests at a time
    case, e = trained("mlp"), fitted(method)
    target = torch.arange(B) % K
    scores = e.attribute(case.tests, target).numpy()
    tau = {"relative": False} if method == "dualda" else {}  # else it ranks scores relative to the mean
    top = e.top_k(case.tests, k, target, **tau)
    assert top.target.tolist() == target.tolist()
    for ranked, sign in ((top.proponents, 1), (top.opponents, -1)):
        assert ranked.indices.shape == ranked.scores.shape == (B, k)
        for b in range(B):
            expected = sign * np.sort(sign * scores[b])[::-1][:k]
            expected = np.where(sign * expected > 0, expected, 0)
            expected = np.pad(expected, (0, k - len(expected)))
            np.testing.assert_allclose(ranked.scores[b], expected, rtol=1e-4, atol=1e-6)
            found = ranked.indices[b].numpy()
            assert (found[expected == 0] == -1).all()
            named = found[expected != 0]
            np.testing.assert_allclose(scores[b, named], expected[expected != 0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("method", METHODS)
def test_scores_do_not_depend_on_how_samples_are_batched(method: str, network: str) -> None:
    case, e = trained(network), fitted(method, network)
    scores = e.attribute(case.tests, 1)
    size = scores.abs().max().item()
    one = torch.cat([e.attribute(case.tests[b : b + 1], 1) for b in range(B)])
    torch.testing.assert_close(one, scores, rtol=0, atol=1e-5 * size)
    small = fit(method, case, batch_size=5)
    torch.testing.assert_close(small.attribute(case.tests, 1), scores, rtol=0, atol=1e-4 * size)
    size = e.self_influence().abs().max().item()
    torch.testing.assert_close(small.self_influence(), e.self_influence(), rtol=0, atol=1e-4 * size)


@pytest.mark.parametrize("method", METHODS)
def test_the_seed_repeats_to_the_bit(method: str) -> None:
    case, e = trained("cnn"), fitted(method, "cnn")
    again = fit(method, case)
    assert torch.equal(again.attribute(case.tests), e.attribute(case.tests))
    assert torch.equal(again.self_influence(), e.self_influence())


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "method", [name for name in MEANT if name != "one-class"]
)  # of the class's own samples
def test_a_sample_with_a_flipped_label_is_the_opponent_of_its_double(method: str, network: str) -> None:
    case, e = trained(network), fitted(method, network)
    twin, label = case.x[:1], case.y[:1]
    with torch.no_grad():
        assert case.model(twin).argmax(1) == label  # the network has not learned the wrong label
    scores = e.attribute(twin, label)[0]
    assert scores[FLIPPED] < 0
    assert FLIPPED in e.top_k(twin, 3, label).opponents.indices[0].tolist()
    # And it speaks for the class that it was flipped to.
    assert e.attribute(twin, case.y[FLIPPED:])[0, FLIPPED] > 0


@pytest.mark.parametrize("method", [name for name in MEANT if name != "ensemble"])  # in units of its own
def test_self_influence_is_the_score_at_itself(method: str) -> None:
    case, e = trained("mlp"), fitted(method)
    own = e.self_influence()
    expected = e.attribute(case.x, case.y).diagonal()
    torch.testing.assert_close(own, expected.to(own), rtol=1e-3, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("method", METHODS)
def test_the_model_is_left_as_it_was(method: str) -> None:
    case = copy.deepcopy(trained("mlp"))
    model = case.model
    model.train()
    model[2].eval()
    model[1].weight.grad = torch.ones(12, 36)
    state = copy.deepcopy(model.state_dict())
    flags = [m.training for m in model.modules()]
    needs = [p.requires_grad for p in model.parameters()]
    e = fit(method, case)
    e.attribute(case.tests)
    e.top_k(case.tests, 2)
    e.self_influence()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert [m.training for m in model.modules()] == flags
    assert [p.requires_grad for p in model.parameters()] == needs
    assert torch.equal(model[1].weight.grad, torch.ones(12, 36))
    assert [p.grad is None for p in model.parameters()].count(False) == 1
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("method", METHODS)
def test_progress_is_shown_or_not(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    case = trained("mlp")
    fit(method, case, show_progress=True)
    assert "100%" in capsys.readouterr().err
    fit(method, case).attribute(case.tests)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("method", METHODS)
def test_a_model_that_changed_is_refused(method: str) -> None:
    case = copy.deepcopy(trained("mlp"))
    e = fit(method, case)
    with torch.no_grad():
        case.model[1].weight[0, 0] += 1
    with pytest.raises(ModelError, match=r"changed after fitting: 1\.weight has other values"):
        e.attribute(case.tests)


@pytest.mark.parametrize("method", METHODS)
def test_bad_input_is_named(method: str) -> None:
    case, e = trained("mlp"), fitted(method)
    for call, message in (
        (lambda: e.attribute(case.tests, K), rf"'target' must lie in \[0, {K}\).*Got {K} for test 0"),
        (lambda: e.attribute(case.tests, [0, 1]), "or one per test"),
        (lambda: e.attribute(case.tests, 0.5), "'target' must be None or integers"),
        (lambda: e.attribute([]), "'x' must be a batch"),
        (lambda: e.attribute([], 1), "'x' must be a batch"),
        (lambda: e.top_k(case.tests, 0), "'k' must be an integer of at least 1"),
        (lambda: fit(method, case, batch_size=0), "'batch_size' must be an integer of at least 1"),
        (lambda: fit(method, case._replace(y=case.y + 1)), "label must be in"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            call()


BAD_OPTIONS: list[tuple[str, str, list[Any], str]] = [
    ("influence lissa arnoldi ekfac", "damping", [0, -1.0, float("nan"), "a lot", True],
     "must be a finite number above 0"),
    ("graddot trak lissa arnoldi ekfac", "params", ["some"], "must be one of \"last\", \"all\". Got 'some'"),
    ("graddot trak", "projection", [0], "must be an integer of at least 1"),
    ("graddot trak", "projection", [10_000], "must be at most 507, the number of parameters"),
    ("graddot trak", "seed", [-1], "must be"),
    ("graddot trak", "memory", [0], "must be"),
    ("graddot", "loss", ["mse"], "must be None, for the cross-entropy, \"logit\""),
    ("trak", "ridge", [-1], "must be a finite number of at least 0. Got -1"),
    ("ekfac", "labels", ["true"], "must be one of"),
    ("lissa", "depth", [0], "must be an integer of at least 1"),
    ("lissa", "curvature_batch", [0], "must be"),
    ("arnoldi", "dimension projections n_samples", [0], "must be"),
    ("representer", "l2", [0, -1, float("inf"), None], "must be a finite number above 0"),
    ("representer", "targets", ["both"], "must be"),
    ("hingerp", "C", [0], "must be a finite number above 0"),
    ("effects", "C", [-1.0], "must be"),
    ("effects", "output", ["loss"], "must be one of"),
    ("similarity", "metric", ["l1"], "must be one of"),
    ("similarity", "space", ["pixels"], "must be one of"),
    ("dualda", "layers", ["second"], "must be \"last\""),
    ("dualda", "layers", [["body.8"]], "must name layers.*'1', '5'"),
]  # fmt: skip


@pytest.mark.parametrize(("named", "options", "values", "message"), BAD_OPTIONS)
def test_a_bad_option_is_named(named: str, options: str, values: list[Any], message: str) -> None:
    for method, option, value in itertools.product(named.split(), options.split(), values):
        with pytest.raises(InvalidInputError, match=f"'{option}' {message}"):
            fit(method, trained("mlp"), **{option: value})


@pytest.mark.parametrize("method", METHODS)
def test_a_failed_refit_keeps_the_earlier_fit(method: str) -> None:
    case = trained("mlp")
    e = fit(method, case)
    before = e.attribute(case.tests)
    with pytest.raises(InvalidInputError):
        e.fit(case.model, (case.x, case.y + 1), **extra(e, case))
    assert torch.equal(e.attribute(case.tests), before)


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_attributor_comes_back_exactly(method: str, tmp_path: Path) -> None:
    case, e = trained("cnn"), fitted(method, "cnn")
    path = tmp_path / "x.whence"
    if method in NOT_SAVED:
        with pytest.raises(StoreError, match=r"worth saving.*it again where it is needed"):
            e.save(path)
        assert not path.exists()
        return
    e.save(path)
    back = whence.load(path, model=case.model)
    assert type(back) is type(e)
    assert torch.equal(back.attribute(case.tests), e.attribute(case.tests))
    assert torch.equal(back.self_influence(), e.self_influence())
    assert (back.n_train_, back.n_classes_, back.cache_bytes_) == (N, K, e.cache_bytes_)
    assert back.fit_seconds_ == 0
    with pytest.raises(StoreError, match="another model"):
        whence.load(path, model=cnn())


@pytest.mark.parametrize("method", MEANT)
def test_samples_go_through_preprocess(method: str) -> None:
    case, e = trained("mlp"), fitted(method)
    doubled = make(method)
    doubled.fit(case.model, (2 * case.x, case.y), preprocess=lambda x: x / 2, **extra(e, case))
    scores = e.attribute(case.tests, 1)
    torch.testing.assert_close(
        doubled.attribute(2 * case.tests, 1), scores, rtol=0, atol=1e-5 * scores.abs().max().item()
    )


@functools.cache
def bank(network: str, layers: Any = "last") -> FeatureBank:
    case = trained(network)
    return extract(case.model, (case.x, case.y), layers=layers, show_progress=False)


@pytest.mark.parametrize("method", METHODS)
def test_methods_share_one_extraction(method: str) -> None:
    case, e = trained("cnn"), make(method)
    found = bank("cnn", getattr(e, "layers", "last"))
    e.fit(features=found, **extra(e, case))
    expected = fitted(method, "cnn")
    assert torch.equal(e.attribute(case.tests), expected.attribute(case.tests))
    assert torch.equal(e.self_influence(), expected.self_influence())
    assert e.origins_["features"] == "computed"
    assert e.fitted_.require_data() is found.data


def arrays(network: str) -> FeatureBank:
    """The same features as arrays, of which nobody knows the model."""
    whole = bank(network)
    return FeatureBank.of(whole.features, whole.labels, head=whole.head)


LAST = {"graddot", "gradcos", "ekfac"}  # which look at features alone only with params="last"


@pytest.mark.parametrize("method", METHODS)
def test_features_alone_are_enough_or_refused(method: str, tmp_path: Path) -> None:
    case, options = trained("cnn"), {"params": "last"} if method in LAST else {}
    if method == "ensemble":  # every member has features of its own
        with pytest.raises(InvalidInputError, match="features of their own"):
            fitted(method, "cnn").attribute(features=bank("cnn").features[:2])
        return
    if method in ("tracin", "trak", "random"):
        with pytest.raises(InvalidInputError, match=r"'features' must come with the model|has no model"):
            make(method).fit(features=arrays("cnn"), **extra(make(method), case))
        return
    e, expected = make(method, **options).fit(features=arrays("cnn")), fit(method, case, **options)
    torch.testing.assert_close(e.self_influence(), expected.self_influence())
    with torch.no_grad():
        tests = case.model[:-1](case.tests)
    scores = expected.attribute(case.tests)
    near = {"rtol": 1e-4, "atol": 1e-5 * scores.abs().max().item()}
    torch.testing.assert_close(e.attribute(features=tests), scores, **near)
    torch.testing.assert_close(expected.attribute(features=tests), scores, **near)
    assert e.top_k(features=tests, k=2).target.tolist() == expected.top_k(case.tests, 2).target.tolist()
    with pytest.raises(NotFittedError, match="has no model"):
        e.attribute(case.tests)
    e.save(tmp_path / "x.whence")
    back = whence.load(tmp_path / "x.whence")
    # Products of the same numbers at other places in memory may differ in their last bit.
    near = {"rtol": 1e-5, "atol": 1e-7 * scores.abs().max().item()}
    torch.testing.assert_close(back.attribute(features=tests), e.attribute(features=tests), **near)


@pytest.mark.parametrize("method", sorted(LAST))
def test_gradients_of_all_parameters_need_the_model(method: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"{methods.get(method).__name__}.*runs it on inputs"):
        make(method).fit(features=arrays("cnn"))
    with pytest.raises(InvalidInputError, match="looks at inputs"):
        fitted(method, "cnn").attribute(features=bank("cnn").features[:2])


@pytest.mark.parametrize("method", METHODS)
def test_skipped_samples_score_zero_and_have_no_part(method: str, tmp_path: Path) -> None:
    case, e = trained("mlp"), make(method, batch_size=16)
    e.fit(case.model, Samples(case.x, case.y, (3, 30)), on_error="skip", **extra(e, case))
    assert e.skipped_.tolist() == [3, 30]
    assert (e.n_train_, e.labels_[[3, 30]].tolist()) == (N, [-1, -1])
    left = np.setdiff1d(np.arange(N), [3, 30])
    scores, own = e.attribute(case.tests, 1), e.self_influence()
    assert scores.shape == (B, N)
    assert not scores[:, [3, 30]].any()
    assert not own[[3, 30]].any()
    assert not set(e.top_k(case.tests, 5).proponents.indices.flatten().tolist()) & {3, 30}
    others = make(method, batch_size=16)
    others.fit(case.model, (case.x[left], case.y[left]), **extra(e, case))
    expected, size = others.attribute(case.tests, 1), scores.abs().max().item()
    torch.testing.assert_close(scores[:, left], expected, rtol=1e-3, atol=1e-4 * size)
    if method not in NOT_SAVED:
        e.save(tmp_path / "x.whence")
        assert torch.equal(whence.load(tmp_path / "x.whence", case.model).attribute(case.tests, 1), scores)


def test_features_come_in_the_place_of_what_made_them() -> None:
    case = trained("mlp")
    for given in (
        {"model": case.model},
        {"data": (case.x, case.y)},
        {"dtype": "float16"},
        {"num_workers": 2},
    ):
        with pytest.raises(InvalidInputError, match=f"instead of '{next(iter(given))}'"):
            make("similarity").fit(features=bank("mlp"), **given)
    with pytest.raises(InvalidInputError, match="'features' must be a FeatureBank"):
        make("similarity").fit(features=bank("mlp").features)
    with pytest.raises(InvalidInputError, match="must have the model's last layer"):
        make("similarity").fit(features=FeatureBank.of(np.eye(3), np.arange(3)))
    changed = copy.deepcopy(case)
    whole = extract(changed.model, (changed.x, changed.y), show_progress=False)
    with torch.no_grad():
        changed.model[1].weight[0, 0] += 1
    with pytest.raises(ModelError, match="changed after fitting"):
        make("similarity").fit(features=whole)


@pytest.mark.parametrize("method", METHODS)
def test_help_says_what_all_methods_take(method: str) -> None:
    described = Attributor.fit.__doc__ or ""
    for name in inspect.signature(Attributor.fit).parameters:
        assert name == "self" or f"{name}\n" in described, name
    more = f"{methods.get(method).__doc__} {methods.get(method).fit.__doc__.partition('on_error')[0]}"
    assert ("checkpoints" in more or "checkpoints\n" in described) == (
        method in ("tracin", "trak", "ensemble")
    )


def test_names_of_classes_are_given_to_any_method() -> None:
    case = trained("mlp")
    e = make("similarity").fit(case.model, (case.x, case.y), class_names=["a", "b", "c"])
    assert e.class_names_ == ("a", "b", "c")
    e.fit(features=bank("mlp"), class_names=["d", "e", "f"])
    assert e.class_names_ == ("d", "e", "f")
    with pytest.raises(InvalidInputError, match="'class_names'"):
        e.fit(features=bank("mlp"), class_names=["d", "e"])
