"""Effects against autograd's Hessian, and against scikit-learn's surrogates with and without a sample."""

from __future__ import annotations

import pickle
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.autograd.functional import hessian, jacobian
from torch.nn.functional import cross_entropy

import whence
from whence.errors import ConvergenceWarning
from whence.features import FeatureBank
from whence.model.heads import Head
from whence.surrogate.effects import Output, slopes, values
from whence.surrogate.hessian import SoftmaxHessian
from whence.surrogate.response import SoftmaxResponse
from whence.surrogate.scores import Contrast
from whence.surrogate.smooth import choose_C_by_loss, network_loss
from whence.svm.softmax import SoftmaxSolution, solve_softmax, spanned

N, D, K, C = 60, 5, 3, 0.5


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
    given = {"C": C, "tol": 1e-12, "show_progress": False, **options}
    return whence.Effects(**given).fit(features=FeatureBank.of(f, y))


def with_constant(f: np.ndarray, constant: float) -> np.ndarray:
    return np.c_[f.astype(np.float64), np.full(len(f), constant)]


def weight(f: np.ndarray, y: np.ndarray, constant: float) -> np.ndarray:
    """W (K, D + 1) of scikit-learn's softmax regression."""
    model = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=10_000)
    return model.fit(with_constant(f, constant), y).coef_


def test_the_surrogate_is_that_of_scikit_learn(data: Any) -> None:
    f, y, tests = data
    e = fit(data)
    expected = weight(f, y, e.constant_)
    np.testing.assert_allclose(e.coef_[:, :D], expected[:, :D], atol=1e-5)
    np.testing.assert_allclose(e.coef_[:, D], expected[:, D] * e.constant_, atol=1e-5)
    assert e.gap_ <= 1e-12
    np.testing.assert_allclose(e.lam_.sum(axis=1), 0, atol=1e-14)
    assert (
        e.predict(features=tests).tolist()
        == (with_constant(tests, e.constant_) @ expected.T).argmax(1).tolist()
    )


