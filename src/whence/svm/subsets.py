"""One Crammer–Singer problem on many subsets of its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Mask
from whence.core.checks import to_array
from whence.errors import InvalidInputError
from whence.svm.crammer_singer import CrammerSinger
from whence.svm.solve import check_options, check_warm_start, solve


@dataclass(frozen=True)
class SubsetSolution:
    """The solution on one subset.

    Attributes
    ----------
    lam : (N, K) csr_array, float64
        Dual coefficients: rows sum to zero exactly, λ_ic ≤ C·δ_{c,y_i}; rows outside the subset are empty.
    weight : (K, d) or, with a bias, (K, d + 1) float64
        W = Σ_i λ_i f_iᵀ, the last column as it is added to the logits, as in ``Solution.weight``.
    gap : float
        (P(W) − D(λ))/P(W) over all samples of the subset, in float64.
    """

    lam: csr_array
    weight: Doubles
    gap: float


class Subsets:
    """Solves one Crammer–Singer problem on many subsets of its samples.

    Parameters
    ----------
    features, labels, n_classes, C, bias
        As for ``solve``; C stays as it is, whatever the size of a subset.
    tol : float
        Relative duality gap to reach on every subset.
    seed : int
        Same seed, same subset, same machine: same bits, whatever was solved before.
    start : (N, K) csr_array, optional
        λ of the solution on all samples, from which every subset starts; solved when first needed if None.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 200)
    >>> X = np.eye(3)[y] + 0.3 * rng.normal(size=(200, 3))
    >>> weights, gaps = Subsets(X, y, C=0.1).solve_all(rng.random((5, 200)) < 0.5)
    >>> weights.shape, bool((gaps <= 1e-3).all())
    ((5, 3, 4), True)
    """

    def __init__(
        self,
        features: npt.ArrayLike,
        labels: npt.ArrayLike,
        *,
        n_classes: int | None = None,
        C: float,
        bias: bool | float = True,
        tol: float = 1e-3,
        seed: int = 0,
        start: csr_array | None = None,
    ) -> None:
        self._problem = CrammerSinger.make(features, labels, n_classes, C, bias)
        check_options(tol, None, None, seed)
        self._bias, self._tol, self._seed = bias, tol, seed
        self._start = check_warm_start(start, self._problem, "start")

    def solve(self, members: Mask) -> SubsetSolution:
        """Solve on the samples where ``members`` (N,) is True."""
        rows = np.flatnonzero(self._check_masks("members", members, 1))
        p = self._problem
        found = solve(
            p.features[rows], p.labels[rows], n_classes=p.n_outputs, C=p.C, bias=self._bias, tol=self._tol,
            seed=self._seed, n_threads=1,
        )  # fmt: skip
        counts = np.zeros(len(p.labels), np.int64)
        counts[rows] = np.diff(found.lam.indptr)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        lam = csr_array((found.lam.data, found.lam.indices, indptr), shape=(len(p.labels), p.n_outputs))
        return SubsetSolution(lam, found.weight, found.gap)

    def solve_all(self, masks: Mask) -> tuple[Doubles, Doubles]:
        """Solve on M subsets, ``masks`` (M, N): their W (M, K, d) or (M, K, d + 1), and their gaps (M,)."""
        masks = self._check_masks("masks", masks, 2)
        found = [self.solve(members) for members in masks]
        weights = np.empty((len(found), *self._problem.shape))
        for weight, solution in zip(weights, found, strict=True):
            weight[:] = solution.weight
        return weights, np.array([solution.gap for solution in found])

    def _check_masks(self, name: str, values: Any, rank: int) -> Mask:
        """Return truth values, one per sample in the last place, none of them all False."""
        masks = to_array(name, values)
        n = len(self._problem.labels)
        shape = f"({n},)" if rank == 1 else f"(M, {n})"
        if masks.dtype != np.bool_ or masks.ndim != rank or masks.shape[-1] != n:
            raise InvalidInputError(
                f"'{name}' must be truth values of shape {shape}, one per sample. "
                f"Got dtype {masks.dtype} and shape {masks.shape}."
            )
        empty = ~masks.any(axis=-1)
        if empty.any():
            where = f" in row {int(empty.argmax())}" if rank == 2 else ""
            raise InvalidInputError(f"'{name}' must have at least one sample per subset. Got none{where}.")
        return masks
