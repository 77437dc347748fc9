"""The path over C, and the choice of C."""

from __future__ import annotations

import statistics
import warnings

import numpy as np
import pytest

from tests.helpers import oracle
from whence.errors import ChoiceWarning, ConvergenceWarning
from whence.svm import CrammerSinger, choose_C, solve, solve_path
from whence.svm.inputs import length
from whence.svm.likeness import mean_cosine
from whence.svm.path import PathPoint, _best, _split


def clusters(
    n: int, K: int = 3, d: int = 6, noise: float = 0.5, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    return (np.eye(K, d)[y] * 2 + noise * rng.normal(size=(n, d))).astype(np.float32), y


def test_a_path_keeps_the_order_asked_for() -> None:
    X, y = clusters(60)
    Cs = [0.1, 1e-3, 1.0, 1e-3]
    path = solve_path(X, y, Cs, tol=1e-6)
    assert [s.C for s in path] == Cs
    for s in path:
        alone = solve(X, y, C=s.C, tol=1e-6)
        # Two points with gaps below tol bracket the same optimum.
        assert s.gap <= 1e-6
        assert s.primal >= alone.dual - 1e-12 * abs(alone.dual)
        assert alone.primal >= s.dual - 1e-12 * abs(s.dual)


def test_every_gap_of_a_path_is_that_of_the_returned_weights() -> None:
    X, y = clusters(600, noise=1.5)
    X *= np.logspace(1, -1, 6, dtype=np.float32)
    for s in solve_path(X, y, [0.1, 1.0, 10.0], tol=1e-3):
        primal = oracle.primal(X, y, s.weight, s.C, True)
        gap = (primal - oracle.dual(X, y, s.lam.toarray(), True)) / primal
        assert s.gap == pytest.approx(gap, abs=1e-12)
        assert gap <= 1e-3


@pytest.mark.parametrize(("scale", "offset"), [(1e-3, 0.0), (1e-6, 0.0), (1e3, 0.0), (1.0, 100.0)])
def test_neither_scale_nor_offset_costs_agreement(scale: float, offset: float) -> None:
    X, y = clusters(2000, K=5, noise=0.7)
    weight, bias = np.eye(5, 6), np.array([0.5, 0.0, -0.5, 0.0, 0.3])

    def found(X: np.ndarray, head: tuple[np.ndarray, np.ndarray]) -> float:
        choice = choose_C(X, y, head=head, max_samples=800, bias=length(X))
        return next(p.agreement for p in choice.path if p.C == choice.C)

    plain = found(X.astype(np.float64), (weight, bias))
    moved = found(X * scale + offset, (weight / scale, bias - weight.sum(1) * offset / scale))
    assert plain > 0.9
    assert moved > plain - 0.01


def test_a_subsample_stands_for_the_whole() -> None:
    X, y = clusters(4000, noise=0.8)
    few, many = (choose_C(X, y, max_samples=m) for m in (500, 2000))
    assert few.n_fitted == 500
    assert few.n_scored == 1500
    assert few.held_out
    for a, b in zip(few.path, many.path, strict=True):
        assert a.agreement == pytest.approx(b.agreement, abs=0.05)
        assert a.support == pytest.approx(b.support, abs=0.1)


def test_the_choice_recovers_the_head() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 8)).astype(np.float32)
    weight, offset = rng.normal(size=(4, 8)), 0.1 * rng.normal(size=4)
    y = (X @ weight.T + offset).argmax(1)
    choice = choose_C(X, y, head=(weight, offset), max_samples=800)
    point = next(p for p in choice.path if p.C == choice.C)
    assert point.agreement > 0.95
    assert point.logit_cosine > 0.95
    assert point.agreement >= max(p.agreement for p in choice.path) - 0.02


def test_the_head_outvotes_the_labels() -> None:
    X, y = clusters(600)
    wrong = np.roll(np.eye(3, 6), 1, axis=0)  # a head that names another class everywhere
    choice = choose_C(X, y, head=(wrong, None))
    assert max(p.agreement for p in choice.path[3:]) < 0.2


def test_the_seed_repeats_the_choice() -> None:
    X, y = clusters(300)
    assert choose_C(X, y, seed=3) == choose_C(X, y, seed=3)
    assert choose_C(X, y, seed=3).path != choose_C(X, y, seed=4).path


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.ones((1, 2)), [0]),
        (np.eye(2), [0, 1]),
        (np.zeros((20, 3)), np.arange(20) % 2),
        (np.ones((60, 3)), np.arange(60) % 3),
        (np.eye(4)[np.arange(70) % 4], np.full(70, 1)),
        (np.random.default_rng(0).normal(size=(51, 2)), np.r_[np.zeros(50, int), 4]),
    ],
    ids=["one row", "two rows", "zero features", "equal rows", "one label", "a lone class"],
)
def test_small_and_odd_sets_get_a_finite_value(X: np.ndarray, y: np.ndarray, bias: bool) -> None:
    choice = choose_C(X, y, n_classes=6, bias=bias, head=(np.ones((6, X.shape[1])), None))
    assert 0 < choice.C < np.inf
    assert all(0 <= p.agreement <= 1 for p in choice.path)
    assert choice.held_out == (len(X) >= 50)


