"""How usual features are for a training set: by the distance to their neighbours there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from whence.core.arrays import Doubles, Floats, Ints, Mask
from whence.core.checks import check_count, check_share
from whence.core.display import displayed

_ASKED = 2000  # training samples that tell how far apart usual ones are
_BLOCK = 1 << 24  # products at a time


@displayed()
class Nearness(NamedTuple):
    """How near tests are to the training set.

    Attributes
    ----------
    distances : (B, k) to the nearest training samples, the nearest first, of features of unit length: from 0,
        the same direction, to 2
    shares : (B,) of training samples that are nearer to their own k-th neighbour than the test is to its
    strange : (B,) whether that distance is beyond the threshold: nothing like it was in the training set
    neighbours : (B, k) int64, the nearest training samples
    """

    distances: Doubles
    shares: Doubles
    strange: Mask
    neighbours: Ints


class Usualness:
    """The training set as what tests are compared with, by the distance to the k-th neighbour.

    Parameters
    ----------
    features : (M, d) of the training samples that took part in a fit
    places : (M,) their places in the training set
    k : neighbours that must be near
    quantile : the share of training samples that count as usual
    seed : of the choice of up to 2,000 training samples that tell how far apart usual ones are

    Attributes
    ----------
    threshold : the distance that ``quantile`` of these stay below, each without itself
    asked : how many they are
    """

    def __init__(
        self, features: Floats, places: Ints, k: int = 5, quantile: float = 0.99, seed: int = 0
    ) -> None:
        self.k, self.quantile = check_count("k", k, 1, len(features) - 1), check_share("quantile", quantile)
        self._rows, self._places = _unit(features), places
        some = np.random.default_rng(seed).permutation(len(features))[:_ASKED]
        self._usual = np.sort(_nearest(self._rows[some], self._rows, self.k, some)[0][:, -1])
        self.threshold, self.asked = float(np.quantile(self._usual, self.quantile)), len(some)

    @property
    def width(self) -> int:
        """The number d of features."""
        return int(self._rows.shape[1])

    def of(self, features: Tensor) -> Nearness:
        """Compare tests with features (B, d)."""
        distances, near = _nearest(_unit(features.float().cpu().numpy()), self._rows, self.k, None)
        last = distances[:, -1]
        shares = np.searchsorted(self._usual, last) / self.asked
        return Nearness(distances, shares, last > self.threshold, self._places[near])


def _unit(features: Floats) -> Floats:
    rows = np.asarray(features, np.float32)
    found: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return found


def _nearest(tests: Floats, rows: Floats, k: int, own: Ints | None) -> tuple[Doubles, Ints]:
    """Distances (B, k) to the nearest rows and their places, nearest first; ``own`` (B,) are left out."""
    distances, places = np.empty((len(tests), k)), np.empty((len(tests), k), np.int64)
    step = max(1, _BLOCK // len(rows))
    for start in range(0, len(tests), step):
        part = slice(start, start + step)
        cosine = tests[part] @ rows.T
        if own is not None:
            cosine[np.arange(len(cosine)), own[part]] = -np.inf
        best = np.argpartition(-cosine, k - 1, axis=1)[:, :k]
        values = np.take_along_axis(cosine, best, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        places[part] = np.take_along_axis(best, order, axis=1)
        near = np.take_along_axis(values, order, axis=1).astype(np.float64)
        distances[part] = np.sqrt(np.maximum(2.0 - 2.0 * near, 0.0))
    return distances, places
