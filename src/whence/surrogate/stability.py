"""Stability of the strongest training samples over random halves of the training set."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csc_array, csr_array, hstack
from torch import Tensor

from whence import engine
from whence.core.arrays import Floats, Ints, Mask
from whence.core.checks import check_count
from whence.core.display import displayed
from whence.core.ranking import TopK, padded, rank
from whence.errors import ConvergenceWarning
from whence.surrogate.shards import strongest
from whence.surrogate.surrogate import Surrogate
from whence.svm import solve
from whence.svm.pairs import spread_rows

ReadTests = Callable[[Any, Any, Any], tuple[Tensor, Tensor]]
"""Function from a user's inputs, targets and features to features (B, d) and targets (B,) of tests."""

_BLOCK = 1 << 22  # scores per block


@displayed()
class StableTopK(NamedTuple):
    """The strongest training samples, and the number of halves in which each stays among them.

    Attributes
    ----------
    top : the strongest samples for the whole training set
    proponents, opponents : (B, k) int64, the number of halves that hold the sample and in which it is among
        the k strongest of its sign; 0 where ``top`` is padded
    halves : number of halves that hold each sample
    """

    top: TopK
    proponents: Tensor
    opponents: Tensor
    halves: int


class Stability:
    """Surrogates on random halves of the training set, in pairs: each sample is in one half of every pair.

    A half is warm-started from its rows of the full solution, and solved to a gap of ``tol``. On the demo
    (5,000 samples, 20 pairs), 99 of 100 counts at 1e-4 equal those at 1e-7, and the others differ by one.

    Parameters
    ----------
    surrogate : surrogate of the whole training set
    features : (M, d) transformed features of the fitted samples
    read_tests : reads the arguments of ``top_k``
    halves : number of pairs, which is the number of halves that hold each sample
    tol : relative duality gap of a half
    seed : seed of the halves
    """

    def __init__(
        self,
        surrogate: Surrogate,
        features: Floats,
        read_tests: ReadTests,
        *,
        halves: int = 20,
        tol: float = 1e-4,
        seed: int = 0,
        show_progress: bool = False,
    ) -> None:
        self.halves = halves
        self._surrogate, self._read_tests = surrogate, read_tests
        used = np.flatnonzero(surrogate.task.known(surrogate.labels))
        options = {
            "n_classes": surrogate.task.n_outputs,
            "C": surrogate.C,
            "bias": surrogate.constant or False,
        }
        solve_side = partial(
            _solve, features, surrogate.labels[used], csr_array(surrogate.lam[used]), tol, seed, options
        )
        items = [(pair, side) for pair in range(halves) for side in (True, False)]
        title = "Solving halves" if show_progress else None
        solutions: list[csr_array] = engine.results(solve_side, items, title=title, unit="halves")
        support = np.flatnonzero(sum(np.diff(lam.indptr) for lam in solutions))
        like = surrogate.stored.like
        self._samples = torch.as_tensor(used[support], device=like.device)
        self._vectors = like.new_tensor(features[support]).to(surrogate.expansion.dtype)
        # λ of all halves (S, halves · K), side by side
        self._lam = csc_array(hstack([lam[support] for lam in solutions], format="csc"))

    def top_k(self, x: Any = None, k: int = 5, target: Any = None, *, features: Any = None) -> StableTopK:
        """Find the k strongest samples of each sign, as ``DualDA.top_k``, with the stability of each.

        Scores, also those of halves, are relative to the mean of the whole training set.
        """
        k = check_count("k", k, 1, padded(len(self._surrogate.labels)))
        tests, classes = self._read_tests(x, target, features)
        top = TopK(*strongest(self._surrogate, tests, classes, k, relative=True), classes)
        counts = [torch.zeros_like(side.indices) for side in top[:2]]
        read = self._surrogate.expansion.shifted(tests, classes, relative=True).to(self._vectors)
        for c in torch.unique(classes).tolist():
            lam = torch.as_tensor(self._lam[:, c :: self._surrogate.task.n_outputs].toarray().T).to(read)
            rows = torch.nonzero(classes == c)[:, 0].to(read.device)
            for part in torch.split(rows, max(1, _BLOCK // max(1, lam.numel()))):
                products = read[part] @ self._vectors.T
                scores = products[:, None] * lam  # (tests, halves, samples)
                for count, whole, there in zip(counts, top[:2], rank(scores.flatten(0, 1), k), strict=True):
                    ranked = self._samples[there.indices.clamp(min=0)].where(there.indices >= 0, -1)
                    indices = whole.indices[part]
                    again = (indices[:, :, None] == ranked.reshape(len(part), 1, -1)).sum(2)
                    count[part] = again.where(indices >= 0, 0)
        return StableTopK(top, counts[0], counts[1], self.halves)


def draw_half(n: int, seed: int, pair: int) -> Mask:
    """Draw the first half of a pair among n samples; the second has the others."""
    return np.random.default_rng([seed, pair]).permutation(n) < (n + 1) // 2


def _solve(
    features: Floats,
    labels: Ints,
    lam: csr_array,
    tol: float,
    seed: int,
    options: dict[str, Any],
    half: tuple[int, bool],
) -> csr_array:
    """Return λ of a half, expanded to all samples."""
    pair, side = half
    members = draw_half(len(labels), seed, pair) == side
    rows = np.flatnonzero(members)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        part = solve(
            features[rows], labels[rows], warm_start=csr_array(lam[rows]), tol=tol, seed=seed, n_threads=1,
            **options,
        ).lam  # fmt: skip
    return spread_rows(part, rows, len(labels))