def test_the_split_takes_from_every_class_in_proportion() -> None:
    labels = np.repeat([0, 1, 2, 4], [600, 300, 99, 1])
    fitted, judged, held_out = _split(labels, 100, np.random.default_rng(0))
    assert held_out
    assert np.abs(np.bincount(labels[fitted]) - np.array([60, 30, 10, 0, 1])).max() <= 1
    assert len(fitted) == 100
    assert len(judged) == 300
    assert not set(fitted) & set(judged)


def test_of_a_vocabulary_the_split_is_random_so_that_frequent_classes_stay_frequent() -> None:
    labels = np.concatenate([np.zeros(1000, np.int64), np.arange(1, 501), np.arange(1, 501)])
    fitted, judged, _ = _split(labels, 200, np.random.default_rng(0))
    assert len(fitted) == 200
    assert not set(fitted) & set(judged)
    assert abs(int((labels[fitted] == 0).sum()) - 100) < 25  # half of all rows, and not one of 501 classes


def point(C: float, agreement: float, specificity: float, support: float) -> PathPoint:
    return PathPoint(C, C, agreement, None, specificity, support, 0.0)


def test_agreement_comes_first_then_the_balance_of_specificity_and_sparsity() -> None:
    path = [
        point(1, 0.80, 0.99, 0.01),  # far below in agreement
        point(2, 0.895, 0.90, 0.95),  # specific, and all samples are support vectors
        point(3, 0.900, 0.60, 0.40),
        point(4, 0.899, 0.50, 0.30),
        point(5, 0.899, 0.05, 0.02),  # sparse, and all lists the same
    ]
    assert [p.balance for p in path[1:]] == pytest.approx(
        [statistics.harmonic_mean([p.specificity, 1 - p.support]) for p in path[1:]]
    )
    assert _best(path, 1000, True)[0].C == 3  # one standard error is 0.0095
    assert _best([p for p in path if p.C != 3], 1000, True)[0].C == 4
    assert _best(path, 10**6, True)[0].C == 3  # without noise a hundredth is a tie still
    assert _best(path, 10**6, False)[0].C == 3  # and whoever says the classes
    assert _best([*path, point(6, 0.912, 0.1, 0.2)], 10**6, True)[0].C == 6  # more than a hundredth decides
    reason = _best(path, 10**6, True)[1]
    assert "agreement with the model's classes within 0.01 of the best, 0.9000" in reason
    assert "specificity, 0.60, and sparsity, 0.60" in reason


def test_where_nothing_is_sparse_the_most_specific_is_chosen() -> None:
    path = [
        point(1, 0.9, 0.3, 1.0),
        point(2, 0.9, 0.5, 1.0),
        point(3, 0.9, 0.5, 1.0),
        point(4, 0.9, 0.1, 1.0),
    ]
    assert _best(path, 9000, True)[0].C == 2


def test_a_hundredth_of_the_agreement_decides_nothing() -> None:
    path = [point(1, 1.0, 0.5, 0.91), point(2, 0.991, 0.5, 0.07), point(3, 0.989, 0.9, 0.02)]
    assert _best(path, 9000, True)[0].C == 2


@pytest.mark.parametrize("with_head", [True, False])
def test_specificity_is_the_share_of_different_strongest_samples(with_head: bool) -> None:
    """Of scores relative to the mean, for the class that the head names, or the label."""
    X, y = clusters(99, noise=1.0)
    head = (np.random.default_rng(1).normal(size=(3, 6)), np.array([0.1, 0.0, -0.1])) if with_head else None
    fitted, judged, _ = _split(y, 3000, np.random.default_rng(0))
    named = (y if head is None else (X @ head[0].T + head[1]).argmax(1))[judged]
    Z = X[fitted].astype(np.float64)
    found = []
    for p in choose_C(X, y, head=head).path[:9:2]:
        lam = solve(Z, y[fitted], C=p.C * len(y) / len(fitted), tol=1e-10).lam.toarray()
        scores = lam[:, named].T * ((X[judged] - Z.mean(axis=0)) @ Z.T)
        assert p.specificity == pytest.approx(len(set(scores.argmax(1))) / len(judged), abs=1.5 / len(judged))
        found.append(p.specificity)
    assert max(found) > min(found) + 0.2


def test_as_many_rows_choose_as_the_best_C_depends_on() -> None:
    X, y = clusters(30_000, noise=0.8)
    assert choose_C(X, y).n_fitted == 20_000
    few = choose_C(X[:8000], y[:8000])
    assert few.n_fitted == 8000 - 800 - 7200 // 5  # without those held back, and those that judge
    many = np.arange(8000) % 1001
    assert choose_C(X[:8000], many, max_samples=None).n_fitted == 3000


