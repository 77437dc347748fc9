"""What would change without a set of samples: first order compared with the re-solved surrogate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from whence import Effects, load
from whence.errors import InvalidInputError
from whence.features import FeatureBank

N, K, D = 40, 3, 300


def drawn(seed: int = 0, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Classes in many dimensions."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    return ((np.eye(K, D)[y] * 4 + rng.normal(size=(n, D))) / np.sqrt(D)).astype(np.float32), y


X, Y = drawn()
TESTS, TARGETS = drawn(1, 6)


def fitted(**options) -> Effects:
    bank = FeatureBank.of(X, Y)
    defaults = {"C": 1.0, "tol": 1e-10, "show_progress": False}
    return Effects(**{**defaults, **options}).fit(features=bank)


def logits(X: np.ndarray, y: np.ndarray, constant: float, C: float = 1.0) -> np.ndarray:
    """Logits of scikit-learn's softmax regression."""
    model = LogisticRegression(C=C, fit_intercept=False, tol=1e-9, max_iter=10_000)
    both = [np.c_[some.astype(np.float64), np.full(len(some), constant)] for some in (X, TESTS)]
    return both[1] @ model.fit(both[0], y).coef_.T


def ask(explainer: Effects, **what):
    return explainer.effect_of(features=TESTS, target=TARGETS, training_features=X, **what)


def test_exact_is_the_surrogate_of_the_remaining_samples():
    explainer = fitted()
    gone = [3, 17, 20, 21, 22, 39]
    found = ask(explainer, remove=gone)
    keep, rows = np.setdiff1d(np.arange(N), gone), np.arange(len(TESTS))
    before, after = logits(X, Y, explainer.constant_), logits(X[keep], Y[keep], explainer.constant_)
    np.testing.assert_allclose(found.before, before[rows, TARGETS], atol=1e-4)
    np.testing.assert_allclose(found.exact, (after - before)[rows, TARGETS], atol=1e-4)
    assert found.removed == tuple(gone)
    assert found.relabelled == ()
    assert found.gap <= 1e-10


def test_first_order_alone_is_a_derivative_and_solves_nothing(monkeypatch: pytest.MonkeyPatch):
    explainer = fitted()
    monkeypatch.setattr("whence.surrogate.smooth.solve_softmax", None)
    found = explainer.first_order(features=TESTS, target=TARGETS, remove=[3, 17], training_features=X)
    # Samples of weight 1 − ε, by solving: scikit-learn weighs them.
    step, rows, sides = 1e-3, np.arange(len(TESTS)), []
    both = [np.c_[some.astype(np.float64), np.full(len(some), explainer.constant_)] for some in (X, TESTS)]
    for sign in (1, -1):
        model = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=20_000)
        weights = np.ones(N)
        weights[[3, 17]] -= sign * step
        sides.append((both[1] @ model.fit(both[0], Y, sample_weight=weights).coef_.T)[rows, TARGETS])
    np.testing.assert_allclose(found, (sides[0] - sides[1]) / (2 * step), atol=1e-3)


def test_changes_of_all_logits_are_a_derivative():
    explainer = fitted()
    found = explainer.logit_changes(features=TESTS, remove=[3, 17])
    step, sides = 1e-3, []
    both = [np.c_[some.astype(np.float64), np.full(len(some), explainer.constant_)] for some in (X, TESTS)]
    for sign in (1, -1):
        weights = np.ones(N)
        weights[[3, 17]] -= sign * step
        model = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=20_000)
        sides.append(both[1] @ model.fit(both[0], Y, sample_weight=weights).coef_.T)
    np.testing.assert_allclose(found, (sides[0] - sides[1]) / (2 * step), atol=1e-3)
    given = explainer.logit_changes(features=TESTS, remove=[3, 17], training_features=X)
    np.testing.assert_allclose(found, given, atol=1e-6)
    one = explainer.first_order(features=TESTS, target=1, relabel={5: 2}, training_features=X)
    np.testing.assert_allclose(explainer.logit_changes(features=TESTS, relabel={5: 2})[:, 1], one, atol=1e-6)


@pytest.mark.parametrize("output", ["logit", "margin", "log_prob"])
def test_other_outputs_are_taken_of_the_same_surrogates(output):
    explainer = fitted(output=output)
    found = ask(explainer, remove=[1, 2])
    keep, rows = np.arange(N)[[0, *range(3, N)]], np.arange(len(TESTS))
    expected = []
    for z in (logits(X, Y, explainer.constant_), logits(X[keep], Y[keep], explainer.constant_)):
        others = z.copy()
        others[rows, TARGETS] = -np.inf
        expected.append({
            "logit": z[rows, TARGETS],
            "margin": z[rows, TARGETS] - others.max(axis=1),
            "log_prob": log_softmax(z, axis=1)[rows, TARGETS],
        }[output])  # fmt: skip
    np.testing.assert_allclose(found.before, expected[0], atol=1e-4)
    np.testing.assert_allclose(found.exact, expected[1] - expected[0], atol=1e-4)


@pytest.mark.parametrize("output", ["logit", "log_prob"])
def test_of_one_sample_first_order_is_its_score_with_the_other_sign(output):
    explainer = fitted(output=output)
    scores = explainer.attribute(features=TESTS, target=TARGETS)
    for i in (0, 5, 11):
        found = ask(explainer, remove=[i])
        np.testing.assert_allclose(found.first_order, -scores[:, i], atol=1e-5)


