"""Check that a loaded surrogate is what it says: W is the sum over its samples, and the gap is that of W."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.sparse import csr_array

from whence.core import contents
from whence.core.arrays import Doubles, Floats
from whence.errors import ConvergenceWarning
from whence.features.rows import taken
from whence.surrogate.identity import check_training
from whence.surrogate.shards import solver
from whence.surrogate.surrogate import Surrogate

_ROUNDING = 1e-6  # of the sum of all lengths, |λ_ic|·‖z_i‖
_GAP = 1e-6  # of the objective, by which sums in another order may move a gap
_AT_ONCE = 1e-9  # seconds: the solver returns the certificate of what it starts from


def check_weights(surrogate: Surrogate) -> None:
    """Raise StoreError unless W = Σ λ_i z_i, the bias is its part of it, and no λ is above C."""
    d, lam = surrogate.stored.shape[1], surrogate.lam[surrogate.support]
    summed, size = np.zeros((lam.shape[1], d)), np.zeros(lam.shape[1])
    step = max(1, (1 << 22) // d)
    for start in range(0, len(surrogate.stored), step):
        rows = slice(start, min(start + step, len(surrogate.stored)))
        Z = surrogate.stored[rows].double().cpu().numpy()
        summed += lam[rows].T @ Z
        size += abs(lam[rows]).T @ np.linalg.norm(Z, axis=1)
    _compare(surrogate.coef[:, :d], summed, size)
    if surrogate.bias:
        ones, constant = np.ones(lam.shape[0]), surrogate.constant**2
        _compare(surrogate.coef[:, d:], constant * (lam.T @ ones)[:, None], constant * (abs(lam).T @ ones))
    largest = float(abs(lam).max()) if lam.nnz else 0.0
    if surrogate.task.has_classes and largest > surrogate.C * (1 + 1e-6):
        raise contents.refused(f"no coefficient may be above C, {surrogate.C:.6g}, and one is {largest:.6g}")


def _compare(weights: Doubles, summed: Doubles, size: Doubles) -> None:
    apart = np.abs(weights - summed) > _ROUNDING * size[:, None] + 1e-300
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
    gap = _gap(surrogate, Z, surrogate.lam[known])
    if gap > surrogate.gap * 1.001 + _GAP:
        raise contents.refused(
            f"'gap' must be that of the coefficients, {gap:.3g}, and is {surrogate.gap:.3g}"
        )
    return True


def _gap(surrogate: Surrogate, Z: Floats, lam: csr_array) -> float:
    task, labels = surrogate.task, surrogate.labels[surrogate.task.known(surrogate.labels)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = solver(Z, task)(
            Z, labels, C=surrogate.C, tol=1e-12, max_seconds=_AT_ONCE, warm_start=lam, problem=task.problem,
            n_classes=task.n_outputs, bias=surrogate.constant or False, seed=0, n_threads=1,
        )  # fmt: skip
    return float(solution.gap)
