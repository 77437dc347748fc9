"""Newton systems of problems that are separable over outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import LinAlgError

from whence.core.arrays import Doubles
from whence.svm.crammer_singer.hessian import cholesky_solve
from whence.svm.passes import Rows

if TYPE_CHECKING:
    from whence.svm.boxed.problem import Boxed


def cost(n_free: float, D: int) -> tuple[float, float]:
    """Operations of solving for one output with so many free samples, by their products and by features."""
    return n_free**2 * D + n_free**3 / 3, n_free * D**2 + D**3 / 3


class OutputSystem:
    """(I + σ Σ_i f_i f_iᵀ) x_c = r_c for every output c, over the samples whose λ_ic is between all ends."""

    def __init__(self, problem: Boxed, rows: Rows) -> None:
        self.problem, self.rows = problem, rows

    def solve(self, a: Doubles, sigma: float, residual: Doubles, accuracy: float) -> Doubles:
        """Solve for a residual (U, D) at α (P,)."""
        pairs, free = self.rows.pairs, self.problem.free(a)
        rows, place = pairs.spread(pairs.rows)[free], self.rows.place[free]
        found = np.empty_like(residual)

        def one(c: int) -> None:
            found[c] = _solved(self.rows.block(rows[place == c]), sigma, residual[c])

        self.rows.parallel(one, range(len(residual)))
        return found


def _solved(F: Doubles, sigma: float, r: Doubles) -> Doubles:
    """(I + σ FᵀF)⁻¹ r, by whichever matrix is cheaper."""
    n, D = F.shape
    if n == 0:
        return r
    by_products, by_features = cost(n, D)
    # Where σ is past what float64 factorises, a little more on the diagonal makes a shorter step of it.
    for more in (0.0, 1e-12, 1e-8):
        try:
            if by_products < by_features:
                gram = F @ F.T
                gram[np.diag_indices(n)] += 1.0 / sigma + more * np.trace(gram) / n
                return r - F.T @ cholesky_solve(gram, F @ r)
            H = sigma * (F.T @ F)
            H[np.diag_indices(D)] += 1.0 + more * np.trace(H) / D
            return cholesky_solve(H, r)
        except LinAlgError:
            continue
    return r
