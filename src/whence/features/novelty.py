"""Whether samples resemble a training set: the distance to their neighbours, in features and inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp
from torch import Tensor

from whence.core.arrays import Doubles, Floats, Ints, Mask
from whence.core.checks import check_count, check_seed, check_share
from whence.core.display import displayed
from whence.core.progress import bar
from whence.features.inputs import InputViews

REFERENCE = 20_000
"""Training inputs that tests are compared with, at most."""
_COMPARED = 2000  # training samples that show how far apart typical ones are
_BLOCK = 1 << 22  # cosines held at a time
_MANY = 10_000_000  # samples of which no permutation is made
_FAR = 0.99  # quantile of the distances in a space by which it is scaled


@displayed()
class Nearness(NamedTuple):
    """How near tests are to the training set.

    Attributes
    ----------
    distances : (B, k) to the nearest training samples, the nearest first, of features of unit length: from 0,
        the same direction, to 2
    shares : (B,) of training samples that are nearer to the others than the test is to them, by all spaces
    novel : (B,) whether the share is beyond the quantile: the test is unlike the training set
    neighbours : (B, k) int64, the nearest training samples by their features
    spaces : what was compared, "features" and the views of the inputs
    excess : (B, spaces), how far the test is in each space: 0 is the median of training samples, 1 their 99 %
        quantile
    """

    distances: Doubles
    shares: Doubles
    novel: Mask
    neighbours: Ints
    spaces: tuple[str, ...]
    excess: Doubles


class Novelty:
    """The training set as what tests are compared with, by the distance to the k-th neighbour.

    Distances are taken in up to four spaces: features at unit length, and the values, direction and
    statistics of inputs (``InputViews``). In each, e = (distance − median)/(99 % quantile − median), both of
    training samples without themselves, and a test's score is log Σ exp(2e). It is novel where ``quantile``
    of the training samples' scores stay below its own: one rule for all spaces together, so that more spaces
    do not mean more false alarms.

    Parameters
    ----------
    features : (M, d) of the training samples that took part in a fit
    places : (M,) their places in the training set
    k : neighbours that must be near
    quantile : the share of training samples that count as typical
    seed : of the choice of up to 2,000 training samples that show how far apart typical ones are
    inputs : of the training samples ``reference(M, seed)``; None compares features alone

    Attributes
    ----------
    threshold : the distance of features that ``quantile`` of these stay below, each without itself
    n_compared : how many they are
    spaces : what is compared where a test comes with its inputs
    """

    def __init__(
        self,
        features: Floats,
        places: Ints,
        k: int = 5,
        quantile: float = 0.99,
        seed: int = 0,
        inputs: InputViews | None = None,
    ) -> None:
        self.k, self.quantile = check_count("k", k, 1, len(features) - 1), check_share("quantile", quantile)
        self._rows, self._places, self._inputs = _unit(features), places, inputs
        order = reference(len(features), seed)
        chosen = order[:_COMPARED]
        cosines, _ = nearest(self._rows[chosen], self._rows, self.k, chosen)
        own = [_distances(cosines)[:, -1]]
        self.spaces: tuple[str, ...] = ("features", *(inputs.views if inputs is not None else ()))
        if inputs is not None:
            k = min(k, len(order) - 1)
            own += [
                _kth_distance(rows[: len(chosen)], rows, k, np.arange(len(chosen)))
                for rows in inputs.views.values()
            ]
        distances = np.stack(own, axis=1)
        self._middle, far = np.median(distances, axis=0), np.quantile(distances, _FAR, axis=0)
        self._range = np.maximum(far - self._middle, 1e-9 * np.maximum(far, 1e-9))
        self._typical = distances
        self.threshold, self.n_compared = float(np.quantile(own[0], self.quantile)), len(chosen)

    @property
    def width(self) -> int:
        """The number d of features."""
        return int(self._rows.shape[1])

    def of(self, features: Tensor, inputs: Mapping[str, Tensor] | None = None) -> Nearness:
        """Compare tests with features (B, d), and their inputs (B, …) by name; None compares features."""
        cosines, neighbours = nearest(_unit(features.float().cpu().numpy()), self._rows, self.k)
        distances = _distances(cosines)
        by_space = [distances[:, -1]]
        if inputs is not None and self._inputs is not None:
            views, known = self._inputs(inputs), self._inputs.views
            by_space += [
                _kth_distance(views[name], rows, min(self.k, len(rows) - 1)) for name, rows in known.items()
            ]
        spaces = self.spaces[: len(by_space)]
        excess, typical = (
            self._excess(np.stack(by_space, axis=1)),
            self._excess(self._typical[:, : len(by_space)]),
        )
        scores, own = score(excess), np.sort(score(typical))
        shares = np.searchsorted(own, scores) / self.n_compared
        novel = scores > np.quantile(own, self.quantile)
        return Nearness(distances, shares, novel, self._places[neighbours], spaces, excess)

    def _excess(self, distances: Doubles) -> Doubles:
        """Scale distances (B, spaces) such that 0 is the median and 1 the 99 % quantile."""
        n = distances.shape[1]
        excess: Doubles = (distances - self._middle[:n]) / self._range[:n]
        return excess


def reference(n: int, seed: int) -> Ints:
    """Choose up to 20,000 of n training samples, whose inputs tests are compared with, in random order."""
    rng = np.random.default_rng(check_seed(seed))
    if check_count("n", n, most=2**62) > _MANY:  # without a list of all
        return rng.choice(n, REFERENCE, replace=False)
    return rng.permutation(n)[:REFERENCE]


def score(excess: Doubles) -> Doubles:
    """Join the spaces (B, spaces) by a soft maximum, log Σ exp(2e), (B,)."""
    scores: Doubles = logsumexp(2.0 * excess, axis=1)
    return scores


def _kth_distance(tests: Floats, rows: Floats, k: int, without: Ints | None = None) -> Doubles:
    """Compute the Euclidean distance of tests (B, m) to the k-th nearest of rows (P, m), in blocks.

    ``without[b]`` (B,) is a row that does not count for test b.
    """
    squares, found = np.einsum("pm,pm->p", rows, rows), np.empty(len(tests))
    step = max(1, _BLOCK // len(rows))
    for start in range(0, len(tests), step):
        part = tests[start : start + step]
        far = squares - 2.0 * (part @ rows.T) + np.einsum("bm,bm->b", part, part)[:, None]
        if without is not None:
            far[np.arange(len(part)), without[start : start + step]] = np.inf
        found[start : start + step] = np.partition(far, k - 1, axis=1)[:, k - 1]
    distances: Doubles = np.sqrt(np.maximum(found, 0.0))
    return distances


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
