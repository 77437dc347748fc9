"""The parts of the Newton method against their closed matrix forms."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.sparse import csr_array

from whence.core.conjugate import conjugate_gradients
from whence.svm import CrammerSinger
from whence.svm.ascent import Ascent
from whence.svm.crammer_singer import hessian, kernels
from whence.svm.pairs import Pairs, pointers
from whence.svm.passes import Parallel, Rows


def listed(problem, rows, a):
    """Rows with all that is above 0 in a (n, K), and that in compressed rows."""
    at, outputs = np.nonzero(a)
    pairs = Pairs(rows, pointers(np.bincount(at, minlength=len(rows))), outputs)
    return Rows(problem, pairs, Parallel()), a[at, outputs]


@pytest.fixture(params=[1, 6])
def part(request):
    """Some rows of a problem whose last class stands for one class, or for several."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    problem = CrammerSinger.make(X, rng.integers(0, 4, 30), 5, 1.0, True)
    problem = replace(problem, multiplicity=request.param)
    rows = np.arange(3, 25)
    a = rng.random((len(rows), 5)) * (rng.random((len(rows), 5)) < 0.6)
    a[:, 0] += 0.1
    return problem, rows, a


def test_the_three_ways_to_a_newton_step_agree_with_the_matrix_of_all_classes(part, monkeypatch):
    problem, places, a = part
    rows, values = listed(problem, places, a)
    residual = np.random.default_rng(1).normal(size=problem.shape)
    each = np.repeat(np.arange(5), problem.times.astype(int))
    F = np.hstack([problem.features[places], np.ones((len(a), 1))])
    H = np.eye(residual[each].size)
    for f, row in zip(F, a[:, each], strict=True):
        used = row > 0
        P = np.diag(used.astype(float)) - np.outer(used, used) / used.sum()
        H += 3.0 * np.kron(P, np.outer(f, f))
    want = np.linalg.solve(H, residual[each].ravel()).reshape(len(each), -1)
    free = hessian.split(rows, values)
    system = problem.system(rows)
    roots = np.sqrt(problem.times)
    scaled = residual * roots[:, None]
    with monkeypatch.context() as patched:
        patched.setattr(hessian, "_cg_cost", lambda *_: (0.0, 1.0))  # so that none pays
        plain = system.by_cg(free, 3.0, scaled, 1e-12)
    assert system.blocks is None
    conditioned = system.by_cg(free, 3.0, scaled, 1e-12)
    assert system.blocks is not None
    ways = (hessian.by_gram, hessian.by_dense)
    for got in (plain, conditioned, *(way(rows, free, roots, 3.0, scaled) for way in ways)):
        np.testing.assert_allclose((got / roots[:, None])[each], want, atol=1e-10)
    np.testing.assert_allclose(system.solve(values, 3.0, residual, 1e-12)[each], want, atol=1e-10)


def test_conjugate_gradients_reach_the_step_of_features_with_a_common_offset():
    rng = np.random.default_rng(0)
    K, sigma = 4, 10.0
    X = 0.02 * rng.normal(size=(400, 16)) + 100.0
    problem = CrammerSinger.make(X, rng.integers(0, K, 400), K, 1.0, 400.0)
    used = rng.random((400, K)) < 0.6
    used[:, :2] = True
    residual = rng.normal(size=problem.shape)
    H = np.eye(residual.size)
    for f, classes in zip(np.hstack([X, np.full((400, 1), 400.0)]), used, strict=True):
        P = np.diag(classes.astype(float)) - np.outer(classes, classes) / classes.sum()
        H += sigma * np.kron(P, np.outer(f, f))
    want = np.linalg.solve(H, residual.ravel()).reshape(residual.shape)
    rows, values = listed(problem, np.arange(400), used.astype(float))
    system = problem.system(rows)
    got = system.by_cg(hessian.split(rows, values), sigma, residual, 1e-6)
    assert system.blocks is not None
    error = (got - want).ravel()
    assert error @ H @ error <= 1e-6 * (want.ravel() @ H @ want.ravel())


def test_zero_sum_bases_are_orthonormal_and_complete(part):
    problem, places, a = part
    roots = np.sqrt(problem.times)
    at, ptr, classes, values = hessian.zero_sum_bases(hessian.split(*listed(problem, places, a)), roots)
    basis = csr_array((values, classes, ptr), shape=(len(at), 5)).toarray()
    for i, row in enumerate(a[(a > 0).sum(axis=1) > 1] > 0):
        mine = basis[at == i]
        P = np.diag(row.astype(float)) - np.outer(row * roots, row * roots) / (row @ problem.times)
        np.testing.assert_allclose(mine.T @ mine, P, atol=1e-12)
        np.testing.assert_allclose(mine @ mine.T, np.eye(len(mine)), atol=1e-12)


