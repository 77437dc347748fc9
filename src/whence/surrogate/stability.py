"""How stable the strongest training samples are: whether they stay so in halves of the training set."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from whence import engine
from whence.core.arrays import Floats, Mask
from whence.core.display import displayed
from whence.core.ranking import TopK
from whence.errors import ConvergenceWarning
from whence.surrogate.expansion import Expansion
from whence.surrogate.vectors import Vectors
from whence.svm.subsets import Subsets

if TYPE_CHECKING:
    from whence.methods.dualda import DualDA


@displayed()
class StableTopK(NamedTuple):
    """The strongest training samples, and in how many halves each stays among them.

    Attributes
    ----------
    top : of the whole training set
    proponents, opponents : (B, k) int64, of the halves that hold the sample, those in which it is among the
        k strongest of its sign; 0 where ``top`` is padded
    halves : how many halves hold each sample
    """

    top: TopK
    proponents: Tensor
    opponents: Tensor
    halves: int


class Stability:
    """Surrogates on random halves of the training set, two by two: each sample is in one of either two.

    Parameters
    ----------
    explainer : fitted
    features : (M, d) of the samples that took part in the fit, as the surrogate reads them
    halves : divisions of the training set, and so halves that hold each sample
    """

    def __init__(self, explainer: DualDA, features: Floats, halves: int) -> None:
        self.halves = halves
        self._explainer = explainer
        surrogate, used = explainer.surrogate_, np.flatnonzero(explainer.used_)
        subsets = Subsets(
            features,
            explainer.labels_[used],
            n_classes=explainer.n_classes_,
            C=explainer.C_,
            bias=surrogate.constant or False,
            tol=explainer.tol,
            seed=explainer.seed,
            start=csr_array(surrogate.lam[used]),
        )
        solve = partial(_solve, subsets, len(used), explainer.seed)
        items = [(place, side) for place in range(halves) for side in (True, False)]
        title = "Solving halves" if explainer.show_progress else None
        self._each = []
        for lam in engine.results(solve, items, title=title, unit="halves"):
            support = np.flatnonzero(np.diff(lam.indptr))
            rows = surrogate.stored.like.new_tensor(features[support])
            vectors = Vectors(rows, unit=surrogate.stored.unit)
            entries = lam.data, lam.indices, _spread(lam, used, explainer.n_train_)
            spread = csr_array(entries, shape=surrogate.lam.shape)
            self._each.append(Expansion(vectors, used[support], spread, constant=surrogate.constant))

    def top_k(self, x: Any, k: int = 5, target: Any = None) -> StableTopK:
        """Find the k strongest samples of either sign, as ``DualDA.top_k``, and how stable each is."""
        features = self._explainer.require_model().read(x, self._explainer.batch_size).features
        classes = self._explainer.classes(x, target)
        return self.top_k_features(features, k, classes)

    def top_k_features(self, features: Any, k: int = 5, target: Any = None) -> StableTopK:
        """``top_k`` of features (B, d)."""
        top = self._explainer.top_k_features(features, k, target)
        tests = self._explainer.check_features(features)
        counts = [side.indices.new_zeros(side.indices.shape) for side in top[:2]]
        for half in self._each:
            for count, whole, there in zip(counts, top[:2], half.top_k(tests, top.target, k), strict=True):
                same = (whole.indices[:, :, None] == there.indices[:, None, :]).any(2)
                count += same & (whole.indices >= 0)
        return StableTopK(top, counts[0], counts[1], self.halves)


def _spread(lam: csr_array, used: Any, n: int) -> Any:
    """Return the row pointers of λ for all n samples, by those of the samples that took part."""
    counts = np.zeros(n, np.int64)
    counts[used] = np.diff(lam.indptr)
    return np.concatenate([[0], np.cumsum(counts)])


def members(n: int, seed: int, place: int) -> Mask:
    """Draw a half of n samples, by its place among all halves."""
    return np.random.default_rng([seed, place]).permutation(n) < (n + 1) // 2


def _solve(subsets: Subsets, n: int, seed: int, half: tuple[int, bool]) -> csr_array:
    place, side = half
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return subsets.solve(members(n, seed, place) == side).lam
