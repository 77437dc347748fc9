"""The solver against a generic QP solver, scikit-learn, closed forms and the optimality conditions."""

import time
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.svm import LinearSVC

from tests.helpers import oracle
from whence.errors import ConvergenceWarning, InvalidInputError
from whence.svm import CrammerSinger, solve


def clusters(n=60, d=5, K=3, noise=0.8, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(K), rng.integers(0, K, n - K)])
    centres = rng.normal(size=(K, d))
    return (centres[y] + noise * rng.normal(size=(n, d))).astype(dtype), y


def stretched(n=3000, d=40, K=4, seed=0):
    """Overlapping classes on badly conditioned features: where coordinate descent crawls."""
    X, y = clusters(n, d, K, noise=1.5, seed=seed)
    return (X * np.logspace(1.2, -1.2, d)).astype(np.float32), y


def check_solution(solution, X, y, C, bias, tol):
    """Everything that a certificate promises, recomputed without the solver's code."""
    lam = solution.lam.toarray()
    N = len(y)
    own = lam[np.arange(N), y]
    others = lam.copy()
    others[np.arange(N), y] = 0.0
    assert (others <= 0).all()
    assert (own >= 0).all()
    assert (own <= C).all()
    assert (lam.sum(axis=1) == 0).all()  # exactly, and in whatever order they are added
    assert (lam[:, ::-1].sum(axis=1) == 0).all()
    W = lam.T @ oracle.with_bias(X, bias)
    scale = np.abs(lam).T @ np.abs(oracle.with_bias(X, bias)) + 1e-300
    assert (np.abs(solution.weight - W) / scale).max() < 1e-13
    assert solution.dual == pytest.approx(oracle.dual(X, y, lam, bias), rel=1e-12, abs=1e-13 * own.sum())
    primal = oracle.primal(X, y, solution.weight, C, bias)
    assert solution.primal == pytest.approx(primal, rel=1e-12)
    gap = (primal - oracle.dual(X, y, lam, bias)) / primal
    assert solution.gap == pytest.approx(gap, abs=1e-12)
    assert solution.gap <= tol


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("K", [2, 3, 5, 14])
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_optimum_is_that_of_a_generic_qp_solver(C, K, bias):
    X, y = clusters(K=K, seed=K)
    value, W = oracle.qp(X, y, K, C, bias)
    solution = solve(X, y, C=C, bias=bias, tol=1e-8)
    check_solution(solution, X, y, C, bias, 1e-8)
    assert solution.dual <= value * (1 + 1e-9)
    assert solution.primal >= value * (1 - 1e-9)
    # The dual is 1-strongly concave in W.
    assert 0.5 * ((solution.weight - W) ** 2).sum() <= 2e-8 * value


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-7])
@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_gap_is_that_of_the_returned_weights(C, tol, seed):
    X, y = stretched(seed=seed)
    check_solution(solve(X, y, C=C, tol=tol), X, y, C, True, tol)


