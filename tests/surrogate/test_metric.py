"""A metric everywhere: as on features that were transformed by hand, also in files, caches and changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whence
from tests.helpers.metrics import METRICS, Own, read
from whence import DualDA
from whence.features import FeatureBank, FeatureMap, Metric
from whence.features.metric import learn_map, moments
from whence.methods import Effects, Ensemble
from whence.tasks import Regression

N, D, K = 90, 6, 3
NEAR = {"rtol": 1e-5, "atol": 1e-6}
every_metric = pytest.mark.parametrize("name", METRICS)
learned = pytest.mark.parametrize("name", ["centred", "whitened", "own"])  # whose map depends on the set


def data(n: int = N) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features in float64 with a large mean, their labels, and features of tests."""
    rng = np.random.default_rng(7)
    y = np.arange(n) % K
    X = 3.0 + 1.5 * np.eye(K, D)[y] + rng.normal(size=(n, D)) * np.geomspace(0.2, 2, D)
    return X, y, 3.0 + rng.normal(size=(6, D))


def fit(metric: Any, X: np.ndarray, y: Any, **options: Any) -> DualDA:
    task = options.pop("task", None)
    given = {"C": 0.3, "tol": 1e-10, "show_progress": False, **options}
    return DualDA(metric=metric, **given).fit(features=FeatureBank.of(X, y, task=task))


# The formula


@pytest.mark.parametrize("rows", [1, 7, N])
@every_metric
def test_maps_are_the_formula_whatever_the_blocks(
    name: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _, tests = data()
    monkeypatch.setattr("whence.features.rows._BLOCK_BYTES", rows * 8 * D)  # streamed
    mean, scatter = moments(X)
    np.testing.assert_allclose(mean, X.mean(axis=0))
    np.testing.assert_allclose(scatter, np.cov(X.T) * (N - 1), rtol=1e-10)
    reading = learn_map(METRICS[name], X)
    np.testing.assert_allclose(reading.rows(X), read(name, X, X), atol=1e-10)
    np.testing.assert_allclose(reading(torch.from_numpy(tests)), read(name, X, tests), atol=1e-10)


def low_rank(n: int = 120, d: int = 40, r: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Features of rank r about their mean, and labels."""
    rng = np.random.default_rng(8)
    basis, parts = np.linalg.qr(rng.normal(size=(d, r)))[0], rng.normal(size=(n, r))
    return 1.0 + parts * np.geomspace(3, 0.3, r) @ basis.T, parts[:, :K].argmax(axis=1)


@pytest.mark.parametrize(("limit", "near"), [("_WHOLE", 1e-7), ("_ROWS", 0.1)], ids=["all rows", "half"])
def test_many_features_are_whitened_by_their_leading_directions(
    limit: str, near: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them where the covariance has few: exact by all rows, close by every second."""
    X, y = low_rank()
    exact = fit("whitened", X, y)
    np.testing.assert_allclose(exact.metric_.rows(X), read("whitened", X, X), atol=1e-9)
    monkeypatch.setattr("whence.features.metric._WHOLE", 20)
    if limit == "_ROWS":
        monkeypatch.setattr("whence.features.metric._ROWS", 60)
    wide = fit("whitened", X, y)
    assert wide.metric_.directions.shape == (40, 5)
    assert exact.metric_.description == "centred, whitened, at unit length"
    assert wide.metric_.description == "centred, whitened in 5 of 40 directions, at unit length"
    size = np.abs(exact.coef_).max()
    np.testing.assert_allclose(wide.metric_.rows(X), exact.metric_.rows(X), atol=near)
    np.testing.assert_allclose(wide.coef_, exact.coef_, atol=2 * near * size)
    for explainer in (exact, wide):  # sums are exact whatever the map
        scores = explainer.attribute(features=X[:5], target=1, relative=True)
        logits = explainer.surrogate_.logits(torch.from_numpy(X[:5]))[:, 1]
        base = explainer.base_values(features=X[:5], target=1)
        torch.testing.assert_close(base + scores.sum(1), logits, rtol=1e-8, atol=1e-8)


# As on features that were transformed before


@every_metric
@pytest.mark.parametrize("bias", [True, False])
def test_the_surrogate_is_that_of_transformed_features(name: str, bias: bool) -> None:
    X, y, tests = data()
    Z, T = read(name, X, X), read(name, X, tests)
    ours, plain = fit(METRICS[name], X, y, bias=bias), fit("raw", Z, y, bias=bias)
    np.testing.assert_allclose(ours.coef_, plain.coef_, **NEAR)
    for relative in (False, True):
        one, other = (
            each.attribute(features=f, target=1, relative=relative) for each, f in ((ours, tests), (plain, T))
        )
        torch.testing.assert_close(one, other, **NEAR)
    torch.testing.assert_close(ours.self_influence(), plain.self_influence(), **NEAR)
    found, expected = (
        each.stability(F, halves=2).top_k(features=f, k=3, target=1)
        for each, F, f in ((ours, X, tests), (plain, Z, T))
    )
    assert torch.equal(found.top.proponents.indices, expected.top.proponents.indices)
    assert torch.equal(found.proponents, expected.proponents)


@every_metric
def test_what_if_keeps_the_map_of_the_fit(name: str) -> None:
    X, y, tests = data()
    Z, T = read(name, X, X), read(name, X, tests)
    ours, plain = fit(METRICS[name], X, y), fit("raw", Z, y)
    for changes in ({"remove": [0, 7]}, {"relabel": {3: 1}}, {"C": 0.02}):
        one, other = (
            ours.what_if(**changes, training_features=X).explainer,
            plain.what_if(**changes, training_features=Z).explainer,
        )
        assert one.metric_ is ours.metric_
        np.testing.assert_allclose(one.coef_, other.coef_, **NEAR)
        for relative in (False, True):
            asked = {"target": 2, "relative": relative}
            torch.testing.assert_close(
                one.attribute(features=tests, **asked), other.attribute(features=T, **asked), **NEAR
            )


@every_metric
def test_an_update_learns_the_map_of_the_changed_set(name: str) -> None:
    """As a fit on that set would; a map that was learned before is a metric too, which holds it fixed."""
    X, y, tests = data()
    left = np.ones(N, dtype=bool)
    left[[1, 4]] = False
    changed = y.copy()
    changed[8] = (y[8] + 1) % K
    change: dict[str, Any] = {
        "add": (X[60:], y[60:]), "remove": [1, 4], "relabel": {8: int(changed[8])}, "features": X[:60]
    }  # fmt: skip
    ours = fit(METRICS[name], X[:60], y[:60])
    fixed = fit(ours.metric_, X[:60], y[:60])
    np.testing.assert_array_equal(fixed.coef_, ours.coef_)
    for explainer, known in ((ours, X[left]), (fixed, X[:60])):
        explainer.update(**change)
        fresh = fit("raw", read(name, known, X[left]), changed[left])
        np.testing.assert_allclose(explainer.coef_, fresh.coef_, rtol=1e-4, atol=1e-5)
        for relative in (False, True):
            scores = explainer.attribute(features=tests, target=0, relative=relative)
            expected = fresh.attribute(features=read(name, known, tests), target=0, relative=relative)
            torch.testing.assert_close(scores[:, left], expected, rtol=1e-3, atol=1e-4)
            assert not scores[:, ~left].any()


# Files and caches


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, D), nn.Tanh(), nn.Linear(D, K))


def inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(N, 4, generator=torch.Generator().manual_seed(1)), torch.arange(N) % K


@pytest.mark.parametrize("metric", [*METRICS.values(), Metric(True, 0.5)], ids=[*METRICS, "Metric"])
@pytest.mark.parametrize("method", [DualDA, Effects])
def test_a_file_keeps_the_map(method: Any, metric: Any, tmp_path: Path) -> None:
    x, y = inputs()
    explainer = method(C=0.3, metric=metric, show_progress=False).fit(net(), (x, y))
    explainer.save(tmp_path / "x.whence")
    loaded = whence.load(tmp_path / "x.whence", net(), (x, y))
    if isinstance(metric, Own):  # whose class a file does not name: the map that it learned
        assert isinstance(loaded.metric, FeatureMap)
    else:
        assert loaded.metric == metric
    for name, array in explainer.metric_.arrays.items():
        np.testing.assert_array_equal(loaded.metric_.arrays[name], array)
    assert loaded.metric_.facts == explainer.metric_.facts
    assert torch.equal(loaded.attribute(x), explainer.attribute(x))
    assert torch.equal(loaded.self_influence(), explainer.self_influence())
    one, other = (each.explain(x[:1], k=2)[0] for each in (loaded, explainer))
    assert one.to_dict() == other.to_dict()
    if method is DualDA:
        assert torch.equal(loaded.base_values(x), explainer.base_values(x))
        np.testing.assert_array_equal(loaded.update(remove=[3]).coef_, loaded.coef_)
    loaded.save(tmp_path / "y.whence")
    again = whence.load(tmp_path / "y.whence", net())
    assert torch.equal(again.attribute(x), loaded.attribute(x))


def test_a_solution_is_reused_for_its_own_metric_alone(tmp_path: Path) -> None:
    x, seen = inputs()[0], dict[str, np.ndarray]()
    y = x[:, :K].argmax(1)  # labels that W ≠ 0 explains, whatever the metric
    metrics: dict[str, Any] = {**METRICS, "more": Metric(True, 0.5, True), "less": Metric(True, 0.02, True)}
    for turn in ("computed", "reused"):
        for name, metric in metrics.items():
            explainer = DualDA(C=30.0, metric=metric, tol=1e-10, show_progress=False)
            explainer.fit(net(), (x, y), cache_dir=tmp_path)
            own = name == "own"  # of which nobody could say whether it is the same
            assert explainer.origins_["solution"].startswith("computed" if own else turn)
            coef = seen.setdefault(name, explainer.coef_)
            np.testing.assert_array_equal(explainer.coef_, coef)
            assert explainer.coef_ is coef or turn == "reused"
    for name, coef in seen.items():
        assert [other for other in seen if np.allclose(seen[other], coef)] == [name]
    Z = read("whitened", (f := features(x)), f)
    plain = fit("raw", Z.astype(np.float32), y.numpy(), C=30.0)
    np.testing.assert_allclose(seen["whitened"], plain.coef_, rtol=1e-3, atol=1e-4)


