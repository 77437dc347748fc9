"""One Crammer–Singer problem on many subsets of its samples."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from threadpoolctl import ThreadpoolController

from whence.core.arrays import Doubles, Ints, Mask
from whence.core.checks import to_array
from whence.core.display import displayed
from whence.errors import ConvergenceWarning, InvalidInputError
from whence.svm.crammer_singer import CrammerSinger
from whence.svm.crammer_singer.subset import Ground, Search, Start
from whence.svm.solve import check_options, check_warm_start, expand_columns, merge_columns, solve

_TIGHTER = 0.1  # of the tolerance, for the solution on all samples: without a sample it should still be good
_MOST_PAIRS = 1 << 23  # of samples and classes, which the search on a subset holds all of: 50 bytes each
_HALVINGS = 6  # of the samples, up to which there are solutions to start from


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # which takes as long to make as a small subset to solve


@displayed()
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

    Every subset starts from a solution on all samples and ends with the certificate of ``solve``, over
    its own samples. It does not depend on the subsets solved before. Where the search does not reach the
    tolerance, as at a large C, and where samples times classes are above eight million, ``solve`` takes its
    place.

    λ is feasible to the bit, but it is a mean over the search: it has more small entries than that of
    ``solve``, and copies of a sample or classes without one need not have equal λ. What is unique is W.

    Parameters
    ----------
    features, labels, n_classes, C, bias
        As for ``solve``; C stays as it is, whatever the size of a subset.
    tol : float
        Relative duality gap to reach on every subset; a ``ConvergenceWarning`` says where it was not.
    seed : int
        Same seed, same subset, same machine: same bits.
    start : (N, K) csr_array, optional
        λ of the solution on all samples; solved here when absent.

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
        self._tol, self._seed = tol, seed
        merged, self._place = self._problem.merged()
        self._ground = Ground(merged, tol)
        lam = check_warm_start(start, self._problem, "start")
        self._lam = self._solve_whole(self._problem.C, _TIGHTER * tol, None) if lam is None else lam
        self._starts: dict[int, Start] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what every process can make for itself."""
        return {**self.__dict__, "_starts": {}}

    def solve(self, members: Mask) -> SubsetSolution:
        """Solve on the samples where ``members`` (N,) is True."""
        rows = np.flatnonzero(self._check_masks("members", members, 1))
        lam, weight, gap = self._solve(rows)
        counts = np.zeros(len(self._problem.labels), np.int64)
        counts[rows] = np.diff(lam.indptr)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        lam = csr_array((lam.data, lam.indices, indptr), shape=(len(counts), lam.shape[1]))
        return SubsetSolution(lam, weight, gap)

    def solve_all(self, masks: Mask) -> tuple[Doubles, Doubles]:
        """Solve on M subsets, ``masks`` (M, N): their W (M, K, d) or (M, K, d + 1), and their gaps (M,)."""
        masks = self._check_masks("masks", masks, 2)
        weights, gaps = np.empty((len(masks), *self._problem.shape)), np.empty(len(masks))
        for k, members in enumerate(masks):
            _, weights[k], gaps[k] = self._solve(np.flatnonzero(members))
        return weights, gaps

    def _solve(self, rows: Ints) -> tuple[csr_array, Doubles, float]:
        """λ (n, K) of some rows, W (K, D) as it is returned, and the gap."""
        p, found = self._problem, None
        if len(p.labels) * self._ground.problem.n_outputs <= _MOST_PAIRS:
            with _blas().limit(limits=1, user_api="blas"):
                found = Search(self._start(len(rows)), rows, self._seed).run()
        if found is None:
            other = solve(
                p.features[rows], p.labels[rows], n_classes=p.n_outputs, C=p.C, bias=p.bias or False,
                tol=self._tol, seed=self._seed, n_threads=1,
            )  # fmt: skip
            return other.lam, other.weight, other.gap
        weight = found.weight[self._place]
        weight[:, p.features.shape[1] :] *= p.bias
        return expand_columns(found.lam, self._place), weight, found.gap

    def _start(self, n: int) -> Start:
        """What a subset of n samples starts from.

        Half of the samples at C are about what all of them are at C/2: W is alike, and λ twice as large. The
        share is taken as a power of two, so that few solutions serve all subsets.
        """
        halvings = min(round(np.log2(len(self._problem.labels) / n)), _HALVINGS)
        if halvings not in self._starts:
            share = 0.5**halvings
            lam = self._lam
            if halvings > 0:
                lam = self._solve_whole(share * self._problem.C, self._tol, lam) / share
            self._starts[halvings] = Start(self._ground, csr_array(merge_columns(lam, self._place)), share)
        return self._starts[halvings]

    def _solve_whole(self, C: float, tol: float, start: csr_array | None) -> csr_array:
        """λ on all samples."""
        p = self._problem
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # any λ will do to start from
            return solve(
                p.features, p.labels, n_classes=p.n_outputs, C=C, bias=p.bias or False, tol=tol,
                seed=self._seed, warm_start=start, n_threads=1,
            ).lam  # fmt: skip

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
