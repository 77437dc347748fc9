"""Solved over shards, a problem has the W and the certificate that it has in one place, whatever is lost."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import oracle
from tests.svm.test_problems import Hinge, clouds
from whence.engine import Group, Local
from whence.errors import ConvergenceWarning, InvalidInputError, LostError, WorkerError
from whence.svm import sharded, solve, solve_shards
from whence.svm.sharded import Mapped

rng = np.random.default_rng(0)
Y = rng.integers(0, 4, 600)
X = (rng.normal(size=(4, 12))[Y] + rng.normal(size=(600, 12))).astype(np.float32)
HERE = Local().group


class Losing(Group):
    """Shards of which one is lost at some of the calls, and begins anew."""

    def __init__(self, make, parts, at: set[int]) -> None:
        super().__init__([make(part) for part in parts])
        self.make, self.parts, self.at, self.calls = make, parts, at, 0

    def call(self, method, *shared, each=None):
        self.calls += 1
        found = super().call(method, *shared, each=each)
        if self.calls in self.at:
            place = self.calls % len(self)
            self._members[place] = self.make(self.parts[place])
            raise LostError([place], "its worker was lost")
        return found


def rounds_alone(monkeypatch) -> None:
    """Leave no memory to solve anything in one place."""
    monkeypatch.setattr(sharded, "free_memory", lambda: 0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_solution_is_that_of_a_generic_solver(n, bias) -> None:
    few, y = X[:60], Y[:60]
    value, W = oracle.qp(few, y, 4, 0.05, bias)
    found = solve_shards(few, y, n, HERE, n_classes=4, C=0.05, bias=bias, tol=1e-9)
    np.testing.assert_allclose(found.weight, W, atol=1e-4 * np.linalg.norm(W))
    assert found.dual <= value * (1 + 1e-9) <= found.primal * (1 + 2e-9)


@pytest.mark.parametrize("C", [1e-4, 1e-2, 1.0, 100.0])
@pytest.mark.parametrize("n", [2, 8])
def test_the_certificate_is_that_of_all_samples(n, C) -> None:
    found = solve_shards(X, Y, n, HERE, n_classes=4, C=C, tol=1e-6)
    lam = found.lam.toarray()
    assert found.status == "converged"
    assert (lam.sum(axis=1) == 0).all()
    assert (lam <= C * np.eye(4)[Y]).all()
    np.testing.assert_allclose(lam.T @ oracle.with_bias(X, True), found.weight, atol=1e-12 * (1 + C))
    primal, dual = oracle.primal(X, Y, found.weight, C, True), oracle.dual(X, Y, lam, True)
    assert found.gap == pytest.approx((primal - dual) / primal, abs=1e-9)
    assert found.gap <= 1e-6
    whole = solve(X, Y, C=C, tol=1e-6)
    # ½‖W − W*‖² is at most P(W) − P(W*), so that two gaps bound how far two W can be apart.
    apart = np.sqrt(2 * whole.gap * whole.primal) + np.sqrt(2 * found.gap * found.primal)
    assert np.linalg.norm(found.weight - whole.weight) <= apart


def test_rounds_alone_reach_a_gap_too(monkeypatch) -> None:
    rounds_alone(monkeypatch)
    seen: list[float] = []
    found = solve_shards(
        X, Y, 4, HERE, n_classes=4, C=1e-3, tol=1e-4, callback=lambda _, gap: seen.append(gap)
    )
    assert found.gap <= 1e-4
    assert found.n_iter == len(seen)
    assert found.gap == pytest.approx(
        1 - found.dual / oracle.primal(X, Y, found.weight, 1e-3, True), abs=1e-9
    )


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("at", [{2}, {7}, {9, 10, 11}, {18}, {4, 20}])
def test_a_shard_that_is_lost_costs_time_alone(at, together, monkeypatch) -> None:
    if not together:
        rounds_alone(monkeypatch)
    C, tol = (1e-2, 1e-7) if together else (1e-3, 1e-4)
    held: list[Losing] = []

    def hold(make, parts):
        held.append(Losing(make, parts, at))
        return held[0]

    found = solve_shards(X, Y, 3, hold, n_classes=4, C=C, tol=tol)
    undisturbed = solve_shards(X, Y, 3, HERE, n_classes=4, C=C, tol=tol)
    assert found.gap <= tol
    assert held[0].calls > max(at)
    apart = np.linalg.norm(found.weight - undisturbed.weight) / np.linalg.norm(undisturbed.weight)
    assert apart <= (1e-4 if together else np.sqrt(8 * tol))


def test_shards_that_are_lost_again_and_again_are_given_up() -> None:
    with pytest.raises(WorkerError, match=r"Shards \[.\] were lost 6 times in a row.*use more of them"):
        solve_shards(X, Y, 2, lambda make, parts: Losing(make, parts, set(range(3, 99))), n_classes=4, C=0.1)


def test_another_problem_is_solved_too() -> None:
    F, wanted = clouds(400, 6, 1.0)
    found = solve_shards(F, wanted, 3, HERE, problem=Hinge, n_classes=1, C=0.1, tol=1e-7)
    whole = solve(F, wanted, problem=Hinge, n_classes=1, C=0.1, tol=1e-7)
    np.testing.assert_allclose(found.weight, whole.weight, rtol=1e-3, atol=1e-4)
    assert found.gap <= 1e-7


def test_rows_of_a_map_are_sent_as_their_place(tmp_path: Path) -> None:
    np.save(tmp_path / "features.npy", X)
    rows = np.load(tmp_path / "features.npy", mmap_mode="r")
    where = Mapped.of(rows[100:250])
    np.testing.assert_array_equal(where.open(), X[100:250])
    assert Mapped.of(rows[::2]) is None
    assert Mapped.of(X) is None
    found = solve_shards(rows, Y, 2, HERE, n_classes=4, C=0.01)
    np.testing.assert_array_equal(found.weight, solve_shards(X, Y, 2, HERE, n_classes=4, C=0.01).weight)
    (tmp_path / "features.npy").unlink()
    with pytest.raises(InvalidInputError, match="'cache_dir' must be on storage that all machines"):
        where.open()


def test_a_start_and_a_limit_of_time() -> None:
    whole = solve(X, Y, C=0.01, tol=1e-7)
    again = solve_shards(X, Y, 2, HERE, n_classes=4, C=0.01, tol=1e-6, warm_start=whole.lam)
    assert again.n_iter == 0
    assert again.gap <= 1e-6
    smaller = solve_shards(X, Y, 2, HERE, n_classes=4, C=0.001, tol=1e-6, warm_start=whole.lam)
    assert smaller.gap <= 1e-6
    with pytest.warns(ConvergenceWarning, match=r"stopped \(time limit\)"):
        stopped = solve_shards(X, Y, 2, HERE, n_classes=4, C=0.01, tol=1e-9, max_seconds=1e-9)
    assert stopped.gap == pytest.approx(1 - stopped.dual / stopped.primal)


def test_features_that_are_wrong_are_told_of() -> None:
    bad = X.copy()
    bad[7, 3] = np.nan
    with pytest.raises(InvalidInputError, match="'features' must be finite"):
        solve_shards(bad, Y, 2, HERE, n_classes=4, C=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert solve_shards(X[:3], Y[:3], 9, HERE, n_classes=4, C=0.01).gap <= 1e-5