def collapsed(n: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Features that hardly differ, as after a collapse in training, and hardly tell the classes apart."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % K
    return np.ones((n, 8)) + 0.1 * (np.eye(K, 8)[y] + rng.normal(size=(n, 8))), y


@pytest.mark.parametrize("data", [clusters(99, noise=2.0), collapsed(99, 6)], ids=["mixed", "collapsed"])
def test_the_path_shows_the_agreement_of_converged_surrogates(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    K = int(y.max()) + 1
    head = np.random.default_rng(1).normal(size=(K, X.shape[1])), np.zeros(K)
    fitted, judged, _ = _split(y, 3000, np.random.default_rng(0))
    model = (X @ head[0].T)[judged].argmax(1)
    for p in choose_C(X, y, head=head).path:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the end of float64 at the largest C
            found = solve(X[fitted], y[fitted], C=p.C * len(y) / len(fitted), tol=1e-9)
        assert found.gap < 1e-7
        W = found.weight
        classes = (oracle.with_bias(X[judged], True) @ W.T).argmax(1)
        assert p.agreement == pytest.approx((classes == model).mean(), abs=1.5 / len(judged))  # a tie


def test_two_classes_are_compared_by_their_margins() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(48, 5))
    weight = rng.normal(size=(2, 5))
    y = (X @ weight.T + rng.normal(size=(48, 2))).argmax(1)
    path = choose_C(X, y, head=(weight, None)).path
    for p in path:
        W = solve(X, y, C=p.C, tol=1e-9).weight
        margins = oracle.with_bias(X, True) @ (W[1] - W[0])
        want = np.corrcoef(margins, X @ (weight[1] - weight[0]))[0, 1]
        assert p.logit_cosine == pytest.approx(want, abs=1e-3)
    assert any(abs(p.logit_cosine - (2 * p.agreement - 1)) > 0.01 for p in path)


def test_the_edge_of_the_path_is_said() -> None:
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(400, 3)), rng.normal(size=(4, 3))
    y = (X @ weight.T).argmax(1)
    steep = np.array([1, 0.1, 0.001])  # what tells the classes apart is small: only a large C sees it
    with pytest.warns(ChoiceWarning, match="the largest of the path.*larger value may be better: compare"):
        choose_C(X * steep, y, head=(weight / steep, None))
    with warnings.catch_warnings():  # a surrogate that agrees at the edge is no reason to warn
        warnings.simplefilter("error", ChoiceWarning)
        path = choose_C(np.eye(4)[np.arange(400) % 4], np.arange(400) % 4)
    assert path.C == path.path[0].C


def test_time_has_no_part_in_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = clusters(300, noise=1.5)
    want = choose_C(X, y)
    ticks = iter(range(0, 10**9, 1000))  # a machine so slow that every look at the clock is 1,000 s later
    monkeypatch.setattr("time.perf_counter", lambda: float(next(ticks)))
    assert choose_C(X, y) == want


def test_mean_cosine_is_blind_to_shifts() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(5, 3))
    assert mean_cosine(a, 3 * a + rng.normal(size=(5, 1))) == pytest.approx(1)
    assert mean_cosine(a, -a) == pytest.approx(-1)
    assert mean_cosine(a, np.ones((5, 3))) == 0
    pearson = np.mean([np.corrcoef(x, y)[0, 1] for x, y in zip(a, a**2, strict=True)])
    assert mean_cosine(a, a**2) == pytest.approx(pearson)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_what_is_told_of_a_vocabulary_is_what_all_logits_tell(unit: bool, bias: bool) -> None:
    """Seven of twelve classes have no sample, and one row of W: agreement and cosines by all logits."""
    rng = np.random.default_rng(4)
    y = np.array([0, 3, 4, 7, 11])[np.arange(40) % 5]
    raw = rng.normal(size=(40, 6)) + rng.normal(size=(12, 6))[y]
    before = raw if unit else None
    X = raw / np.linalg.norm(raw, axis=1, keepdims=True) if unit else raw
    head = rng.normal(size=(12, 6)), rng.normal(size=12)
    W = solve(X, y, C=0.5, n_classes=12, bias=bias).weight
    rows = np.arange(5, 40)
    problem = CrammerSinger.make(X, y, 12, 1.0, bias)
    found = problem.judge(rows, head, before)(W)
    ours = X[rows] @ W[:, :6].T + (W[:, 6] if bias else 0.0)
    assert problem.judge(rows, None, before)(W) == ((ours.argmax(axis=1) == y[rows]).mean(), None)
    theirs = raw[rows] @ head[0].T + head[1]
    a, b = (z - z.mean(axis=1, keepdims=True) for z in (ours, theirs))
    cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert found[0] == (ours.argmax(axis=1) == theirs.argmax(axis=1)).mean()
    assert found[1] == pytest.approx(cosines.mean())
