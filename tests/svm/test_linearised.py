"""How a solution changes with its samples, against solutions without them and with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.sparse import csr_array

from whence.svm import solve
from whence.svm.linearised import Linearised, activity, constraints_of

N, K = 40, 3


@dataclass(frozen=True)
class Known:
    """A solved problem: features with the constant, labels, λ (N, K), W (K, D); some more samples."""

    C: float
    X: np.ndarray
    y: np.ndarray
    more: tuple[np.ndarray, np.ndarray]

    def solve(self, X: np.ndarray, y: np.ndarray) -> tuple[csr_array, np.ndarray]:
        lam = solve(X, y, n_classes=K, C=self.C, bias=False, tol=1e-10).lam
        return lam, lam.T @ X

    def __post_init__(self) -> None:
        lam, W = self.solve(self.X, self.y)
        everyone = np.ones(len(self.y), dtype=bool)
        linear = Linearised.of(self.X, self.y, lam, self.C, everyone, entering=False)
        self.__dict__.update(lam=lam, W=W, linear=linear)

    def change(self, *given) -> np.ndarray:
        return self.linear.change(self.X, self.W, self.C, *(np.array(one) for one in given))

    def holds(self, lam: csr_array, rows: np.ndarray) -> bool:
        """Whether the active set of some samples is the same in another solution of theirs."""
        pair = (activity(one, self.y[rows], self.C).toarray() for one in (self.lam[rows], lam))
        return np.array_equal(*pair)

    def without(self, gone: list[int]) -> tuple[np.ndarray, bool]:
        """W solved again without some samples, and whether the others' active set held."""
        keep = np.setdiff1d(np.arange(N), gone)
        lam, W = self.solve(self.X[keep], self.y[keep])
        return W, self.holds(lam, keep)

    def freed(self, u: np.ndarray, gone: list[int]) -> np.ndarray:
        """u (K, D) less its projection onto the constraints of all but some samples, by least squares."""
        V = []
        for i, plus, minus in zip(*self.linear.constraints, strict=True):
            if i not in gone:
                V.append(np.kron(np.eye(K)[plus] - np.eye(K)[minus], self.X[i]))
        V = np.array(V)
        return (u.ravel() - V.T @ np.linalg.lstsq(V.T, u.ravel())[0]).reshape(u.shape)


def make(C: float, d: int = 300) -> Known:
    """Solve classes in many dimensions, where samples move each other so little that active sets can hold."""
    rng = np.random.default_rng(0)

    def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, K, n)
        return np.c_[np.eye(K, d)[y] * 4 + rng.normal(size=(n, d)), np.ones(n)] / np.sqrt(d), y

    return Known(C, *drawn(N), drawn(20))


@pytest.fixture(scope="module")
def bounded() -> Known:
    return make(0.2)


@pytest.fixture(scope="module")
def mixed() -> Known:
    return make(0.4, d=100)


@pytest.fixture(scope="module")
def free() -> Known:
    return make(1.0)


@pytest.mark.parametrize("name", ["bounded", "mixed", "free"])
def test_constraints_are_those_of_the_optimality_conditions(name, request):
    known = request.getfixturevalue(name)
    held = constraints_of(known.lam, known.y, known.C)
    scores, expected = known.X @ known.W.T, set()
    for i, y in enumerate(known.y.tolist()):
        behind = scores[i] + (np.arange(K) != y)
        top = np.flatnonzero(behind > behind.max() - 1e-4).tolist()
        # At a margin of exactly 1 the label ties with rivals; with a loss, the worst rivals may tie.
        first = y if y in top else top[0]
        expected |= {(i, frozenset((first, c))) for c in top if c != first}
    assert {(i, frozenset(pair)) for i, *pair in np.array(held).T.tolist()} == expected
    state = activity(known.lam, known.y, known.C).toarray()[np.arange(N), known.y]
    assert set(state) == {"bounded": {2}, "mixed": {0, 1, 2}, "free": {1}}[name]


@pytest.mark.parametrize("name", ["bounded", "mixed", "free"])
def test_samples_leave_by_a_projection_alone_and_together(name, request):
    known = request.getfixturevalue(name)
    for gone in ([0], [1], [2], [7, 1, 30], list(range(20))):
        u = known.lam[gone].T @ known.X[gone]
        np.testing.assert_allclose(known.change(gone), -known.freed(u, gone), atol=1e-6 * np.abs(u).max())


@pytest.mark.parametrize(("name", "least"), [("bounded", 5), ("mixed", 2), ("free", 15)])
def test_first_order_is_leaving_one_out_where_the_active_set_holds(name, least, request):
    known = request.getfixturevalue(name)
    held = []
    for i in np.flatnonzero(np.diff(known.lam.indptr)).tolist():
        W, holds = known.without([i])
        if holds:
            held.append(i)
            change = W - known.W
            np.testing.assert_allclose(known.change([i]), change, atol=1e-5 * np.abs(change).max())
    assert len(held) >= least


def test_a_sample_without_a_coefficient_leaves_no_trace(mixed):
    none = np.flatnonzero(np.diff(mixed.lam.indptr) == 0).tolist()
    assert none
    assert not mixed.change(none).any()
    np.testing.assert_allclose(mixed.without(none)[0], mixed.W, atol=1e-6)


def test_a_group_leaves_exactly_where_the_active_set_holds(free):
    alone = [i for i in range(N) if free.without([i])[1]]
    pairs = list(zip(alone[::2], alone[1::2], strict=False))
    held = [pair for pair in map(list, pairs) if free.without(pair)[1]]
    assert len(held) >= 2
    for pair in held:
        change = free.without(pair)[0] - free.W
        np.testing.assert_allclose(free.change(pair), change, atol=1e-5 * np.abs(change).max())
        # Together they are missed otherwise than one by one: each had made up for the other.
        apart = sum(free.change([i]) for i in pair)
        assert np.abs(apart - change).max() > 1e-3 * np.abs(change).max()


def enter(known: Known):
    """Give what each further sample would do, and λ and W that were solved with it."""
    X, y = np.r_[known.X, known.more[0]], np.r_[known.y, known.more[1]]
    lam = csr_array(known.lam)
    lam.resize(len(y), K)
    linear = Linearised.of(X, y, lam, known.C, np.arange(len(y)) < N, entering=True)
    for i in range(N, len(y)):
        rows, nobody, who = np.r_[:N, i], np.empty(0, int), np.array([i])
        change = linear.change(X, known.W, known.C, nobody, who, y[who])
        yield linear.moves[[i]].toarray()[0], change, *known.solve(X[rows], y[rows])


def test_a_sample_enters_as_if_it_had_been_there(free):
    n_held = 0
    for move, change, lam, W in enter(free):
        if free.holds(lam[:N], np.arange(N)) and lam[[N]].nnz == 2:  # one rival
            n_held += 1
            np.testing.assert_allclose(move, lam[[N]].toarray()[0], rtol=1e-4)
            np.testing.assert_allclose(change, W - free.W, atol=1e-5 * np.abs(change).max())
    assert n_held >= 2


def test_no_sample_enters_with_more_than_the_bound(bounded):
    for move, _, lam, _ in enter(bounded):
        assert move.max() == pytest.approx(lam[[N]].toarray().max()) == bounded.C
