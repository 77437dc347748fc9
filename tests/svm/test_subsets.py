"""Solutions on subsets against the solver, a generic QP solver and certificates recomputed by hand."""

from __future__ import annotations

import warnings

import cloudpickle
import numpy as np
import pytest

from tests.helpers import oracle
from tests.svm.test_solver import clusters
from whence.errors import InvalidInputError
from whence.svm import Subsets, SubsetSolution, solve

# The Gram matrix is used for up to 1,000 near samples, or eight per feature; weights beyond.
SMALL, LARGE = (400, 12, 4), (2600, 6, 4)


def halves(n: int, m: int, seed: int = 0, share: float = 0.5) -> np.ndarray:
    masks = np.random.default_rng(seed).random((m, n)) < share
    masks[:, :1] = True
    return masks


def with_constant(X: np.ndarray, b: float) -> np.ndarray:
    X = X.astype(np.float64)
    return np.hstack([X, np.full((len(X), 1), b)]) if b else X


def check(found: SubsetSolution, X, y, C, K, members, tol, b=1.0) -> float:
    """Everything that is promised, recomputed in float64 without the solver's code; returns P − D."""
    lam = found.lam.toarray()
    N = len(y)
    assert lam.shape == (N, K)
    assert not np.diff(found.lam.indptr)[~members].any()
    assert (lam.sum(axis=1) == 0).all()
    assert (lam[:, ::-1].sum(axis=1) == 0).all()
    own = lam[np.arange(N), y]
    others = lam.copy()
    others[np.arange(N), y] = 0.0
    assert (others <= 0).all()
    assert (own >= 0).all()
    assert (own <= C).all()
    F = with_constant(X, b)
    W = lam.T @ F
    as_added = W.copy()
    if b:
        as_added[:, -1] *= b
    size = np.abs(lam).T @ np.abs(F) * max(b, 1.0) + 1e-300
    assert (np.abs(found.weight - as_added) / size).max() < 1e-13
    scores = F[members] @ W.T
    each = np.arange(len(scores))
    margins = 1.0 + scores - scores[each, y[members]][:, None]
    margins[each, y[members]] = 0.0
    primal = 0.5 * (W**2).sum() + C * margins.max(axis=1).sum()
    dual = own.sum() - 0.5 * (W**2).sum()
    assert found.gap == pytest.approx((primal - dual) / primal, abs=1e-10)  # C of 1e4 leaves no more digits
    assert found.gap <= tol
    return float(primal - dual)


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kappa", [100, 2000, 20000])
def test_halves_are_within_what_the_gap_allows(size, dtype, kappa):
    N, d, K = size
    X, y = clusters(N, d, K, noise=1.2, dtype=dtype)
    C = kappa / float((X.astype(np.float64) ** 2).sum())
    subsets = Subsets(X, y, C=C)
    for members in halves(N, 2):
        found = subsets.solve(members)
        left = check(found, X, y, C, K, members, 1e-3)
        best = solve(X[members], y[members], C=C, n_classes=K, tol=1e-8)
        assert 0.5 * ((found.weight - best.weight) ** 2).sum() <= left + 1e-7 * best.primal


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_other_tolerances_are_reached(size, tol):
    N, d, K = size
    X, y = clusters(N, d, K, noise=1.0, dtype=np.float32)
    members = halves(N, 1)[0]
    check(Subsets(X, y, C=0.05, tol=tol).solve(members), X, y, 0.05, K, members, tol)


@pytest.mark.parametrize("bias", [True, False, 2.5])
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_optimum_is_that_of_a_generic_qp_solver(C, bias):
    X, y = clusters(80, 5, 3)
    members = halves(80, 1)[0]
    F = with_constant(X, float(bias))
    value, W = oracle.qp(F[members], y[members], 3, C, False)
    found = Subsets(X, y, C=C, bias=bias, tol=1e-5).solve(members)
    check(found, X, y, C, 3, members, 1e-5, float(bias))
    if bias:
        W[:, -1] *= float(bias)
    assert 0.5 * ((found.weight - W) ** 2).sum() <= 2e-5 * value * max(float(bias), 1.0) ** 2


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("given", [False, True])
def test_without_one_sample(size, given):
    N, d, K = size
    X, y = clusters(N, d, K, noise=1.2, dtype=np.float32)
    C = 0.05
    whole = solve(X, y, C=C, tol=1e-5)
    subsets = Subsets(X, y, C=C, start=whole.lam if given else None)
    support = np.diff(whole.lam.indptr) > 0
    for i in (int(np.argmax(support)), int(np.argmin(support))):
        members = np.ones(N, bool)
        members[i] = False
        found = subsets.solve(members)
        check(found, X, y, C, K, members, 1e-3)
        best = solve(X[members], y[members], C=C, tol=1e-8)
        assert 0.5 * ((found.weight - best.weight) ** 2).sum() <= 1e-3 * best.primal * 1.01


