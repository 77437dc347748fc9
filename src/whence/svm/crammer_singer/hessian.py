"""Newton systems (I + σ Σ_i P_i ⊗ f_i f_iᵀ) x = r, by whichever of three methods is cheapest.

P_i is the projection onto the zero-sum vectors of the classes that sample i uses; only samples that use two
or more, the free ones, take part. A class that stands for n has one row in place of n equal ones: times √n,
its length and its products are theirs, and P_i projects off the vector of these roots in place of ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from whence.core.arrays import Doubles, Ints, Mask
from whence.svm.crammer_singer import kernels
from whence.svm.passes import Rows, in_eight

_STEPS = 10  # Newton steps that share one preconditioner
# Costs of reading one number, in operations of a matrix product: in a product with the Hessian, and in a
# division by the preconditioner.
_PRODUCT, _DIVISION = 16, 12
_MAX_CG = 150


def step_cost(
    n_free: float, n_pairs: float, shape: tuple[int, int], by_cg: float | None = None
) -> tuple[float, str]:
    """Floating point operations of one Newton step by its cheapest method, and that method's name.

    ``n_pairs`` is the rank Σ (classes in use − 1) of the Hessian's data part, ``by_cg`` what conjugate
    gradients cost last time.
    """
    # Conjugate gradients alone would not do. On 60,000 × 128 features of ten classes, to a gap of 1e-5 on one
    # thread, they take 3.4 CPU seconds for 2.4 at C = 0.1 and 12.5 for 8.2 at C = 10; at C = 1000 they are at
    # 3e-3 after 86, where the three ways together are done in 26.
    K, D = shape
    costs = {
        "gram": n_free**2 * D + n_pairs**3 / 3,
        "dense": 4 * n_pairs * D**2 + (K * D) ** 3 / 3,
        "cg": min(_cg_cost(n_free + n_pairs, shape)) if by_cg is None else by_cg,
    }
    method = min(costs, key=costs.__getitem__)
    return costs[method], method


def _cg_cost(n_used: float, shape: tuple[int, int]) -> tuple[float, float]:
    """Operations of one Newton step by conjugate gradients, plain and preconditioned.

    Some ninety products with the Hessian are needed, or fifteen with a preconditioner, which a few steps
    share.
    """
    plain, divided = (_iteration_cost(n_used, shape, conditioned) for conditioned in (False, True))
    return 90 * plain, 15 * divided + _build_cost(n_used, shape) / _STEPS


def _iteration_cost(n_used: float, shape: tuple[int, int], conditioned: bool) -> float:
    """Operations of one iteration of conjugate gradients."""
    K, D = shape
    return _PRODUCT * n_used * D + (_DIVISION * K * D**2 if conditioned else 0.0)


def _build_cost(n_used: float, shape: tuple[int, int]) -> float:
    """Operations of building the preconditioner."""
    K, D = shape
    return 2 * n_used * D**2 + K * D**3


class NewtonSystem:
    """Solves the systems of one phase of Newton steps over ``rows``."""

    def __init__(self, rows: Rows, times: Doubles) -> None:
        self.rows, self.times = rows, times
        self.roots = np.sqrt(times)
        self.cost: float | None = None  # of the last solve by conjugate gradients, in operations
        self.blocks: BlockInverses | None = None

    def solve(self, a: Doubles, sigma: float, residual: Doubles, accuracy: float) -> Doubles:
        """Solve for a residual (K, D), where a (n, K) is above 0 for the classes that a row uses."""
        used = a > 0
        counts = used.sum(axis=1)
        free = np.flatnonzero(counts > 1)
        if len(free) == 0:
            return residual
        used = used[free]
        n_pairs = int((counts[free] - 1).sum())
        _, method = step_cost(len(free), n_pairs, self.rows.problem.shape, self.cost)
        roots = self.roots[:, None]
        if method != "cg":
            F = self.rows.block(self.rows.rows[free])
            direct = by_gram if method == "gram" else by_dense
            try:
                return direct(F, used, self.roots, sigma, residual * roots) / roots
            except LinAlgError:  # σ is past what float64 factorises; conjugate gradients need no factor
                pass
        return self.by_cg(free, used, sigma, residual * roots, accuracy) / roots

    def by_cg(self, free: Ints, used: Mask, sigma: float, residual: Doubles, accuracy: float) -> Doubles:
        """Conjugate gradients, whose products touch only the classes in use."""
        self._condition(free, used, sigma)
        blocks = self.blocks
        # On a shift common to all classes the Hessian is the identity.
        shift = _shift(residual, self.roots)
        x = np.zeros_like(residual)
        r = residual - shift
        z = direction = r if blocks is None else blocks.divide(r)
        rz = float(np.vdot(r, z))
        enough = accuracy**2 * float(np.vdot(r, r))
        product = self._product(free, used, sigma)
        each = _iteration_cost(int(used.sum()), self.rows.problem.shape, blocks is not None)
        self.cost = 0.0
        # Exact in as many steps as there are unknowns; well beyond that only rounding is left.
        for _ in range(min(_MAX_CG, 3 * residual.size)):
            self.cost += each
            image = product(direction)
            curvature = float(np.vdot(direction, image))
            if not (0.0 < rz < np.inf and 0.0 < curvature < np.inf):  # the end of float64
                break
            length = rz / curvature
            x += length * direction
            r = r - length * image
            if float(np.vdot(r, r)) <= enough:
                break
            z = r if blocks is None else blocks.divide(r)
            new = float(np.vdot(r, z))
            direction = z + (new / rz) * direction
            rz = new
        x += shift
        return x

    def _condition(self, free: Ints, used: Mask, sigma: float) -> None:
        """Build the preconditioner where it pays, unless the one at hand was built for a similar σ."""
        shape, n_used = self.rows.problem.shape, int(used.sum())
        plain, preconditioned = _cg_cost(n_used, shape)
        if preconditioned >= plain:
            return
        stale = (self.cost or 0.0) > _build_cost(n_used, shape)
        if self.blocks is None or sigma > 30.0 * self.blocks.sigma or stale:
            try:
                self.blocks = BlockInverses(self.rows, self.times, free, used, sigma)
            except LinAlgError:
                self.blocks = None

    def _product(self, free: Ints, used: Mask, sigma: float) -> Callable[[Doubles], Doubles]:
        problem, parallel = self.rows.problem, self.rows.parallel
        rows = self.rows.rows[free]
        ptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int32)
        classes = np.nonzero(used)[1].astype(np.int16 if problem.n_outputs < 2**15 else np.int32)

        def product(V: Doubles) -> Doubles:
            def add(span: slice, out: Doubles) -> None:
                kernels.hessian_product(
                    problem.features, rows[span], ptr[span.start : span.stop + 1], classes, self.roots,
                    problem.bias, V, out,
                )  # fmt: skip

            return V + sigma * in_eight(len(rows), V.shape, add, parallel)

        return product


class BlockInverses:
    """Inverses of the Hessian's diagonal blocks, one per class, as a preconditioner.

    The classes' coupling is to the diagonal as a graph's edges are to its degrees: well conditioned once the
    diagonal is divided out. In single precision a direction that all features share, such as a common offset,
    would leave the inverses indefinite. They are I + σ Σ_i (1 − n_c/m_i) f_i f_iᵀ over the samples that use
    class c, which stands for n_c; m_i is the number of classes that sample i uses.
    """

    def __init__(self, rows: Rows, times: Doubles, free: Ints, used: Mask, sigma: float) -> None:
        K, D = rows.problem.shape
        m = used @ times
        self.sigma, self.roots, self.inverses = sigma, np.sqrt(times), np.empty((K, D, D))

        def one(c: int) -> None:
            H = np.eye(D)
            mine = np.flatnonzero(used[:, c])
            for start in range(0, len(mine), 1024):
                some = mine[start : start + 1024]
                F = rows.block(rows.rows[free[some]])
                weight = sigma * (1.0 - times[c] / m[some])
                H += (F * weight[:, None]).T @ F
            self.inverses[c] = cholesky_solve(H, np.eye(D))

        rows.parallel(one, range(K))

    def divide(self, V: Doubles) -> Doubles:
        """V (K, D), without a common shift, divided by the blocks and centred again.

        The Hessian leaves a shift common to all classes as it is, where the blocks are far from it.
        """
        quotient: Doubles = np.matmul(self.inverses, V[:, :, None])[:, :, 0]
        return quotient - _shift(quotient, self.roots)


def _shift(V: Doubles, roots: Doubles) -> Doubles:
    """The part of V (K, D) that is common to all classes."""
    return np.outer(roots, roots @ V / (roots @ roots))


def by_gram(F: Doubles, used: Mask, roots: Doubles, sigma: float, residual: Doubles) -> Doubles:
    """Woodbury's identity: a system of the size of the data part's rank."""
    basis, at = zero_sum_bases(used, roots)
    products = F @ F.T
    gram = np.empty((len(at), len(at)))
    for start in range(0, len(at), 256):  # by parts, so that only one matrix of this size is ever held
        some = slice(start, start + 256)
        gram[some] = products[at[some]][:, at]
        gram[some] *= basis[some] @ basis.T
    gram[np.diag_indices(len(at))] += 1.0 / sigma
    right = np.einsum("rk,rk->r", (F @ residual.T)[at], basis)
    combined = np.zeros(used.shape)
    np.add.at(combined, at, basis * cholesky_solve(gram, right)[:, None])
    return residual - combined.T @ F


def by_dense(F: Doubles, used: Mask, roots: Doubles, sigma: float, residual: Doubles) -> Doubles:
    """The whole Hessian, (K·D) × (K·D)."""
    K, D = residual.shape
    H = np.zeros((K, D, K, D))
    share = sigma / (used @ roots**2)
    for c in range(K):
        for e in range(c, K):
            both = np.flatnonzero(used[:, c] & used[:, e])
            weight = (sigma if c == e else 0.0) - roots[c] * roots[e] * share[both]
            block = (F[both] * weight[:, None]).T @ F[both]
            H[c, :, e, :] = block
            H[e, :, c, :] = block
    matrix = H.reshape(K * D, K * D)
    matrix[np.diag_indices(K * D)] += 1.0
    return cholesky_solve(matrix, residual.ravel()).reshape(K, D)


def zero_sum_bases(used: Mask, roots: Doubles) -> tuple[Doubles, Ints]:
    """Orthonormal (Helmert) bases of what is orthogonal to ``roots`` on each row's classes in use.

    Only the last root may be other than 1. Returns the basis vectors (Σ rank, K) and the row of each.
    """
    rank = used.sum(axis=1) - 1
    at = np.repeat(np.arange(len(used)), rank)
    order = np.arange(len(at)) - np.repeat(np.cumsum(rank) - rank, rank) + 1  # 1 … rank within a row
    position = np.cumsum(used, axis=1)[at]  # 1 … classes in use
    mine = used[at]
    basis = np.where(mine & (position <= order[:, None]), 1.0, 0.0)
    last = mine & (position == order[:, None] + 1)
    end = -order / roots[last.argmax(axis=1)]
    basis[last] = end
    basis /= np.sqrt(order + end**2)[:, None]
    return basis, at


def cholesky_solve(matrix: Doubles, right: Doubles) -> Doubles:
    """Solve a positive definite system; the matrix is overwritten."""
    factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    return cho_solve(factor, right, check_finite=False)