def test_first_order_is_what_happens_for_few_samples_of_many():
    explainer = fitted(C=0.05)
    found = ask(explainer, remove=[7, 21])
    assert found.difference < 0.1
    assert not found.disagree
    assert "agree" in str(found)


def test_a_class_without_most_of_its_samples_is_too_much_for_first_order():
    rng = np.random.default_rng(0)
    y = np.arange(60) % K
    x = np.eye(K, 4)[y] + 0.5 * rng.normal(size=(60, 4))
    explainer = Effects(C=1.0, show_progress=False).fit(features=FeatureBank.of(x, y))
    gone = np.flatnonzero(y == 0)[:18].tolist()
    found = explainer.effect_of(features=x[:12], target=0, remove=gone, training_features=x)
    assert found.disagree
    assert "differ by" in str(found)
    assert "Without 18 samples" in str(found)
    assert "2 more" in str(found)


@pytest.mark.parametrize(("remove", "relabel"), [([4], {}), ([4, 8, 15, 16, 23], {}), ([1, 2], {30: 0})])
def test_corrected_is_a_newton_step_of_the_remaining_samples(remove, relabel):
    explainer = fitted()
    found = ask(explainer, remove=remove, relabel=relabel)
    b, keep = explainer.constant_, np.setdiff1d(np.arange(N), remove)
    F, T = (torch.from_numpy(np.c_[some.astype(np.float64), np.full(len(some), b)]) for some in (X, TESTS))
    labels = torch.from_numpy(Y.copy())
    for sample, label in relabel.items():
        labels[sample] = label
    W = torch.from_numpy(explainer.coef_.copy())
    W[:, -1] /= b

    def objective(W):
        losses = torch.nn.functional.cross_entropy(F[keep] @ W.T, labels[keep], reduction="sum")
        return 0.5 * (W * W).sum() + losses

    H = torch.autograd.functional.hessian(objective, W).reshape(W.numel(), -1)
    gradient = torch.autograd.functional.jacobian(objective, W).flatten()
    step = -torch.linalg.solve(H, gradient).reshape(W.shape)
    expected = (T @ step.T)[np.arange(len(TESTS)), TARGETS]
    np.testing.assert_allclose(found.corrected, expected, atol=2e-6)
    alone = explainer.first_order(
        features=TESTS, target=TARGETS, remove=remove, relabel=relabel, training_features=X, corrected=True
    )
    np.testing.assert_array_equal(alone, found.corrected)


def test_corrected_is_nearer_where_samples_are_copies():
    copies = np.tile(np.arange(10), 4)
    x, y = X[copies], Y[copies]
    explainer = Effects(C=1.0, tol=1e-10, show_progress=False).fit(features=FeatureBank.of(x, y))
    gone = np.flatnonzero(copies == 3).tolist()
    found = explainer.effect_of(features=TESTS, target=TARGETS, remove=gone, training_features=x)
    apart = [np.linalg.norm(some - found.exact) for some in (found.corrected, found.first_order)]
    assert apart[0] < 0.5 * apart[1]


def test_relabelled_samples_pull_the_other_way():
    explainer = fitted(C=0.05)
    wrong = {2: (int(Y[2]) + 1) % K, 9: (int(Y[9]) + 2) % K}
    found = ask(explainer, relabel=wrong)
    labels = Y.copy()
    labels[list(wrong)] = list(wrong.values())
    rows = np.arange(len(TESTS))
    z = [logits(X, y, explainer.constant_, 0.05)[rows, TARGETS] for y in (Y, labels)]
    np.testing.assert_allclose(found.exact, z[1] - z[0], atol=1e-5)
    assert found.relabelled == (2, 9)
    assert found.removed == ()
    assert np.corrcoef(found.first_order, found.exact)[0, 1] > 0.9
    assert "With 2 samples relabelled" in str(found)


def test_features_are_computed_again_from_the_model_and_its_data(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2)).eval()
    x, y = torch.randn(30, 4), torch.arange(30) % 2
    explainer = Effects(show_progress=False).fit(model, (x, y))
    found = explainer.effect_of(x[:3], 1, remove=[0, 1])
    explainer.save(tmp_path / "effects.safetensors")
    again = load(tmp_path / "effects.safetensors", model, (x, y))
    np.testing.assert_array_equal(again.effect_of(x[:3], 1, remove=[0, 1]).exact, found.exact)
    alone = load(tmp_path / "effects.safetensors", model)
    with pytest.raises(InvalidInputError, match="'training_features' must be given"):
        alone.effect_of(x[:3], 1, remove=[0, 1])


def test_what_cannot_be_asked():
    explainer = fitted()
    with pytest.raises(InvalidInputError, match="'remove' or 'relabel' must name"):
        ask(explainer)
    with pytest.raises(InvalidInputError, match="'remove'"):
        ask(explainer, remove=[N])
    with pytest.raises(InvalidInputError, match="'relabel'"):
        ask(explainer, relabel={0: K})
    with pytest.raises(InvalidInputError, match="'remove' must leave"):
        ask(explainer, remove=list(range(N)))
    with pytest.raises(InvalidInputError, match="'training_features'"):
        explainer.effect_of(features=TESTS, remove=[0], training_features=X[::-1])
