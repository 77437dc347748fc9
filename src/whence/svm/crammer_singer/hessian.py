"""Newton systems (I + σ Σ_i P_i ⊗ f_i f_iᵀ) x = r, by the cheapest of three methods.

P_i is the projection onto the zero-sum vectors of the classes that sample i uses; only samples that use two
or more, the free ones, take part. A class that stands for n has one row in place of n equal ones: times √n,
its length and its products are theirs, and P_i projects off the vector of these roots in place of ones.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Floats, Ints
from whence.core.conjugate import conjugate_gradients
from whence.svm.crammer_singer import kernels
from whence.svm.pairs import Pairs, pointers
from whence.svm.passes import Rows, add_up

_STEPS = 10  # Newton steps that share one preconditioner
# Cost of reading one number, in operations of a matrix product: in a product with the Hessian, and in a
# division by the preconditioner.
_PRODUCT, _DIVISION = 16, 12
_MAX_CG = 150
_ROOM, _ROOM_SHARE = 1 << 24, 1 / 8  # maximum bytes of a matrix, or a share of the features'
_ROWS = 1024  # samples in float64 at a time
_PRODUCTS = 128  # rows of products of samples in memory at a time


def room(features: Floats) -> float:
    """Return the maximum size of a matrix of a Newton step for features (N, d)."""
    return max(_ROOM, _ROOM_SHARE * features.nbytes) / 8


def step_cost(
    n_free: float, n_pairs: float, shape: tuple[int, int], room: float, by_cg: float | None = None
) -> tuple[float, str]:
    """Return the operations of one Newton step by its cheapest method, and that method's name.

    ``n_pairs`` is the rank Σ (classes in use − 1) of the Hessian's data part, ``room`` how many numbers a
    matrix may have, ``by_cg`` what conjugate gradients cost last time.
    """
    # Conjugate gradients alone would not suffice. On 60,000 × 128 features of ten classes, to a gap of 1e-5
    # on one thread, they take 3.4 CPU seconds instead of 2.4 at C = 0.1 and 12.5 instead of 8.2 at C = 10; at
    # C = 1000 they are at 3e-3 after 86, where the three methods together finish in 26.
    K, D = shape
    costs = {"cg": min(_cg_cost(n_free + n_pairs, shape, room)) if by_cg is None else by_cg}
    if n_pairs**2 <= room:
        costs["gram"] = n_free**2 * D + n_pairs**3 / 3
    if room >= (K * D) ** 2 / 2:  # of which half is used
        costs["dense"] = 4 * n_pairs * D**2 + (K * D) ** 3 / 3
    method = min(costs, key=costs.__getitem__)
    return costs[method], method


def _cg_cost(n_used: float, shape: tuple[int, int], room: float) -> tuple[float, float]:
    """Return the operations of one Newton step by conjugate gradients, plain and preconditioned.

    Some ninety products with the Hessian are needed, or fifteen with a preconditioner, which a few steps
    share, and for which there may be no room.
    """
    K, D = shape
    plain, divided = (_iteration_cost(n_used, shape, conditioned) for conditioned in (False, True))
    conditioned = 15 * divided + _build_cost(n_used, shape) / _STEPS
    return 90 * plain, conditioned if room >= K * D**2 else np.inf


def _iteration_cost(n_used: float, shape: tuple[int, int], conditioned: bool) -> float:
    """Return the operations of one iteration of conjugate gradients."""
    K, D = shape
    return _PRODUCT * n_used * D + (_DIVISION * K * D**2 if conditioned else 0.0)


def _build_cost(n_used: float, shape: tuple[int, int]) -> float:
    """Return the operations of building the preconditioner."""
    K, D = shape
    return 2 * n_used * D**2 + K * D**3


class Split(NamedTuple):
    """Samples with several active classes: places[ptr[o]:ptr[o + 1]] of W are those of sample rows[o]."""

    rows: Ints  # (n,)
    ptr: Ints  # (n + 1,)
    places: npt.NDArray[np.int32]  # (P,)

    @property
    def counts(self) -> Ints:
        """The number of active classes of each sample, (n,)."""
        return np.diff(self.ptr)

    def sums(self, values: Doubles) -> Doubles:
        """Sum one value per class (U,) over the classes of each sample, (n,)."""
        return np.asarray(np.add.reduceat(values[self.places], self.ptr[:-1]))

    def by_class(self, n_classes: int) -> list[Ints]:
        """Return the indices into ``rows`` of the samples that use each class, ascending."""
        order = np.argsort(self.places, kind="stable")
        owners = np.repeat(np.arange(len(self.rows)), self.counts)[order]
        return np.split(owners, np.cumsum(np.bincount(self.places, minlength=n_classes))[:-1])


def split(rows: Rows, a: Doubles) -> Split:
    """Return the samples with more than one a (P,) above 0."""
    used = a > 0
    counts = np.add.reduceat(used, rows.pairs.ptr[:-1], dtype=np.int64)
    free = counts > 1
    used &= rows.pairs.spread(free)
    return Split(rows.pairs.rows[free], pointers(counts[free]), rows.place[used])


class NewtonSystem:
    """Solves the systems of one phase of Newton steps over ``rows``.

    ``times`` (U,) is how many classes each one in use stands for.
    """

    def __init__(self, rows: Rows, times: Doubles) -> None:
        self.rows, self.times = rows, times
        self.roots, self.room = np.sqrt(times), room(rows.problem.features)
        self.cost: float | None = None  # operations of the last solve by conjugate gradients
        self.blocks: BlockInverses | None = None

    def solve(self, a: Doubles, sigma: float, residual: Doubles, accuracy: float) -> Doubles:
        """Solve for a residual (U, D), where a (P,) is above 0 for the classes of a row."""
        free = split(self.rows, a)
        n = len(free.rows)
        if n == 0:
            return residual
        _, method = step_cost(n, len(free.places) - n, self.rows.shape, self.room, self.cost)
        roots = self.roots[:, None]
        if method != "cg":
            direct = by_gram if method == "gram" else by_dense
            try:
                return direct(self.rows, free, self.roots, sigma, residual * roots) / roots
            except LinAlgError:  # σ is too large for float64; conjugate gradients need no factor
                pass
        return self.by_cg(free, sigma, residual * roots, accuracy) / roots

    def by_cg(self, free: Split, sigma: float, residual: Doubles, accuracy: float) -> Doubles:
        """Solve by conjugate gradients, whose products touch only classes in use."""
        self._condition(free, sigma)
        blocks = self.blocks
        product = self._product(free, sigma)
        each = _iteration_cost(len(free.places), self.rows.shape, blocks is not None)
        self.cost = 0.0

        def counted(V: Doubles) -> Doubles:
            self.cost = (self.cost or 0.0) + each
            return product(V)

        # The Hessian is the identity on a shift common to all classes.
        shift = _shift(residual, self.roots)
        # Exact in as many steps as there are unknowns; beyond that only rounding remains.
        x: Doubles
        x, _ = conjugate_gradients(
            counted, residual - shift, (lambda r: r) if blocks is None else blocks.divide, np.vdot,
            tol=accuracy, steps=min(_MAX_CG, 3 * residual.size), of_residual=True,
        )  # fmt: skip
        return x + shift

    def _condition(self, free: Split, sigma: float) -> None:
        """Build the preconditioner if it pays, unless the present one was built for a similar σ."""
        shape, n_used = self.rows.shape, len(free.places)
        plain, preconditioned = _cg_cost(n_used, shape, self.room)
        if preconditioned >= plain:
            return
        stale = (self.cost or 0.0) > _build_cost(n_used, shape)
        if self.blocks is None or sigma > 30.0 * self.blocks.sigma or stale:
            self.blocks = None  # there is memory for one
            with suppress(LinAlgError):
                self.blocks = BlockInverses(self.rows, self.times, free, sigma)

    def _product(self, free: Split, sigma: float) -> Callable[[Doubles], Doubles]:
        problem, parallel = self.rows.problem, self.rows.parallel
        parts = list(pairwise(np.linspace(0, len(free.rows), parallel.threads + 1).astype(int).tolist()))
        projected = np.empty(len(free.places))

        def product(V: Doubles) -> Doubles:
            def project(span: tuple[int, int]) -> None:
                start, stop = span
                kernels.project_classes(
                    problem.features, free.rows[start:stop], free.ptr[start : stop + 1], free.places,
                    self.roots, problem.bias, V, projected,
                )  # fmt: skip

            parallel(project, parts)
            image = add_up(problem, Pairs(*free), projected, V.shape, parallel)
            image *= sigma
            image += V
            return image

        return product


class BlockInverses:
    """Inverses of the Hessian's diagonal blocks, one per class, as a preconditioner.

    The classes' coupling is to the diagonal as a graph's edges are to its degrees: well conditioned once the
    diagonal is divided out. In single precision a direction that all features share, such as a common offset,
    would leave the inverses indefinite. They are I + σ Σ_i (1 − n_c/m_i) f_i f_iᵀ over the samples that use
    class c, which stands for n_c; m_i is the number of classes that sample i uses.
    """

    def __init__(self, rows: Rows, times: Doubles, free: Split, sigma: float) -> None:
        K, D = rows.shape
        m, users = free.sums(times), free.by_class(K)
        self.sigma, self.roots, self.inverses = sigma, np.sqrt(times), np.empty((K, D, D))

        def one(c: int) -> None:
            H = np.eye(D)
            mine = users[c]
            for start in range(0, len(mine), _ROWS):
                chunk = mine[start : start + _ROWS]
                F = rows.block(free.rows[chunk])
                weight = sigma * (1.0 - times[c] / m[chunk])
                H += (F * weight[:, None]).T @ F
            self.inverses[c] = cholesky_solve(H, np.eye(D))

        rows.parallel(one, range(K))

    def divide(self, V: Doubles) -> Doubles:
        """Divide V (K, D), without its common shift, by the blocks, and centre it again.

        The Hessian is the identity on a shift common to all classes, unlike the blocks.
        """
        quotient: Doubles = np.matmul(self.inverses, V[:, :, None])[:, :, 0]
        return quotient - _shift(quotient, self.roots)


def _shift(V: Doubles, roots: Doubles) -> Doubles:
    """Return the part of V (K, D) that is common to all classes."""
    return np.outer(roots, roots @ V / (roots @ roots))


def by_gram(rows: Rows, free: Split, roots: Doubles, sigma: float, residual: Doubles) -> Doubles:
    """Solve by Woodbury's identity: a system of the size of the data part's rank."""
    at, ptr, places, values = zero_sum_bases(free, roots)
    F = rows.block(free.rows)
    n = len(at)
    gram = np.zeros((n, n))
    for start in range(0, n, _PRODUCTS):  # in parts, so that only one matrix of this size is in memory
        part = slice(start, start + _PRODUCTS)
        kernels.multiply_bases(F[at[part]] @ F.T, start, at, ptr, places, values, gram[part])
    gram[np.diag_indices(n)] += 1.0 / sigma
    basis = csr_array((values, places, ptr), shape=(n, len(residual)))
    each: Doubles = F[at]
    right: Doubles = np.asarray(each * (basis @ residual)).sum(axis=1)
    return np.asarray(residual - basis.T @ (each * cholesky_solve(gram, right)[:, None]))


def by_dense(rows: Rows, free: Split, roots: Doubles, sigma: float, residual: Doubles) -> Doubles:
    """Build the full Hessian, (K·D) × (K·D)."""
    K, D = residual.shape
    H = np.zeros((K, D, K, D))
    share, users = sigma / free.sums(roots**2), free.by_class(K)
    for c in range(K):
        mine = np.zeros(len(free.rows), bool)
        mine[users[c]] = True
        for e in range(c, K):
            both = users[e][mine[users[e]]]
            block = H[e, :, c, :]  # the lower half is enough
            for start in range(0, len(both), _ROWS):
                chunk = both[start : start + _ROWS]
                F = rows.block(free.rows[chunk])
                weight = (sigma if c == e else 0.0) - roots[c] * roots[e] * share[chunk]
                block += (F * weight[:, None]).T @ F
    matrix = H.reshape(K * D, K * D)
    matrix[np.diag_indices(K * D)] += 1.0
    return cholesky_solve(matrix, residual.ravel()).reshape(K, D)


def zero_sum_bases(free: Split, roots: Doubles) -> tuple[Ints, Ints, npt.NDArray[np.int32], Doubles]:
    """Return orthonormal (Helmert) bases of the complement of ``roots`` on each sample's classes.

    Only the last root may be other than 1. Returns the place in ``free.rows`` of each vector, and the vectors
    in compressed rows: where they begin, their classes and their values.
    """
    counts = free.counts
    sorted_places = free.places[np.lexsort((free.places, np.repeat(np.arange(len(counts)), counts)))]
    rank = counts - 1
    at = np.repeat(np.arange(len(counts)), rank)
    order = np.arange(len(at)) - np.repeat(np.cumsum(rank) - rank, rank) + 1  # 1 … rank within a sample
    ptr = pointers(order + 1)
    within = np.arange(ptr[-1]) - np.repeat(ptr[:-1], order + 1)  # 0 … order
    places = sorted_places[np.repeat(free.ptr[at], order + 1) + within]
    values = np.ones(ptr[-1])
    end = -order / roots[places[ptr[1:] - 1]]
    values[ptr[1:] - 1] = end
    values /= np.repeat(np.sqrt(order + end**2), order + 1)
    return at, ptr, places, values


def cholesky_solve(matrix: Doubles, right: Doubles) -> Doubles:
    """Solve a positive definite system with the matrix's lower half, which is overwritten."""
    # LAPACK is column-major: passing the transpose avoids a copy.
    factor = cho_factor(matrix.T, lower=False, overwrite_a=True, check_finite=False)
    return cho_solve(factor, right, check_finite=False)