@pytest.mark.parametrize("few", [True, False])
def test_products_over_pairs_are_those_of_whole_matrices(few):
    rng = np.random.default_rng(0)
    problem = CrammerSinger.make(rng.normal(size=(300, 7)), rng.integers(0, 40, 300), 40, 1.0, 2.0)
    a = rng.random((200, 40)) * (rng.random((200, 40)) < (0.05 if few else 0.5))
    a[:, 3], a[:, 11] = 1.0, 0.0
    places = np.sort(rng.permutation(300)[:200])
    rows, values = listed(problem, places, a)
    F = np.hstack([problem.features[places], np.full((200, 1), 2.0)])
    assert 11 not in rows.used
    np.testing.assert_allclose(rows.combine(values), (a.T @ F)[rows.used], atol=1e-12)
    W = rng.normal(size=(40, 8))
    np.testing.assert_allclose(rows.scores(W[rows.used]), (F @ W.T)[a > 0], atol=1e-12)


@pytest.mark.parametrize("n", [1, 40])
def test_projection_onto_the_simplex(n):
    rng = np.random.default_rng(2)
    V = rng.normal(size=(200, 7)) * rng.choice([0.01, 1.0, 100.0], (200, 1))
    times = np.array([1.0] * 6 + [n])
    out = np.empty(V.size)
    flat, ptr, classes = V.ravel(), 7 * np.arange(201), np.tile(np.arange(7), 200)
    kernels.project_rows(flat, 0.0, flat, 0.0, flat, ptr, classes, times, 2.5, out)
    for v, got in zip(V, out.reshape(V.shape), strict=True):
        theta = brentq(lambda t, v=v: np.maximum(v - t, 0) @ times - 2.5, v.min() - 3, v.max(), xtol=1e-14)
        np.testing.assert_allclose(got, np.maximum(v - theta, 0), atol=1e-10)


@pytest.mark.parametrize(
    ("free", "pairs", "shape", "method"),
    [(50, 60, (10, 2049), "gram"), (9000, 12000, (10, 65), "dense"), (9000, 12000, (50, 2049), "cg")],
)
def test_the_cheapest_way_is_taken(free, pairs, shape, method):
    assert hessian.step_cost(free, pairs, shape, 2**21)[1] == method
    assert hessian.step_cost(free, pairs, shape, 100)[1] == "cg"  # where a matrix has no room


def test_one_round_in_which_the_gap_rises_is_no_reason_for_newton_steps(monkeypatch):
    problem = CrammerSinger.make(np.eye(3), np.arange(3), 3, 1.0, True)
    gaps = iter([2.7e-3, 4.7e-4, 2.5e-5, 1.3e-4, 5e-6])  # 30,000 × 2,048 features of 50 classes at C = 0.1

    def descend(self, tol):
        self.gap = next(gaps)
        return 1.0, 40.0  # a Newton phase costs as much as forty rounds

    def newton(self, tol, spread):
        raise AssertionError("Newton steps were taken")

    monkeypatch.setattr(Ascent, "descend", descend)
    monkeypatch.setattr(Ascent, "newton", newton)
    ascent = Ascent(problem, 0, Parallel(), np.inf)
    assert len(list(ascent.rounds(1e-5))) == 5


def test_the_preconditioner_is_built_only_where_dividing_by_it_pays():
    rng = np.random.default_rng(0)
    K, D = 30, 40
    problem = CrammerSinger.make(rng.normal(size=(60, D)), rng.integers(0, K, 60), K, 1.0, False)
    used = np.eye(K)[np.arange(60) % K]
    used[:, :2] = 1.0
    rows, values = listed(problem, np.arange(60), used)
    system = problem.system(rows)
    # An iteration reads 60·3·40 numbers of features, and 30·40² of the preconditioner: seven times as many.
    system.by_cg(hessian.split(rows, values), 1.0, rng.normal(size=problem.shape), 1e-6)
    assert system.blocks is None


def test_conjugate_gradients_solve_several_systems_of_torch_as_one_of_numpy():
    rng = np.random.default_rng(0)
    A, diagonal = rng.normal(size=(3, 6, 6)), np.logspace(0, 3, 6)
    A = A @ A.transpose(0, 2, 1) + np.diag(diagonal)
    right = rng.normal(size=(3, 6))
    right[1] = 0.0
    matrices = torch.from_numpy(A)
    found, solved = conjugate_gradients(
        lambda v: (matrices @ v[:, :, None])[:, :, 0],
        torch.from_numpy(right),
        lambda v: v / torch.from_numpy(diagonal),
        lambda a, b: (a * b).sum(1, keepdim=True),
        tol=1e-12,
        steps=50,
    )
    assert solved.all()
    np.testing.assert_allclose(found, np.linalg.solve(A, right[:, :, None])[:, :, 0], atol=1e-10)
    for of_residual in (False, True):
        options = {"tol": 1e-12, "steps": 50, "of_residual": of_residual}
        alone, done = conjugate_gradients(
            A[2].__matmul__, right[2], lambda v: v / diagonal, np.vdot, **options
        )
        assert done
        np.testing.assert_allclose(alone, found[2], atol=1e-10)
    _, done = conjugate_gradients(A[2].__matmul__, right[2], lambda v: v, np.vdot, tol=1e-12, steps=2)
    assert not done
