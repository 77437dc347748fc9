"""Effects against surrogates that were solved with and without a sample, by the plain solver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whence
from whence import engine
from whence.attributors.effects.halves import members
from whence.attributors.effects.outputs import Output, sharpness_of, slopes, values
from whence.errors import ConvergenceWarning, InvalidInputError
from whence.features import FeatureBank
from whence.svm import solve

N, D, K, C = 60, 5, 3, 0.05


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features and labels of overlapping classes, and features of tests."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % K
    centres = rng.normal(size=(K, D))
    f = (centres[y] + rng.normal(size=(N, D))).astype(np.float32)
    return f, y, rng.normal(size=(8, D)).astype(np.float32)


def fit(data: Any, **options: Any) -> whence.Effects:
    f, y, _ = data
    given = {"C": C, "show_progress": False, **options}
    return whence.Effects(**given).fit(features=FeatureBank.of(f, y))


def logits(f: np.ndarray, y: np.ndarray, rows: np.ndarray, tests: np.ndarray, constant: float) -> np.ndarray:
    """Logits (T, K) of the surrogate of some rows, by the plain solver."""
    W = solve(f[rows], y[rows], n_classes=K, C=C, bias=constant, tol=1e-6).weight
    return tests.astype(np.float64) @ W[:, :D].T + W[:, D]


def test_first_order_foretells_leaving_one_out(data: Any) -> None:
    f, y, tests = data
    e = fit(data, method="first_order", tol=1e-9)
    target = np.arange(len(tests)) % K
    at = np.arange(len(tests)), target
    everyone = np.arange(N)
    whole = logits(f, y, everyone, tests, e.constant_)[at]
    exact = np.array(
        [whole - logits(f, y, everyone[everyone != i], tests, e.constant_)[at] for i in range(N)]
    )
    scores = e.attribute_features(tests, target).numpy()
    tau = whence.DualDA(C=C, show_progress=False).fit(features=FeatureBank.of(f, y))
    plain = tau.attribute_features(tests, target).numpy()
    alike, plainly = (np.corrcoef(exact.T.ravel(), each.ravel())[0, 1] for each in (scores, plain))
    # With 60 samples most changes move others onto the margin or off it, which first order does not see.
    assert alike > 0.6
    assert alike > plainly + 0.05
    idle = np.setdiff1d(everyone, e.support_)
    assert len(idle)
    assert (scores[:, idle] == 0).all()
    assert e.reliability_ is None


def test_halves_are_the_mean_difference_with_and_without(data: Any) -> None:
    f, y, tests = data
    M = 8
    e = fit(data, solves=M, seed=3)
    at = np.arange(len(tests)), np.zeros(len(tests), int)
    exact = np.zeros((len(tests), N))
    for j in range(M):
        inside = members(N, 3, j)
        assert inside.sum() == N // 2
        as_it_is = logits(f, y, np.flatnonzero(inside), tests, e.constant_)[at]
        for i in range(N):
            rows = inside.copy()
            rows[i] = not inside[i]
            other = logits(f, y, np.flatnonzero(rows), tests, e.constant_)[at]
            exact[:, i] += (as_it_is - other if inside[i] else other - as_it_is) / M
    scores = e.attribute_features(tests, 0).numpy()
    assert np.corrcoef(exact.ravel(), scores.ravel())[0, 1] > 0.9
    assert 0.8 < np.linalg.norm(scores) / np.linalg.norm(exact) < 1.25
    assert e.solves_ == M
    assert 0.3 < e.reliability_ <= 1


@pytest.mark.parametrize("output", ["logit", "margin", "log_prob"])
def test_slopes_are_derivatives(output: Output) -> None:
    given = torch.randn(6, K, dtype=torch.float64, requires_grad=True)
    classes = torch.arange(6) % K
    found = values(output, given, classes, 2.0)
    expected = torch.autograd.grad(found.sum(), given)[0]
    torch.testing.assert_close(slopes(output, given.detach(), classes, 2.0), expected)


def test_log_probabilities_and_margins_are_what_they_say() -> None:
    given, classes = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([2])
    assert values("margin", given, classes, 1.0).tolist() == [-1.0]
    expected = np.log(np.exp(4.0) / np.exp([2.0, 6.0, 4.0]).sum())
    assert values("log_prob", given, classes, 2.0).item() == pytest.approx(expected, rel=1e-5)


def test_sharpness_is_that_of_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    s = rng.normal(size=400)
    y = (rng.random(400) < 1 / (1 + np.exp(-3 * s))).astype(np.int64)
    # With two classes and logits ±s/2, softmax(β s) is the logistic function of β s.
    model = LogisticRegression(C=1e6, fit_intercept=False).fit(s[:, None], y)
    found = sharpness_of(np.column_stack([-s / 2, s / 2]), y)
    assert found == pytest.approx(float(model.coef_[0, 0]), rel=1e-3)


@pytest.mark.parametrize("output", ["margin", "log_prob"])
def test_other_outputs_are_made_of_the_logits_of_each_half(data: Any, output: Output) -> None:
    *_, tests = data
    one = {"solves": 1, "seed": 5}
    e = fit(data, output=output, **one)
    target = torch.arange(len(tests)) % K
    per_class = [fit(data, **one).attribute_features(tests, c) for c in range(K)]
    weight = e.shifts_.solved[0].weight
    logits_ = torch.as_tensor(np.c_[tests, np.full(len(tests), e.constant_)] @ weight.T)
    weights = slopes(output, logits_, target, e.sharpness_)
    expected = sum(weights[:, c : c + 1] * per_class[c] for c in range(K))
    torch.testing.assert_close(
        e.attribute_features(tests, target).double(), expected.double(), rtol=1e-3, atol=1e-6
    )


def test_standard_errors_are_the_spread_over_halves(data: Any) -> None:
    *_, tests = data
    e = fit(data, solves=12)
    f = torch.as_tensor(np.c_[tests, np.full(len(tests), e.constant_, np.float32)])
    weights = slopes("logit", torch.zeros(len(tests), K), torch.ones(len(tests), dtype=torch.int64), 1.0)
    each = torch.stack([shift.scores(f, weights) for shift in e.shifts_.each])
    expected = torch.zeros(len(tests), N)
    expected[:, e.shifts_.rows] = each.std(0) / np.sqrt(12)
    torch.testing.assert_close(e.standard_error_features(tests, 1), expected, rtol=1e-3, atol=1e-7)
    with pytest.raises(InvalidInputError, match="'solves' must be at least 2"):
        fit(data, method="first_order").standard_error_features(tests, 1)


def test_an_effect_on_oneself_is_that_of_the_matrix(data: Any) -> None:
    f, y, _ = data
    e = fit(data, solves=4, output="log_prob")
    whole = e.attribute_features(f, y)
    torch.testing.assert_close(e.self_influence(), whole.diagonal(), rtol=1e-3, atol=1e-6)


def test_directions_give_the_scores(data: Any) -> None:
    *_, tests = data
    e = fit(data, solves=3)
    shift, rows = e.shifts_.each[1], torch.arange(len(e.shifts_.rows))
    f = torch.as_tensor(np.c_[tests, np.full(len(tests), e.constant_, np.float32)])
    weights = torch.tensor([0.2, 1.0, -0.5])
    expected = shift.scores(f, weights.expand(len(f), K))
    torch.testing.assert_close(f @ shift.directions(rows, weights).T, expected, rtol=1e-3, atol=1e-6)


def test_it_is_saved_whole(data: Any, tmp_path: Path) -> None:
    *_, tests = data
    e = fit(data, solves=5, output="margin")
    e.save(tmp_path / "it.whence")
    again = whence.load(tmp_path / "it.whence")
    assert isinstance(again, whence.Effects)
    assert torch.equal(again.attribute_features(tests), e.attribute_features(tests))
    assert torch.equal(again.standard_error_features(tests), e.standard_error_features(tests))
    assert (again.reliability_, again.solves_, again.sharpness_) == (e.reliability_, 5, e.sharpness_)


def test_halves_are_kept_and_taken_again(data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    f, y, tests = data
    model = torch.nn.Sequential(torch.nn.Linear(D, 4), torch.nn.ReLU(), torch.nn.Linear(4, K))
    options = {"solves": 20, "show_progress": False, "layers": "last"}
    both = torch.from_numpy(f), torch.from_numpy(y)
    e = whence.Effects(**options).fit(model, both, cache_dir=tmp_path)
    solved = []
    monkeypatch.setattr("whence.svm.subsets.Subsets.solve", lambda *_: solved.append(1))
    again = whence.Effects(**options).fit(model, both, cache_dir=tmp_path)
    assert not solved
    assert torch.equal(again.attribute(torch.from_numpy(tests)), e.attribute(torch.from_numpy(tests)))


def test_processes_give_the_same_bits(data: Any) -> None:
    *_, tests = data
    e = fit(data, solves=4)
    with engine.using("processes:2"):
        other = fit(data, solves=4)
    assert torch.equal(other.attribute_features(tests), e.attribute_features(tests))


def test_auto_solves_until_more_gains_little(data: Any) -> None:
    e = fit(data)
    assert e.solves_ in (32, 64, 128)
    assert e.reliability_ > 0.8
    f, *_ = data
    auto = fit(data, C="auto", solves=2)
    np.testing.assert_allclose(auto.C_, 1000 / (f.astype(np.float64) ** 2).sum())


def test_a_spent_budget_is_told(data: Any) -> None:
    with pytest.warns(ConvergenceWarning, match="max_seconds = 1e-09 was spent after 16 halves"):
        assert fit(data, max_seconds=1e-9, tol=0.9).solves_ == 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "both"}, "'method' must be one of"),
        ({"output": "loss"}, "'output' must be one of"),
        ({"solves": 0}, "'solves' must be"),
        ({"solves": "many"}, "'solves' must be"),
        ({"C": -1.0}, "'C' must be"),
    ],
)
def test_wrong_parameters_are_refused(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        fit(data, **options)


def test_effects_are_the_same_where_products_of_samples_have_no_room(
    data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, tests = data
    with_room = fit(data, solves=4, output="log_prob")
    monkeypatch.setattr("whence.attributors.effects.shift._ROOM", 0)
    without = fit(data, solves=4, output="log_prob")
    for a, b in (
        (with_room.attribute_features(tests), without.attribute_features(tests)),
        (with_room.self_influence(), without.self_influence()),
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6 * float(b.abs().max()))