@pytest.mark.parametrize("norm", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("C", [1e-9, 1e-4, 1e2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_range_of_C_and_norms(C, norm, dtype):
    X, y = clusters(80, 6, 4, noise=0.3, dtype=dtype)
    X *= dtype(norm / np.linalg.norm(X, axis=1).mean())
    check_solution(solve(X, y, C=C, bias=False, tol=1e-5), X, y, C, False, 1e-5)


def test_scaling_features_and_C_together_changes_only_units():
    X, y = clusters()
    one = solve(X, y, C=0.5, bias=False, tol=1e-9)
    two = solve(X * 64, y, C=0.5 / 64**2, bias=False, tol=1e-9)
    assert two.dual * 64**2 == pytest.approx(one.dual, rel=1e-8)
    np.testing.assert_allclose(two.weight * 64, one.weight, atol=1e-4 * np.abs(one.weight).max())


@pytest.mark.parametrize("C", [1e-3, 10.0])
def test_one_sample_closed_form(C):
    # By symmetry λ = a·(e_y − (1 − e_y)/(K − 1)), and a maximises a − a²‖f‖²K/(2(K − 1)) on [0, C].
    f = np.array([[1.0, 2.0]])
    a = min(C, (3 - 1) / (3 * 5.0))
    solution = solve(f, [1], n_classes=3, C=C, bias=False, tol=1e-9)
    np.testing.assert_allclose(solution.lam.toarray(), [[-a / 2, a, -a / 2]], rtol=1e-4)


CASES = {
    "two classes": lambda: (*clusters(K=2), 2),
    "absent classes": lambda: (*clusters(K=3), 7),
    "all labels equal": lambda: (clusters()[0], np.ones(60, int), 3),
    "duplicate rows": lambda: (np.repeat(clusters(20)[0], 3, 0), np.repeat(clusters(20)[1], 3), 3),
    "duplicates that disagree": lambda: (np.ones((6, 2)), np.array([0, 1, 2, 0, 1, 1]), 3),
    "rows of zeros": lambda: (clusters()[0] * (np.arange(60) % 2)[:, None], clusters()[1], 3),
    "only zeros": lambda: (np.zeros((5, 3)), np.array([0, 1, 2, 0, 1]), 3),
    "fewer samples than classes": lambda: (*clusters(4, K=4), 9),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_awkward_data(case, bias):
    X, y, K = CASES[case]()
    for C in (1e-3, 1.0):
        solution = solve(X, y, n_classes=K, C=C, bias=bias, tol=1e-7)
        check_solution(solution, X, y, C, bias, 1e-7)
        value, _ = oracle.qp(X, y, K, C, bias)
        assert solution.dual == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_classes_without_samples_are_all_alike_and_the_optimum_is_that_of_a_generic_qp_solver(C, bias):
    X, y = clusters(K=3)
    y = np.array([4, 0, 9])[y]
    solution = solve(X, y, n_classes=12, C=C, bias=bias, tol=1e-8)
    check_solution(solution, X, y, C, bias, 1e-8)
    value, W = oracle.qp(X, y, 12, C, bias)
    assert solution.dual == pytest.approx(value, rel=1e-7)
    assert 0.5 * ((solution.weight - W) ** 2).sum() <= 2e-8 * value
    absent = np.setdiff1d(np.arange(12), y)
    lam = solution.lam.toarray()
    assert (lam[:, absent] == lam[:, absent[:1]]).all()
    assert (solution.weight[absent] == solution.weight[absent[0]]).all()


@pytest.mark.parametrize("kappa", [10.0, 1e3, 1e5])
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_merging_the_classes_without_samples_solves_the_same_problem(kappa, spread, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = np.eye(3, 6)[y] + spread * rng.normal(size=(60, 6))
    C = kappa / (X**2).sum()
    merged = solve(X, y, n_classes=40, C=C, tol=1e-8)
    check_solution(merged, X, y, C, True, 1e-8)
    monkeypatch.setattr(CrammerSinger, "merged", lambda problem: (problem, np.arange(40)))
    plain = solve(X, y, n_classes=40, C=C, tol=1e-8)
    assert merged.dual == pytest.approx(plain.dual, rel=1e-7)
    assert 0.5 * ((merged.weight - plain.weight) ** 2).sum() <= 4e-8 * plain.dual
    monkeypatch.undo()
    again = solve(X, y, n_classes=40, C=C, tol=1e-8, warm_start=plain)  # whose columns may differ a little
    check_solution(again, X, y, C, True, 1e-8)


def test_a_hundred_thousand_classes_without_samples_take_no_time():
    X, y = clusters(18, 6, 3)
    solution = solve(X, y, n_classes=100_000, C=10.0, tol=1e-6, max_seconds=20.0)
    assert solution.status == "converged"
    # All but three are one class of no weight, as far as six digits tell.
    assert np.abs(solution.weight[3:]).max() < 1e-4
    assert solution.lam.shape == (18, 100_000)


def test_a_small_problem_waits_for_no_threads(monkeypatch):
    X, y = clusters()
    want = [solve(X, y, C=C, tol=1e-8).lam.toarray() for C in (0.1, 1e3)]

    def started(*_):
        raise AssertionError("a thread was given work")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", started)
    for C, lam in zip((0.1, 1e3), want, strict=True):
        np.testing.assert_array_equal(solve(X, y, C=C, tol=1e-8).lam.toarray(), lam)


def test_layouts_and_types_give_the_same_problem(tmp_path):
    X, y = clusters(dtype=np.float32)
    want = solve(X, y, C=0.1, tol=1e-8)
    mapped = np.memmap(tmp_path / "f", np.float32, "w+", shape=X.shape)
    mapped[:] = X
    wide = np.zeros((60, 10), np.float32)
    wide[:, ::2] = X
    frozen = X.copy()
    frozen.flags.writeable = False
    for other in (mapped, wide[:, ::2], np.asfortranarray(X), frozen, X.astype(np.float64), X[::-1][::-1]):
        assert solve(other, y, C=0.1, tol=1e-8).dual == pytest.approx(want.dual, rel=2e-8)
    half = X.astype(np.float16)
    check_solution(solve(half, y.astype(np.uint8), C=0.1), half, y, 0.1, True, 1e-5)
    for integers in ((X * 10).astype(int), (X > 0)):
        check_solution(solve(integers, y, C=0.1), integers, y, 0.1, True, 1e-5)


def test_input_is_left_alone():
    X, y = clusters(dtype=np.float32)
    before = X.copy(), y.copy()
    solve(X, y, C=1.0)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])


@pytest.mark.parametrize("data", [clusters(500, 20, 5, dtype=np.float32), stretched()])
def test_same_seed_same_bits_with_any_number_of_threads(data):
    one, two = (solve(*data, C=1.0, seed=3, n_threads=2) for _ in range(2))
    np.testing.assert_array_equal(one.lam.data, two.lam.data)
    np.testing.assert_array_equal(one.lam.indices, two.lam.indices)
    assert one.primal == two.primal
    assert [gap for _, gap in one.history[:-1]] == [gap for _, gap in two.history[:-1]]
    np.testing.assert_array_equal(solve(*data, C=1.0, seed=3, n_threads=1).lam.data, one.lam.data)


@pytest.mark.parametrize("to", [1e-4, 0.02, 0.1, 3.0])
def test_warm_start_from_another_C(to):
    X, y = clusters(500, 10, 4, dtype=np.float32)
    start = solve(X, y, C=0.02)
    warm = solve(X, y, C=to, tol=1e-7, warm_start=start)
    check_solution(warm, X, y, to, True, 1e-7)
    assert warm.dual == pytest.approx(solve(X, y, C=to, tol=1e-7).dual, rel=2e-7)
    if to == 0.02:
        assert warm.n_iter < solve(X, y, C=to, tol=1e-7).n_iter


def test_warm_start_after_relabelling():
    X, y = clusters(300, 10, 4, dtype=np.float32)
    start = solve(X, y, C=0.1)
    y[:20] = (y[:20] + 1) % 4
    solution = solve(X, y, C=0.1, tol=1e-6, warm_start=start.lam)
    check_solution(solution, X, y, 0.1, True, 1e-6)


def test_time_limit_returns_the_best_so_far():
    X, y = stretched(20000, 100, 10)
    started = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="relative duality gap of"):
        solution = solve(X, y, C=100.0, tol=1e-9, max_seconds=0.3)
    assert time.perf_counter() - started < 20
    assert solution.status == "time limit"
    check_solution(solution, X, y, 100.0, True, 1.0)


def test_interrupt_returns_the_best_so_far():
    X, y = stretched()

    def press_ctrl_c(seconds, gap):
        raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        solution = solve(X, y, C=10.0, tol=1e-9, callback=press_ctrl_c)
    assert solution.status == "interrupted"
    check_solution(solution, X, y, 10.0, True, 1.0)


def test_a_tolerance_below_rounding_ends_with_a_warning():
    X, y = clusters()
    with pytest.warns(ConvergenceWarning, match="stalled"):
        solution = solve(X, y, C=1.0, tol=1e-17)
    check_solution(solution, X, y, 1.0, True, 1e-9)


def test_history_and_callback_tell_the_same():
    X, y = clusters(500, 10, 4)
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solution = solve(X, y, C=0.1, callback=lambda seconds, gap: seen.append((seconds, gap)))
    assert solution.history[:-1] == seen
    assert len(seen) == solution.n_iter
    assert solution.history[-1] == (solution.seconds, solution.gap)
    assert solution.status == "converged"


def changed(X, row, column, value):
    X = X.copy()
    X[row, column] = value
    return X


X0, Y0 = clusters()
BAD = [
    ((changed(X0, 7, 2, np.nan), Y0), {}, "nan at row 7, column 2"),
    ((changed(X0, 9, 1, np.inf), Y0), {}, "inf at row 9, column 1"),
    ((changed(X0, 9, 1, 1e200), Y0), {}, "squared norm of row 9"),
    ((X0[0], Y0), {}, "two dimensions"),
    ((X0[:0], Y0[:0]), {}, "at least one row"),
    ((X0[:, :0], Y0), {}, "at least one column"),
    ((X0.astype(complex), Y0), {}, "real numbers"),
    ((X0, Y0[:-1]), {}, r"'labels' must have shape \(60,\)"),
    ((X0, Y0.astype(float)), {}, "must be integers"),
    ((X0, Y0 - 1), {}, "must not be negative. Got -1 at index 0"),
    ((X0, Y0), {"n_classes": 2}, "below n_classes = 2. Got 2 at index 2"),
    ((X0, np.zeros(60, int)), {}, "'n_classes' must be an integer of at least 2. Got 1"),
    ((X0, Y0), {"n_classes": 2.5}, "'n_classes' must be an integer"),
    ((X0, Y0), {"C": 0}, "'C' must be a finite number above 0. Got 0"),
    ((X0, Y0), {"C": -1.0}, "'C' must be"),
    ((X0, Y0), {"C": np.inf}, "'C' must be"),
    ((X0, Y0), {"C": "1"}, "'C' must be"),
    ((X0, Y0), {"tol": 0}, "'tol' must be"),
    ((X0, Y0), {"max_seconds": 0}, "'max_seconds' must be"),
    ((X0, Y0), {"n_threads": 0}, "'n_threads' must be"),
    ((X0, Y0), {"warm_start": csr_array((3, 3))}, "'warm_start' must be"),
    ((X0, Y0), {"warm_start": np.zeros((60, 3))}, "'warm_start' must be"),
]


@pytest.mark.parametrize(("data", "options", "message"), BAD)
def test_bad_input(data, options, message):
    with pytest.raises(InvalidInputError, match=message):
        solve(*data, **{"C": 1.0, **options})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_copies_of_a_sample_get_the_same_coefficients(C, dtype):
    X, y = clusters(60, 6, 3, noise=1.0, dtype=dtype)
    X[:, 0] *= X[:, 0] > 0
    order = np.random.default_rng(0).permutation(60 + 40)
    copies = np.concatenate([np.arange(60), np.repeat([3, 7, 11, 20], 10)])[order]
    X, y = X[copies], y[copies]
    X[1::2, 0] *= np.where(X[1::2, 0] == 0, -1.0, 1.0).astype(dtype)  # −0.0 equals 0.0
    solutions = [solve(X, y, C=C, tol=1e-9, seed=seed) for seed in (0, 1)]
    for solution in solutions:
        check_solution(solution, X, y, C, True, 1e-9)
        lam = solution.lam.toarray()
        for source in (3, 7, 11, 20):
            rows = lam[copies == source]
            assert len(rows) == 11
            assert (rows == rows[0]).all()
    first, second = (solution.lam.toarray() for solution in solutions)
    np.testing.assert_allclose(first, second, atol=1e-3 * np.abs(first).max())


def test_copies_with_other_labels_are_no_copies():
    X, y = clusters(40, 4, 2)
    X[1], y[0], y[1] = X[0], 0, 1
    lam = solve(X, y, C=0.1, tol=1e-9).lam.toarray()
    assert (lam[0] != lam[1]).any()


def extreme(name):
    X, y = clusters(300, 8, 4, noise=1.0)
    if name == "one column":
        X[:, 2] *= 1e6
        return X, y, 1e3
    factor, C = {
        "a million": (1e6, 1e8),
        "a trillion": (1e12, 1.0),
        "tiny": (1e-150, 1e15),
        "large C": (1.0, 1e30),
    }[name]
    return X * factor, y, C


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["a million", "a trillion", "one column", "tiny", "large C"])
def test_extreme_input_gives_a_solution_with_an_honest_status(name, bias):
    X, y, C = extreme(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no RuntimeWarning of numpy
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = solve(X, y, C=C, bias=bias, max_seconds=20)
    check_solution(solution, X, y, C, bias, 1.0)
    assert (solution.status == "converged") == (solution.gap <= 1e-5)


@pytest.mark.parametrize(
    ("factor", "C", "message"),
    [
        (1e60, 1.0, "the squared norm of row"),
        (1e150, 1.0, "the squared norm of row"),
        (1.0, 1e150, "'C' must be between"),
        (1.0, 1e-150, "'C' must be between"),
        (1e45, 1e30, "'C' must be between"),
    ],
)
def test_input_past_float64_is_refused(factor, C, message):
    X, y = clusters()
    with pytest.raises(InvalidInputError, match=message):
        solve(X * factor, y, C=C)


@pytest.mark.parametrize("C", [1e-2, 1.0])
def test_hundreds_of_classes_reach_the_value_that_liblinear_reaches(C):
    rng = np.random.default_rng(0)
    y = np.arange(1200) % 600
    X = (rng.normal(size=(600, 16))[y] + 0.5 * rng.normal(size=(1200, 16))).astype(np.float32)
    found = solve(X, y, C=C, tol=1e-5)
    check_solution(found, X, y, C, True, 1e-5)
    peer = LinearSVC(multi_class="crammer_singer", fit_intercept=False, C=C, tol=1e-6, random_state=0)
    W = peer.fit(np.hstack([X, np.ones((1200, 1))]), y).coef_
    scores = X.astype(np.float64) @ W[:, :-1].T + W[:, -1]
    margins = 1.0 + scores - scores[np.arange(1200), y][:, None]
    margins[np.arange(1200), y] = 0.0
    theirs = 0.5 * (W**2).sum() + C * margins.max(axis=1).sum()
    assert found.primal == pytest.approx(theirs, rel=1e-3)
    assert found.dual <= theirs * (1 + 1e-9)


def test_no_array_is_as_large_as_samples_times_classes():
    N, K = 6000, 1500
    rng = np.random.default_rng(0)
    y = np.arange(N) % K
    X = (rng.normal(size=(K, 32))[y] + 0.3 * rng.normal(size=(N, 32))).astype(np.float32)
    solve(X[:300], y[:300] % 100, C=1.0, tol=1e-2, n_threads=1)  # compile
    tracemalloc.start()
    found = solve(X, y, C=1.0, tol=1e-2, n_threads=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.status == "converged"
    assert peak < 2 * N * K  # two bytes per pair; a float32 would take four


def test_thousands_of_classes_with_longer_lists_keep_what_the_certificate_promises():
    N, K, d = 2700, 2600, 256
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(K), rng.integers(0, 20, N - K)])  # most have one sample, some have many
    X = (rng.normal(size=(K, d))[y] + 1.0 + 0.5 * rng.normal(size=(N, d))).astype(np.float32)
    found = solve(X, y, C=1e-3, tol=1e-3)
    check_solution(found, X, y, 1e-3, True, 1e-3)
