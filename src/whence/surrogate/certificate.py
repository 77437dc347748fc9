"""Check that a loaded surrogate is what it says: W is the sum over its samples, and the gap is that of W."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from whence.core import contents
from whence.core.arrays import Doubles, Floats
from whence.features.rows import taken
from whence.surrogate.identity import check_training
from whence.surrogate.surrogate import Surrogate
from whence.svm.solver import gap_of

_ROUNDING = 1e-12  # of the sum of all lengths, |λ_ic|·‖z_i‖
_SINGLE = 1e-6  # the same in single precision: of rows that are transformed again, and of smooth surrogates
_GAP = 1e-6  # of the objective, by which sums in another order may move a gap


def check_weights(surrogate: Surrogate, exact: bool) -> None:
    """Raise StoreError unless W = Σ λ_i z_i, the bias is its part of it, and no λ is above C.

    ``exact`` says whether the solver adds up in double precision.
    """
    d, lam = surrogate.stored.shape[1], surrogate.lam[surrogate.support]
    summed, size = np.zeros((lam.shape[1], d)), np.zeros(lam.shape[1])
    step = max(1, (1 << 22) // d)
    for start in range(0, len(surrogate.stored), step):
        rows = slice(start, min(start + step, len(surrogate.stored)))
        Z = surrogate.stored[rows].double().cpu().numpy()
        summed += lam[rows].T @ Z
        size += abs(lam[rows]).T @ np.linalg.norm(Z, axis=1)
    rounding = _ROUNDING if exact and not surrogate.stored.mapped else _SINGLE
    _compare(surrogate.coef[:, :d], summed, rounding * size)
    if surrogate.bias:
        ones, constant = np.ones(lam.shape[0]), surrogate.constant**2
        size = rounding * constant * (abs(lam).T @ ones)
        _compare(surrogate.coef[:, d:], constant * (lam.T @ ones)[:, None], size)
    largest = float(abs(lam).max()) if lam.nnz else 0.0
    if surrogate.task.has_classes and largest > surrogate.C * (1 + 1e-6):
        raise contents.refused(f"no coefficient may be above C, {surrogate.C:.6g}, and one is {largest:.6g}")


def _compare(weights: Doubles, summed: Doubles, rounding: Doubles) -> None:
    apart = np.abs(weights - summed) > rounding[:, None] + 1e-300
    if apart.any():
        row, column = np.argwhere(apart)[0]
        raise contents.refused(
            "'coef' must be the sum of coefficients times features, with 'constant' for the bias, "
            f"{summed[row, column]:.6g} at {row}, {column}, and is {weights[row, column]:.6g}"
        )


def check_gap(surrogate: Surrogate, every: Floats | None) -> bool:
    """Compute the duality gap again, where the features of all samples are there; return whether they are.

    ``every`` (N, d) are those of all samples, as the model makes them; without them all samples must be
    support vectors. Raises StoreError where the gap is larger than the saved one.
    """
    known = surrogate.task.known(surrogate.labels)
    if every is not None:
        check_training(surrogate, every, argument="cache_dir")
        Z = surrogate.metric.rows(taken(every, known))
    elif len(surrogate.support) == known.sum():
        Z = surrogate.vectors.cpu().numpy()
    else:
        return False
    gap = gap_of(
        Z, surrogate.labels[known], csr_array(surrogate.lam[known]), C=surrogate.C,
        n_classes=surrogate.task.n_outputs, bias=surrogate.constant or False, problem=surrogate.task.problem,
    )  # fmt: skip
    if gap > surrogate.gap * 1.001 + _GAP:
        raise contents.refused(
            f"'gap' must be that of the coefficients, {gap:.3g}, and is {surrogate.gap:.3g}"
        )
    return True
