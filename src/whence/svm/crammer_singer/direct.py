"""Newton systems by a factor: of the size of the data part's rank, or of W."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from whence.core.arrays import Doubles, Ints, Mask


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
    result: Doubles = residual - combined.T @ F
    return result


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
    solution: Doubles = cho_solve(factor, right, check_finite=False)
    return solution
