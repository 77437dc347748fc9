"""Strange samples: tests that nothing in the training set is like, by the distance to their neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.attributors.dual.training import training_features
from whence.audit.access import surrogate_of, tests_of
from whence.core.arrays import Doubles, Floats, Ints, Mask
from whence.core.checks import check_count, check_share
from whence.core.display import Columns, displayed
from whence.core.words import counted

_ASKED = 2000  # training samples that tell how far apart usual ones are
_BLOCK = 1 << 24  # products at a time


@displayed("distances", "threshold", "quantile", rows="columns")
@dataclass(frozen=True, eq=False)
class StrangeSamples:
    """How far tests are from the training set.

    Attributes
    ----------
    distances : (B,) to the k-th neighbour, of features of unit length: from 0, the same direction, to 2
    strange : (B,) whether that is beyond the threshold: nothing like it was in the training set
    threshold : what a share of training samples stays below, each without itself
    quantile : that share
    neighbours : (B, k) int64, the nearest training samples, nearest first
    """

    distances: Doubles
    strange: Mask
    threshold: float
    quantile: float
    neighbours: Ints

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types that JSON takes."""
        return {
            "threshold": self.threshold,
            "quantile": self.quantile,
            "tests": [
                {"test": i, "distance": float(d), "strange": bool(s), "neighbours": near.tolist()}
                for i, (d, s, near) in enumerate(
                    zip(self.distances, self.strange, self.neighbours, strict=True)
                )
            ],
        }

    def columns(self) -> Columns:
        """Give the list as columns of plain values, the strangest test first."""
        order = np.argsort(-self.distances, kind="stable")
        return {
            "test": order.tolist(),
            "distance": self.distances[order].tolist(),
            "strange": self.strange[order].tolist(),
            "neighbours": self.neighbours[order].tolist(),
        }

    def __str__(self) -> str:
        order = np.argsort(-self.distances, kind="stable")[: max(10, int(self.strange.sum()))]
        lines = [
            f"{counted(int(self.strange.sum()), 'test')} of {len(self.distances):,} further from the "
            f"training set than {self.quantile:.0%} of its own samples are from the others "
            f"({self.threshold:.3f}):"
        ]
        for i in order.tolist():
            near = ", ".join(map(str, self.neighbours[i, :5].tolist()))
            mark = "  nothing like this was in the training set" if self.strange[i] else ""
            lines.append(f"  {self.distances[i]:.3f}  test {i}, nearest to training samples {near}{mark}")
        return "\n".join(lines)


def strange(
    explainer: Any,
    x: Any = None,
    *,
    features: Any = None,
    training: Any = None,
    k: int = 5,
    quantile: float = 0.99,
) -> StrangeSamples:
    """Tell how like the training set tests are, and which of them are like nothing in it.

    Features are brought to unit length, and the distance to the k-th nearest training sample is compared with
    that of training samples to the others: a test beyond what ``quantile`` of these have is strange.

    Parameters
    ----------
    explainer
        A fitted DualDA.
    x
        Inputs as for ``explainer.attribute``.
    features
        (B, d) of tests, in the place of ``x``.
    training
        Features of the training set, an array or a FeatureBank; None has the model compute them.
    k
        Neighbours that must be near.
    quantile
        The share of training samples that count as usual.

    Examples
    --------
    >>> import numpy as np, whence
    >>> rng = np.random.default_rng(0)
    >>> X = np.eye(3)[np.arange(60) % 3] + 0.1 * rng.random((60, 3))
    >>> bank = whence.features.FeatureBank.of(X, np.arange(60) % 3)
    >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(features=bank)
    >>> tests = np.array([[1, 0.05, 0.05], [-1.0, -1.0, -1.0]])
    >>> whence.audit.strange(explainer, features=tests, training=bank).strange.tolist()
    [False, True]
    """
    surrogate_of(explainer)
    check_share("quantile", quantile)
    X = _unit(training_features(explainer, training))
    k = check_count("k", k, 1, len(X) - 1)
    places = np.flatnonzero(explainer.used_)
    _, tests = tests_of(explainer, x, features, None, "target")
    T = _unit(np.concatenate([f.float().cpu().numpy() for f, _ in tests]))
    some = np.random.default_rng(explainer.seed).permutation(len(X))[:_ASKED]
    threshold = float(np.quantile(_nearest(X[some], X, k, some)[0][:, -1], quantile))
    distances, near = _nearest(T, X, k, None)
    return StrangeSamples(distances[:, -1], distances[:, -1] > threshold, threshold, quantile, places[near])


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
