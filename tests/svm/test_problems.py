"""Numbers, labels that are on or off, one class: against a generic solver, scikit-learn and closed forms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.svm import LinearSVC, LinearSVR, OneClassSVM

from tests.helpers.boxed import Boxed
from whence.core.arrays import Doubles, Ints
from whence.errors import InvalidInputError
from whence.svm import Hinges, OneClassProblem, Solution, Tube, choose_C, solve
from whence.svm.problem import joined


def numbers(n: int = 150, d: int = 4, K: int = 1, noise: float = 0.3) -> tuple[Doubles, Doubles]:
    rng = np.random.default_rng(n + d)
    X = rng.normal(size=(n, d)) + 0.5
    return X, X @ rng.normal(size=(d, K)) + noise * rng.normal(size=(n, K))


def labels(n: int = 150, d: int = 4, K: int = 3) -> tuple[Doubles, Doubles]:
    X, y = numbers(n, d, K, 1.0)
    return X, (y > y.mean(0)).astype(float)


def quadratic(X: Doubles, t: Doubles, C: float, epsilon: float, one_sided: bool, bias: float) -> Doubles:
    """λ (N, K) by clarabel: maximise tλ − ε|λ| − ½‖Xᵀλ‖², λ = p − q with p, q in [0, C]."""
    clarabel = pytest.importorskip("clarabel")
    from scipy import sparse

    F = np.hstack([X, np.full((len(X), 1), bias)]) if bias else X
    n, d = F.shape
    found = []
    for c in range(t.shape[1]):
        top = (
            np.where((t[:, c] > 0) | (not one_sided), C, 0.0),
            np.where((t[:, c] < 0) | (not one_sided), C, 0.0),
        )
        # z = (p, q, w) with w = Fᵀ(p − q); 0 ≤ p, q ≤ top
        P = sparse.block_diag([sparse.csc_matrix((2 * n, 2 * n)), sparse.eye(d)]).tocsc()
        q = np.r_[epsilon - t[:, c], epsilon + t[:, c], np.zeros(d)]
        link = sparse.hstack([F.T, -F.T, -sparse.eye(d)])
        box = sparse.hstack([sparse.eye(2 * n), sparse.csc_matrix((2 * n, d))])
        A = sparse.vstack([link, box, -box]).tocsc()
        b = np.r_[np.zeros(d), *top, np.zeros(2 * n)]
        cones = [clarabel.ZeroConeT(d), clarabel.NonnegativeConeT(4 * n)]
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
        z = np.array(clarabel.DefaultSolver(sparse.triu(P).tocsc(), q, A, b, cones, settings).solve().x)
        found.append(z[:n] - z[n : 2 * n])
    return np.array(found).T


def check(found: Solution, X: Doubles, t: Doubles, C: float, epsilon: float, one_sided: bool) -> None:
    """Feasibility, W = Σ λ f, and both values, by hand."""
    lam, b = found.lam.toarray(), found.bias
    F = np.hstack([X, np.full((len(X), 1), b)]) if b else X
    assert np.abs(lam).max() <= C
    assert not one_sided or (lam * t >= 0).all()
    W = lam.T @ F
    np.testing.assert_allclose(
        found.weight, W * np.r_[np.ones(X.shape[1]), [b] * bool(b)], rtol=1e-9, atol=1e-12
    )
    error = np.maximum(t * (t - F @ W.T), 0) if one_sided else np.maximum(np.abs(t - F @ W.T) - epsilon, 0)
    assert found.primal == pytest.approx(0.5 * (W**2).sum() + C * error.sum(), rel=1e-9)
    assert found.dual == pytest.approx((t * lam - epsilon * np.abs(lam)).sum() - 0.5 * (W**2).sum(), rel=1e-9)
    assert -1e-12 <= found.gap <= 1e-7
    assert found.status == "converged"


@pytest.mark.parametrize("bias", [False, 2.0])
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0, 1e3])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_numbers_are_solved_as_a_generic_solver_does(C: float, epsilon: float, bias: Any) -> None:
    X, y = numbers(K=2)
    found = solve(X, y, problem=Tube(epsilon), C=C, bias=bias, tol=1e-7)
    check(found, X, y, C, epsilon, False)
    lam = quadratic(X, y, C, epsilon, False, float(bias))
    value = (y * lam - epsilon * np.abs(lam)).sum()
    F = np.hstack([X, np.full((len(X), 1), bias)]) if bias else X
    assert found.dual == pytest.approx(value - 0.5 * ((lam.T @ F) ** 2).sum(), rel=1e-6)


@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0, 1e3])
def test_labels_are_solved_as_a_generic_solver_does(C: float) -> None:
    X, y = labels()
    found = solve(X, y, problem=Hinges, C=C, tol=1e-7)
    check(found, X, 2 * y - 1, C, 0.0, True)
    lam = quadratic(X, 2 * y - 1, C, 0.0, True, 1.0)
    W = lam.T @ np.hstack([X, np.ones((len(X), 1))])
    assert found.dual == pytest.approx(((2 * y - 1) * lam).sum() - 0.5 * (W**2).sum(), rel=1e-6)


@pytest.mark.parametrize("C", [1e-2, 1.0])
def test_scikit_learn_finds_the_same_weights(C: float) -> None:
    X, y = numbers()
    ours = solve(X, y[:, 0], problem=Tube(0.2), C=C, bias=False, tol=1e-9)
    options: dict[str, Any] = {
        "C": C,
        "fit_intercept": False,
        "tol": 1e-10,
        "max_iter": 10**7,
        "random_state": 0,
    }
    theirs = LinearSVR(loss="epsilon_insensitive", epsilon=0.2, **options).fit(X, y[:, 0])
    np.testing.assert_allclose(ours.weight[0], theirs.coef_, rtol=1e-3, atol=1e-4)
    X, on = labels(K=2)
    ours = solve(X, on, problem=Hinges, C=C, bias=False, tol=1e-9)
    for c in range(2):
        other = LinearSVC(loss="hinge", **options).fit(X, on[:, c])
        np.testing.assert_allclose(ours.weight[c], other.coef_[0], rtol=1e-3, atol=1e-4)


def test_one_sample_and_one_feature_have_a_closed_form() -> None:
    """max_λ tλ − ε|λ| − ½λ²f² is λ = (t − ε)/f², or C where that is more, or 0 inside the tube."""
    for t, C, lam in ((3.0, 10.0, 0.7), (-3.0, 10.0, -0.7), (3.0, 0.5, 0.5), (0.1, 10.0, 0.0)):
        found = solve([[2.0]], [t], problem=Tube(0.2), C=C, bias=False, tol=1e-9)
        assert found.lam.toarray()[0, 0] == pytest.approx(lam, abs=1e-12)
        assert found.lam.nnz == (lam != 0)
    for y, C, lam in ((1, 10.0, 0.25), (0, 10.0, -0.25), (1, 0.1, 0.1)):
        found = solve([[2.0]], [y], problem=Hinges, C=C, bias=False, tol=1e-9)
        assert found.lam.toarray()[0, 0] == pytest.approx(lam, rel=1e-9)


def test_targets_inside_the_tube_leave_nothing() -> None:
    X, y = numbers()
    found = solve(X, y, problem=Tube(1e3), C=1.0)
    assert (found.lam.nnz, found.primal, found.gap, found.status) == (0, 0.0, 0.0, "converged")


def test_features_of_zeros_are_at_their_bound() -> None:
    X, y = numbers()
    X[:5], y[:5] = 0.0, 3.0
    found = solve(X, y, problem=Tube(0.1), C=0.5, bias=False, tol=1e-8)
    np.testing.assert_array_equal(found.lam.toarray()[:5], 0.5)


def test_units_change_nothing_but_the_units() -> None:
    X, y = numbers(K=2)
    centre, scale = np.array([3.0, -700.0]), np.array([0.01, 1e4])
    plain = solve(X, y, problem=Tube(0.2), C=0.3, tol=1e-9)
    maker = Tube(0.2, tuple(centre), tuple(scale))
    other = solve(X, y * scale + centre, problem=maker, C=0.3, tol=1e-9)
    np.testing.assert_allclose(other.weight, plain.weight * scale[:, None], rtol=1e-5)
    np.testing.assert_allclose(other.lam.toarray() / scale, plain.lam.toarray(), rtol=1e-4, atol=1e-6)
    assert other.primal == pytest.approx(plain.primal, rel=1e-7)
    again = solve(X, y * scale + centre, problem=maker, C=0.3, tol=1e-6, warm_start=other)
    assert again.n_iter <= 1
    chosen = choose_C(
        X, y * scale + centre, problem=maker, head=(other.weight[:, :4], other.weight[:, 4] + centre)
    )
    assert max(point.agreement for point in chosen.path) > 0.99
    same = choose_C(X, y, problem=Tube(0.2), head=(plain.weight[:, :4], plain.weight[:, 4]))
    assert [p.agreement for p in same.path] == pytest.approx([p.agreement for p in chosen.path], abs=1e-3)


def test_a_warm_start_of_other_targets_or_another_C_is_taken() -> None:
    X, y = numbers(400, 8)
    first = solve(X, y, problem=Tube(0.1), C=0.1, tol=1e-8)
    y[0] += 1.0
    for C in (0.01, 0.1, 1.0):
        fresh = solve(X, y, problem=Tube(0.1), C=C, tol=1e-8)
        warm = solve(X, y, problem=Tube(0.1), C=C, tol=1e-8, warm_start=first)
        assert warm.primal == pytest.approx(fresh.primal, rel=1e-7)
        np.testing.assert_allclose(warm.weight, fresh.weight, atol=1e-3)
    X, on = labels()
    first = solve(X, on, problem=Hinges, C=0.1, tol=1e-8)
    flipped = solve(X, 1 - on, problem=Hinges, C=0.1, tol=1e-8, warm_start=first)
    np.testing.assert_allclose(flipped.weight, -first.weight, atol=1e-3)


def test_copies_share_and_single_precision_reaches_the_gap() -> None:
    X, y = numbers(3000, 40, 5, 1.0)
    X[1500:], y[1500:] = X[:1500], y[:1500]
    for problem, targets in ((Tube(0.2), y), (Hinges, (y > 0).astype(int))):
        for C in (1e-3, 1.0, 100.0):
            found = solve(X.astype(np.float32), targets, problem=problem, C=C, tol=1e-7)
            assert found.gap <= 1e-7
            lam = found.lam.toarray()
            np.testing.assert_array_equal(lam[:1500], lam[1500:])


@pytest.mark.parametrize(
    ("problem", "targets", "message"),
    [
        (Tube(), np.zeros((3, 2)), r"'targets' must have shape \(4, 2\), one row per sample. Got \(3, 2\)"),
        (Tube(), np.array([0, 1, np.nan, 0]), r"'targets' must be finite. Got nan at row 2"),
        (Tube(), np.array(["a"] * 4), "'targets' must hold real numbers"),
        (Tube(-0.1), np.zeros(4), "'epsilon' must be .*, or 0"),
        (Tube(0.1, (1.0,), (1.0,)), np.zeros((4, 2)), "'centre' and 'scale' must be 2 numbers"),
        (Hinges, np.array([0, 1, 2, 0]), "'labels' must be zeros and ones. Got 2 at row 2"),
    ],
)
def test_wrong_targets_are_refused(problem: Any, targets: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        solve(np.eye(4), targets, problem=problem, C=1.0)


@pytest.mark.parametrize("C", [1e-3, 1e-2, 0.1])
def test_one_class_is_the_nu_machine_with_its_threshold_scaled_to_one(C: float) -> None:
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(size=(200, 6))) + 0.3
    found = solve(X, np.ones(200), problem=OneClassProblem, n_classes=1, C=C, bias=False, tol=1e-10)
    lam = found.lam.toarray()[:, 0]
    assert (lam >= 0).all()
    assert (lam <= C).all()
    nu = lam.sum() / (C * 200)
    theirs = OneClassSVM(kernel="linear", nu=nu, tol=1e-10).fit(X)
    rho = theirs.offset_[0]
    np.testing.assert_allclose(found.weight[0], theirs.coef_[0] / rho, rtol=1e-4, atol=1e-6)
    alpha = np.zeros(200)
    alpha[theirs.support_] = theirs.dual_coef_[0]
    np.testing.assert_allclose(X.T @ lam, X.T @ alpha / rho, rtol=1e-4, atol=1e-6)
    assert 1 / rho == pytest.approx(C, rel=1e-4)  # of α that are at most 1
    # The sum over samples is the score, and the share outside is at most ν.
    np.testing.assert_allclose((X @ X.T) @ lam, X @ found.weight[0], rtol=1e-9)
    assert (X @ found.weight[0] < 1 - 1e-6).mean() <= nu


# The solver speaks to the interface alone: another problem, written here, is solved to a certified gap


@dataclass(frozen=True)
class Hinge(Boxed):
    """One logit and signs y = ±1: min_w ½‖w‖² + C Σ_i max(0, 1 − y_i w·f_i), with y_i λ_i in [0, C]."""

    @property
    def box(self) -> tuple[Doubles, Doubles]:
        ends = np.stack([0 * self.wanted, -self.C * self.wanted])
        return ends.min(0), ends.max(0)

    def loss(self, scores: Doubles, wanted: Doubles) -> tuple[float, float, float]:
        margins = wanted * scores
        wrong = margins < 1
        return float((1 - margins[wrong]).sum()), -float(margins[wrong].sum()), float(margins.min())

    @property
    def strata(self) -> Ints:
        return (self.wanted[:, 0] > 0).astype(np.int64)

    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        scores, theirs = joined(parts)
        wanted = self.wanted[rows] if theirs is None else theirs
        return float((scores * wanted > 0).mean()), None if theirs is None else 1.0


def clouds(n: int, d: int, spread: float) -> tuple[Doubles, Doubles]:
    rng = np.random.default_rng(0)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    return y[:, None] * np.ones(d) / np.sqrt(d) + spread * rng.normal(size=(n, d)), y


@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0, 1e4])
@pytest.mark.parametrize("spread", [0.2, 1.5])
def test_another_problem_reaches_the_optimum_that_scikit_learn_finds(C: float, spread: float) -> None:
    X, y = clouds(120, 4, spread)
    found = solve(X, y, problem=Hinge, C=C, bias=False, tol=1e-6)
    assert found.status == "converged"
    lam = found.lam.toarray()[:, 0]
    assert (y * lam >= 0).all()
    assert np.abs(lam).max() <= C
    np.testing.assert_allclose(found.weight[0], lam @ X, rtol=1e-9, atol=1e-12)
    model = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-9, max_iter=5_000_000, random_state=0)
    w = model.fit(X, y).coef_[0]
    value = 0.5 * w @ w + C * np.maximum(1 - y * (X @ w), 0).sum()
    assert found.dual <= value * (1 + 1e-9)
    assert found.primal <= value * (1 + 2e-6)


def test_a_bias_a_warm_start_and_the_choice_of_C_go_with_it() -> None:
    X, y = clouds(200, 3, 1.0)
    first = solve(X, y, problem=Hinge, C=0.1, tol=1e-6)
    again = solve(X, y, problem=Hinge, C=0.2, tol=1e-6, warm_start=first)
    plain = solve(np.hstack([X, np.ones((200, 1))]), y, problem=Hinge, C=0.2, bias=False, tol=1e-6)
    assert again.primal == pytest.approx(plain.primal, rel=2e-6)
    chosen = choose_C(X, y, problem=Hinge)
    assert max(point.agreement for point in chosen.path) > 0.8


class Opposite:
    """Makes the problem of the opposite signs."""

    def make(self, features: Any, targets: Any, n_outputs: int | None, C: float, bias: float) -> Hinge:
        return Hinge.make(features, -targets, n_outputs, C, bias)


def test_an_object_may_make_the_problem() -> None:
    X, y = clouds(60, 3, 1.0)
    plain, opposite = (solve(X, y, problem=problem, C=0.1, bias=False) for problem in (Hinge, Opposite()))
    np.testing.assert_allclose(opposite.weight, -plain.weight, atol=1e-3)