def features(x: Tensor) -> np.ndarray:
    with torch.no_grad():
        return net()[:2](x).double().numpy()


# Other methods


@every_metric
@pytest.mark.parametrize("bias", [True, False])
def test_effects_are_those_on_transformed_features(name: str, bias: bool) -> None:
    X, y, tests = data()
    Z, T = read(name, X, X), read(name, X, tests)
    options: dict[str, Any] = {"bias": bias, "tol": 1e-12, "show_progress": False}
    for labels, task, C in ((y, None, "auto"), (X[:, :2] @ [1.0, -1.0], Regression(1), 0.5)):
        ours, plain = (
            Effects(C=C, metric=metric, **options).fit(features=FeatureBank.of(F, labels, task=task))
            for metric, F in ((METRICS[name], X), ("raw", Z))
        )
        assert pytest.approx(plain.C_, rel=1e-9) == ours.C_
        asked = {"target": 0}
        scores = ours.attribute(features=tests, **asked)
        size = float(scores.abs().max())
        near = {"rtol": 1e-5, "atol": 1e-6 * size}
        torch.testing.assert_close(scores, plain.attribute(features=T, **asked), **near)
        torch.testing.assert_close(ours.self_influence(), plain.self_influence(), **near)
        if task is not None:
            own = ours.attribute(features=X, **asked).diagonal().abs()
            torch.testing.assert_close(ours.self_influence(), own, rtol=1e-6, atol=1e-9)
        found = ours.effect_of(features=tests, remove=[2, 5], training_features=X, **asked)
        expected = plain.effect_of(features=T, remove=[2, 5], training_features=Z, **asked)
        np.testing.assert_allclose(found.exact, expected.exact, **near)
        np.testing.assert_allclose(found.first_order, expected.first_order, **near)
        targets = torch.zeros(len(tests), dtype=torch.int64)
        total = ours.total([(torch.from_numpy(tests), targets)])
        np.testing.assert_allclose(total, scores.sum(0), **near)


@learned
def test_maps_of_effects_sum_to_their_part_of_the_input(name: str) -> None:
    """The slope of an effect on a logit by the features of the test, at a fixed length, by autograd."""
    (x, y), model = inputs(), net()
    explainer = Effects(C=0.3, layers="last", metric=METRICS[name], show_progress=False).fit(model, (x, y))
    (why,) = explainer.explain(x[:1], k=N, target=1)
    f = features(x)
    scores = explainer.attribute(x[:1], target=1)[0]
    reading = explainer.metric_
    z = torch.from_numpy(read(name, f, f[:1]))
    plain = Effects(C=explainer.C_, layers="last", show_progress=False, metric="raw")
    plain.fit(features=FeatureBank.of(read(name, f, f), y.numpy()))
    step = 1e-3 * torch.randn(z.shape, generator=torch.Generator().manual_seed(2)).double()
    slopes = plain.attribute(features=z + step, target=1) - plain.attribute(features=z - step, target=1)
    parts = explainer.fitted_.scorer.parts(
        torch.from_numpy(f[:1]).float(), whence.surrogate.scores.Contrast(1), [one.index for one in why.pairs]
    )
    for place, one in enumerate(why.pairs):
        assert one.score == pytest.approx(float(scores[one.index]), rel=1e-4, abs=1e-6)
        found = 2 * float(parts.on_test[place].double() @ step[0])
        assert found == pytest.approx(float(slopes[0, one.index]), rel=1e-2, abs=1e-6)
        e, rest = reading.pull(parts.on_test[place][None].double(), torch.from_numpy(f[:1]))
        assert float(e[0] @ torch.from_numpy(f[0]) + rest[0]) == pytest.approx(
            float(parts.on_test[place].double() @ z[0]), rel=1e-4, abs=1e-6
        )


def test_members_of_an_ensemble_read_by_their_metric(tmp_path: Path) -> None:
    x, y = inputs()
    dual = DualDA(C=0.3, metric="whitened", show_progress=False)
    both = Ensemble(dual).fit([net(), net()], (x, y))
    alone = DualDA(C=0.3, metric="whitened", show_progress=False).fit(net(), (x, y)).attribute(x[:4], 1)
    expected = alone / alone.std(1, correction=0, keepdim=True)
    torch.testing.assert_close(both.attribute(x[:4], 1), expected, rtol=1e-5, atol=1e-6)
    both.save(tmp_path / "both.whence")
    loaded: Any = whence.load(tmp_path / "both.whence", [net(), net()])
    assert [member.metric for member in loaded.members_] == ["whitened"] * 2
    assert torch.equal(loaded.attribute(x[:4], 1), both.attribute(x[:4], 1))