def test_the_solution_on_all_samples_is_a_subset_too():
    X, y = clusters(*SMALL)
    check(Subsets(X, y, C=0.1).solve(np.ones(400, bool)), X, y, 0.1, 4, np.ones(400, bool), 1e-3)


def test_a_start_of_another_C_is_made_feasible():
    X, y = clusters(*SMALL)
    members = halves(400, 1)[0]
    for other in (1e-4, 10.0):
        start = solve(X, y, C=other).lam
        check(Subsets(X, y, C=0.1, start=start).solve(members), X, y, 0.1, 4, members, 1e-3)


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_classes_without_a_sample(size):
    N, d, K = size
    X, y = clusters(N, d, K)
    subsets = Subsets(X, y, C=0.05, n_classes=7)
    for members in (y != 1, y == 2, (y == 0) | (y == 3)):
        check(subsets.solve(members), X, y, 0.05, 7, members, 1e-3)


def test_one_sample_is_enough():
    X, y = clusters(*SMALL)
    members = np.arange(400) == 7
    found = Subsets(X, y, C=1.0).solve(members)
    check(found, X, y, 1.0, 4, members, 1e-3)
    assert found.gap <= 1e-3


@pytest.mark.parametrize("C", [1e-12, 1e4])
def test_outside_the_useful_range(C):
    X, y = clusters(*SMALL, noise=1.5, dtype=np.float32)
    for members in halves(400, 2):
        check(Subsets(X, y, C=C).solve(members), X, y, C, 4, members, 1e-3)


def test_copies_and_zeros():
    X, y = clusters(120, 5, 3)
    X, y = np.tile(X, (3, 1)), np.tile(y, 3)
    X[:10] = 0.0
    members = halves(360, 1)[0]
    check(Subsets(X, y, C=0.5).solve(members), X, y, 0.5, 3, members, 1e-3)


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_a_subset_is_the_same_whatever_was_solved_before_and_where(size):
    N, d, K = size
    X, y = clusters(N, d, K, noise=1.2, dtype=np.float32)
    masks = np.concatenate([halves(N, 2), halves(N, 1, share=0.9), halves(N, 1, share=0.2)])
    subsets = Subsets(X, y, C=0.05)
    weights, gaps = subsets.solve_all(masks)
    sent = cloudpickle.loads(cloudpickle.dumps(subsets))
    for k in reversed(range(4)):
        for one in (sent, Subsets(X, y, C=0.05)):
            again = one.solve(masks[k])
            assert (again.weight == weights[k]).all()
            assert again.gap == gaps[k]


def test_what_is_sent_is_not_much_more_than_the_features():
    X, y = clusters(1500, 20, 4, dtype=np.float32)
    subsets = Subsets(X, y, C=0.05)
    subsets.solve_all(halves(1500, 1))
    assert len(cloudpickle.dumps(subsets)) < X.nbytes + 100 * len(X)


def test_nothing_to_solve_gives_nothing():
    X, y = clusters(*SMALL)
    weights, gaps = Subsets(X, y, C=0.1).solve_all(np.empty((0, 400), bool))
    assert weights.shape == (0, 4, 13)
    assert gaps.shape == (0,)


def test_bad_arguments_are_refused_in_words():
    X, y = clusters(*SMALL)
    subsets = Subsets(X, y, C=0.1)
    for members, message in (
        (np.zeros(400, bool), "'members' must have at least one sample.*Got none"),
        (np.ones(399, bool), r"'members' must be truth values of shape \(400,\).*\(399,\)"),
        (np.arange(400), "'members' must be truth values.*int64"),
        (np.ones((1, 400), bool), r"shape \(400,\)"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            subsets.solve(members)
    masks = halves(400, 3)
    masks[1] = False
    with pytest.raises(InvalidInputError, match=r"'masks' must have at least one sample.*row 1"):
        subsets.solve_all(masks)
    with pytest.raises(InvalidInputError, match=r"shape \(M, 400\)"):
        subsets.solve_all(masks[0])
    with pytest.raises(InvalidInputError, match=r"'start' must be .*\(400, 4\)"):
        Subsets(X, y, C=0.1, start=solve(X[:50], y[:50], C=0.1).lam)
    with pytest.raises(InvalidInputError, match="'tol'"):
        Subsets(X, y, C=0.1, tol=0.0)


def test_no_warning_where_the_tolerance_is_reached():
    X, y = clusters(*SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Subsets(X, y, C=0.1).solve_all(halves(400, 3))
