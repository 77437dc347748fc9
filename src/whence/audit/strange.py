"""Strange samples: tests that nothing in the training set is like, by the distance to their neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.attribution.pairs import PairAttributor
from whence.audit.access import features_of
from whence.core.arrays import Doubles, Ints, Mask
from whence.core.display import Columns, counted, displayed
from whence.errors import InvalidInputError
from whence.pages.style import percent


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
    shares : (B,) of training samples that are nearer to their own k-th neighbour than the test is to its
    """

    distances: Doubles
    strange: Mask
    threshold: float
    quantile: float
    neighbours: Ints
    shares: Doubles

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types that JSON takes."""
        return {
            "threshold": self.threshold,
            "quantile": self.quantile,
            "tests": [
                {
                    "test": i,
                    "distance": float(self.distances[i]),
                    "share": float(self.shares[i]),
                    "strange": bool(self.strange[i]),
                    "neighbours": self.neighbours[i].tolist(),
                }
                for i in range(len(self.distances))
            ],
        }

    def columns(self) -> Columns:
        """Return the list as columns of plain values, the strangest test first."""
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
            lines.append(
                f"  {self.distances[i]:.3f}, beyond {percent(self.shares[i])}  test {i}, nearest to training "
                f"samples {near}{mark}"
            )
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
    """Return how like the training set tests are, and which of them are like nothing in it.

    Features are brought to unit length, and the distance to the k-th nearest training sample is compared with
    that of training samples to the others: a test beyond what ``quantile`` of these have is strange.

    Parameters
    ----------
    explainer
        A fitted DualDA or Effects, of any task.
    x
        Inputs as for ``explainer.attribute``.
    features
        (B, d) of tests, instead of ``x``.
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
    if not isinstance(explainer, PairAttributor):
        raise InvalidInputError(
            f"'explainer' must be a fitted DualDA, or another that explains by features. "
            f"Got {type(explainer).__name__}."
        )
    _, tests = features_of(explainer, x, features)
    usualness = explainer.usualness(training, k=k, quantile=quantile)
    found = [usualness.of(part) for part, _ in tests]
    distances, shares, strange, near = (np.concatenate(each) for each in zip(*found, strict=True))
    return StrangeSamples(distances[:, -1], strange, usualness.threshold, usualness.quantile, near, shares)
