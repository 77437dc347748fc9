"""How typical features are of a training set: by the distance to their neighbours there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from whence.core.arrays import Doubles, Floats, Ints, Mask
from whence.core.checks import check_count, check_share
from whence.core.display import displayed
from whence.core.progress import bar

_COMPARED = 2000  # training samples that show how far apart typical ones are
_BLOCK = 1 << 22  # cosines held at a time


@displayed()
class Nearness(NamedTuple):
    """How near tests are to the training set.

    Attributes
    ----------
    distances : (B, k) to the nearest training samples, the nearest first, of features of unit length: from 0,
        the same direction, to 2
    shares : (B,) of training samples that are nearer to their own k-th neighbour than the test is to its
    novel : (B,) whether that distance is beyond the threshold: nothing like it was in the training set
    neighbours : (B, k) int64, the nearest training samples
    """

    distances: Doubles
    shares: Doubles
    novel: Mask
    neighbours: Ints


class Novelty:
    """The training set as what tests are compared with, by the distance to the k-th neighbour.

    Parameters
    ----------
    features : (M, d) of the training samples that took part in a fit
    places : (M,) their places in the training set
    k : neighbours that must be near
    quantile : the share of training samples that count as typical
    seed : of the choice of up to 2,000 training samples that show how far apart typical ones are

    Attributes
    ----------
    threshold : the distance that ``quantile`` of these stay below, each without itself
    n_compared : how many they are
    """

    def __init__(
        self, features: Floats, places: Ints, k: int = 5, quantile: float = 0.99, seed: int = 0
    ) -> None:
        self.k, self.quantile = check_count("k", k, 1, len(features) - 1), check_share("quantile", quantile)
        self._rows, self._places = _unit(features), places
        chosen = np.random.default_rng(seed).permutation(len(features))[:_COMPARED]
        cosines, _ = nearest(self._rows[chosen], self._rows, self.k, chosen)
        self._typical = np.sort(_distances(cosines)[:, -1])
        self.threshold, self.n_compared = float(np.quantile(self._typical, self.quantile)), len(chosen)

    @property
    def width(self) -> int:
        """The number d of features."""
        return int(self._rows.shape[1])

    def of(self, features: Tensor) -> Nearness:
        """Compare tests with features (B, d)."""
        cosines, neighbours = nearest(_unit(features.float().cpu().numpy()), self._rows, self.k)
        distances = _distances(cosines)
        last = distances[:, -1]
        shares = np.searchsorted(self._typical, last) / self.n_compared
        return Nearness(distances, shares, last > self.threshold, self._places[neighbours])


def nearest(
    tests: Floats, rows: Floats, k: int, without: Ints | None = None, show_progress: bool = False
) -> tuple[Floats, Ints]:
    """Find the k rows (P, d) nearest to each test (B, d) by their cosine; both have unit length.

    Returns
    -------
    Cosines (B, k) and row numbers (B, k), nearest first, without row ``without[b]`` (B,) for test b.
    """
    cosines, places = np.empty((len(tests), k), rows.dtype), np.empty((len(tests), k), np.int64)
    step = max(1, _BLOCK // len(rows))
    starts = range(0, len(tests), step)
    show = show_progress and len(starts) >= 4
    for start in bar("Finding neighbours", len(starts), "blocks", parts=starts, show=show):
        part = slice(start, start + step)
        alike = tests[part] @ rows.T
        if without is not None:
            alike[np.arange(len(alike)), without[part]] = -np.inf
        best = np.argpartition(-alike, k - 1, axis=1)[:, :k]
        values = np.take_along_axis(alike, best, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        places[part] = np.take_along_axis(best, order, axis=1)
        cosines[part] = np.take_along_axis(values, order, axis=1)
    return cosines, places


def _unit(features: Floats) -> Floats:
    rows = np.asarray(features, np.float32)
    lengths: Floats = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows / lengths


def _distances(cosines: Floats) -> Doubles:
    return np.sqrt(np.maximum(2.0 - 2.0 * cosines.astype(np.float64), 0.0))