@pytest.mark.parametrize("output", ["logit", "margin", "log_prob"])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("limits", [(), ("_DENSE",), ("_DENSE", "_BYTES")])
def test_scores_are_those_of_the_whole_hessian(
    data: Any, output: Output, wide: bool, limits: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a factor of the Hessian, by one in float32 that is corrected, and by steps.

    Also where there are more features than samples, and the surrogate is solved in their span.
    """
    for limit in limits:
        monkeypatch.setattr(f"whence.surrogate.response.{limit}", 0)
    f, y, tests = data
    if wide:
        more = np.random.default_rng(1).normal(size=(D, 80)).astype(np.float32)
        f, tests = np.tanh(f @ more), np.tanh(tests @ more)
    e = fit((f, y, tests), output=output)
    F, T = (torch.from_numpy(with_constant(some, e.constant_)) for some in (f, tests))
    labels, target = torch.from_numpy(y), torch.arange(len(tests)) % K
    W = torch.as_tensor(e.coef_).clone()
    W[:, -1] /= e.constant_

    def objective(W: torch.Tensor) -> torch.Tensor:
        return 0.5 * (W * W).sum() + C * cross_entropy(F @ W.T, labels, reduction="sum")

    H = hessian(objective, W).reshape(W.numel(), -1)
    pulls = jacobian(lambda W: values(output, T @ W.T, target), W).reshape(len(T), -1)
    # Without sample i the objective has less gradient by that of its loss.
    gradients = jacobian(lambda W: -C * cross_entropy(F @ W.T, labels, reduction="none"), W)
    expected = pulls @ torch.linalg.solve(H, gradients.reshape(N, -1).T)
    found = e.attribute(features=tests, target=target).double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("kappa", [1e4, 1e8])
@pytest.mark.parametrize("limits", [("_DENSE",), ("_DENSE", "_BYTES")])
def test_a_corrected_factor_and_steps_are_as_exact_as_a_factor_in_float64(
    kappa: float, limits: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of features with a common offset, of which inner products in float32 cancel, and in any units."""
    rng = np.random.default_rng(3)
    chances = torch.from_numpy(rng.dirichlet(np.full(4, 0.3), size=200))
    f = torch.from_numpy((rng.normal(size=(200, 30)) + 4.0).astype(np.float32))
    pulls = torch.from_numpy(rng.normal(size=(5, 4, 30)))
    C = kappa / float(f.double().square().sum())
    H = torch.eye(120, dtype=torch.float64)
    for p, row in zip(chances, f.double(), strict=True):
        H += C * torch.kron(torch.diag(p) - torch.outer(p, p), torch.outer(row, row))
    expected = torch.linalg.solve(H, pulls.flatten(1).T).T
    for limit in limits:
        monkeypatch.setattr(f"whence.surrogate.response.{limit}", 0)
    for unit in (1.0, 1e-25):
        found = SoftmaxResponse(f * unit, chances, C / unit**2)(pulls).flatten(1)
        errors = ((found - expected) * ((found - expected) @ H)).sum(1)
        assert (errors <= 4e-12 * ((expected @ H) * expected).sum(1)).all()


def test_many_solves_by_a_sketch_of_the_hessian_are_near_those_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With more eigenvalues than the sketch has, and fewer steps than without it."""
    rng = np.random.default_rng(4)
    chances = torch.from_numpy(rng.dirichlet(np.full(4, 0.3), size=300))
    f = torch.from_numpy((rng.normal(size=(300, 60)) * 0.9 ** np.arange(60)).astype(np.float32))
    pulls = torch.from_numpy(rng.normal(size=(40, 4, 60)))
    C = 1e4 / float(f.double().square().sum())
    H = torch.eye(240, dtype=torch.float64)
    for p, row in zip(chances, f.double(), strict=True):
        H += C * torch.kron(torch.diag(p) - torch.outer(p, p), torch.outer(row, row))
    expected = torch.linalg.solve(H, pulls.flatten(1).T).T
    for limit in ("_DENSE", "_BYTES"):
        monkeypatch.setattr(f"whence.surrogate.response.{limit}", 0)
    monkeypatch.setattr("whence.surrogate.response._RANK", 100)
    products = list[int]()
    product = SoftmaxHessian.product

    def counted(self: SoftmaxHessian, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        products.append(len(x))
        return product(self, x, dtype)

    monkeypatch.setattr(SoftmaxHessian, "product", counted)
    response = SoftmaxResponse(f, chances, C)
    found = response(pulls).flatten(1)
    errors = ((found - expected) * ((found - expected) @ H)).sum(1)
    assert (errors <= 1e-7 * ((expected @ H) * expected).sum(1)).all()
    assert products[0] == 100  # the sketch, which the next pulls share
    steps = len(products) - 1
    response(pulls[:1])
    assert len(products) == 2 * steps + 1
    few = SoftmaxResponse(f, chances, C)
    products.clear()
    few(pulls[:1])
    assert set(products) == {1}
    assert len(products) > steps


def solves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the systems of each call of the response."""
    counts: list[int] = []
    apply = SoftmaxResponse.__call__

    def counted(self: SoftmaxResponse, pulls: torch.Tensor) -> torch.Tensor:
        counts.append(len(pulls))
        return apply(self, pulls)

    monkeypatch.setattr(SoftmaxResponse, "__call__", counted)
    return counts


def test_nothing_is_solved_twice(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = solves(monkeypatch)
    e, tests = fit(data), torch.from_numpy(data[2])
    scores = e.attribute(features=tests, target=0)
    assert counts == [len(tests)]
    torch.testing.assert_close(e.attribute(features=tests[2:4], target=0), scores[2:4])
    e.top_k(features=tests, target=0, k=2)
    assert counts == [len(tests)]
    e.attribute(features=tests[:1], target=1)  # another question
    assert counts == [len(tests), 1]
    scorer, contrast = e.fitted_.scorer, Contrast(0)
    parts = scorer.parts(tests[:1], contrast, [3, 8])
    assert counts == [len(tests), 1, 2]  # one per sample
    again = scorer.parts(tests[:1], contrast, [8, 3])
    assert counts == [len(tests), 1, 2]
    torch.testing.assert_close(again.on_test.flip(0), parts.on_test)


def test_several_threads_share_one_factor(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    build = SoftmaxResponse.__init__

    def slow(self: SoftmaxResponse, *args: Any) -> None:
        made.append(self)
        time.sleep(0.05)
        build(self, *args)

    monkeypatch.setattr(SoftmaxResponse, "__init__", slow)
    e, tests = fit(data), torch.from_numpy(data[2])
    expected = fit(data).attribute(features=tests, target=0)
    made.clear()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: e.attribute(features=tests, target=0), range(8)))
    assert len(made) == 1
    for scores in found:
        torch.testing.assert_close(scores, expected)


def test_an_explainer_that_has_answered_pickles(data: Any) -> None:
    e, tests = fit(data), torch.from_numpy(data[2])
    expected = e.attribute(features=tests, target=0)
    torch.testing.assert_close(pickle.loads(pickle.dumps(e)).attribute(features=tests, target=0), expected)


@pytest.mark.parametrize("apart", [1.0, 20.0])
def test_a_c_too_large_for_a_factor_is_taken_by_steps(data: Any, apart: float) -> None:
    f, y, tests = data
    f = f + apart * np.eye(K, D, dtype=np.float32)[y]  # separable, so that differences of chances cancel
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of a surrogate with such a C
        found = fit((f, y, tests), C=1e14).attribute(features=tests, target=0)
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("output", ["logit", "margin", "log_prob"])
def test_slopes_are_derivatives(output: Output) -> None:
    given = torch.randn(6, K, dtype=torch.float64, requires_grad=True)
    classes = torch.arange(6) % K
    found = values(output, given, classes)
    expected = torch.autograd.grad(found.sum(), given)[0]
    torch.testing.assert_close(slopes(output, given.detach(), classes), expected)


def test_log_probabilities_and_margins_are_what_they_say() -> None:
    given, classes = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([2])
    assert values("margin", given, classes).tolist() == [-1.0]
    expected = np.log(np.exp(2.0) / np.exp([1.0, 3.0, 2.0]).sum())
    assert values("log_prob", given, classes).item() == pytest.approx(expected, rel=1e-5)


def test_the_gap_bounds_how_far_the_objective_is_from_its_minimum(data: Any) -> None:
    f, y, _ = data
    F = with_constant(f, 2.0)

    def primal(W: np.ndarray) -> float:
        losses = cross_entropy(torch.from_numpy(F @ W.T), torch.from_numpy(y), reduction="sum")
        return 0.5 * float((W * W).sum()) + C * float(losses)

    best = primal(weight(f, y, 2.0))
    for tol in (1e-1, 1e-3, 1e-5):
        found = solve_softmax(F, y, K, C, tol)
        assert found.gap <= tol
        np.testing.assert_allclose(found.weight, found.lam.T @ F, atol=1e-12)
        assert best - 1e-9 <= primal(found.weight) <= best / (1 - found.gap) + 1e-9


def test_fewer_samples_than_features_are_taken_by_their_products() -> None:
    f = np.random.default_rng(0).normal(size=(7, 20))
    f[3] = f[2]  # dependent
    few = spanned(f)
    assert few.shape == (7, 7)
    np.testing.assert_allclose(few @ few.T, f @ f.T, atol=1e-9)
    assert spanned(np.zeros((3, 5))).shape == (3, 1)


def test_auto_is_no_better_than_the_network(data: Any) -> None:
    f, y, _ = data
    rng = np.random.default_rng(2)
    head = Head((rng.normal(size=(K, D)) * 0.1).astype(np.float32), None)
    own = float(cross_entropy(torch.from_numpy(f @ head.weight.T), torch.from_numpy(y)))
    assert network_loss(head, f, y) == pytest.approx(own, rel=1e-5)
    e = whence.Effects(show_progress=False).fit(features=FeatureBank.of(f, y, head=(head.weight, None)))
    logits = torch.from_numpy(with_constant(f, 1.0) @ e.coef_.T)
    assert float(cross_entropy(logits, torch.from_numpy(y))) == pytest.approx(own, rel=0.03)
    alone = whence.Effects(show_progress=False).fit(features=FeatureBank.of(f, y))
    squares = (with_constant(f, alone.constant_) ** 2).sum()
    assert pytest.approx(10_000 / squares, rel=1e-5) == alone.C_


def test_c_is_found_where_the_losses_are_equal() -> None:
    asked = []

    def solve(C: float, start: Any) -> SoftmaxSolution:
        asked.append(C)
        return SoftmaxSolution(np.zeros((1, 2)), np.zeros((2, 1)), 0.0, 1 / (1 + C))

    assert choose_C_by_loss(solve, 100.0, 1e-3, None)[0] == 100.0
    assert choose_C_by_loss(solve, 100.0, 1e-3, 0.001)[0] == 100.0
    assert len(asked) == 2
    assert choose_C_by_loss(solve, 100.0, 1e-3, 0.5)[0] == pytest.approx(1.0, rel=0.1)
    assert len(asked) <= 2 + 8
    assert choose_C_by_loss(solve, 100.0, 1e-3, 5.0)[0] == pytest.approx(1e-3)  # no C has so much loss


def test_solutions_are_kept_and_taken_again(
    data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    f, y, tests = data
    model = torch.nn.Sequential(torch.nn.Linear(D, 4), torch.nn.ReLU(), torch.nn.Linear(4, K))
    options = {"show_progress": False, "layers": "last"}
    both = torch.from_numpy(f), torch.from_numpy(y)
    e = whence.Effects(**options).fit(model, both, cache_dir=tmp_path)
    hinge = whence.DualDA(C=e.C_, show_progress=False).fit(model, both, cache_dir=tmp_path)
    assert (hinge.coef_ != e.coef_).any()
    monkeypatch.setattr("whence.surrogate.smooth.solve_softmax", None)
    again = whence.Effects(**options).fit(model, both, cache_dir=tmp_path)
    assert again.origins_["solution"] == "reused"
    assert torch.equal(again.attribute(torch.from_numpy(tests)), e.attribute(torch.from_numpy(tests)))


def test_a_second_fit_forgets_the_first(data: Any) -> None:
    f, y, tests = data
    e = fit(data)
    e.attribute(features=tests)
    e.fit(features=FeatureBank.of(f[::2], y[::2]))
    torch.testing.assert_close(
        e.attribute(features=tests), fit((f[::2], y[::2], tests)).attribute(features=tests)
    )


def test_spent_time_is_told(data: Any) -> None:
    with pytest.warns(ConvergenceWarning, match="duality gap of .* more than 'tol' = 1e-12"):
        fit(data, max_seconds=1e-9)
