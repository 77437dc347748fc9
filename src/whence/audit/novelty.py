"""Novel inputs: tests that nothing in the training set is like, by the distance to their neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.audit.access import capabilities_of, features_of, unsupported
from whence.core.arrays import Doubles, Ints, Mask
from whence.core.display import Columns, counted, displayed
from whence.features import Novelty
from whence.pages.pictures import plain
from whence.pages.style import percent


@displayed("distances", "threshold", "quantile", rows="columns")
@dataclass(frozen=True, eq=False)
class NovelInputs:
    """How far tests are from the training set.

    Attributes
    ----------
    distances : (B,) to the k-th neighbour, of features of unit length: from 0, the same direction, to 2
    novel : (B,) whether that is beyond the threshold: nothing like it was in the training set
    threshold : what a share of training samples stays below, each without itself
    quantile : that share
    neighbours : (B, k) int64, the nearest training samples, nearest first
    shares : (B,) of training samples that are nearer to their own k-th neighbour than the test is to its
    """

    distances: Doubles
    novel: Mask
    threshold: float
    quantile: float
    neighbours: Ints
    shares: Doubles

    def to_dict(self) -> dict[str, Any]:
        """Return everything in plain types that JSON takes."""
        names = {"distances": "distance", "shares": "share", "novel": "novel", "neighbours": "neighbours"}
        columns = zip(*(plain(getattr(self, name)) for name in names), strict=True)
        tests = [{"test": i} | dict(zip(names.values(), row, strict=True)) for i, row in enumerate(columns)]
        return {"threshold": self.threshold, "quantile": self.quantile, "tests": tests}

    def columns(self) -> Columns:
        """Return the list as columns of plain values, the most novel test first."""
        order = np.argsort(-self.distances, kind="stable")
        return {
            "test": order.tolist(),
            "distance": self.distances[order].tolist(),
            "novel": self.novel[order].tolist(),
            "neighbours": self.neighbours[order].tolist(),
        }

    def __str__(self) -> str:
        n_novel = int(self.novel.sum())
        lines = [
            f"{counted(n_novel, 'test')} of {len(self.distances):,} further from the training set than "
            f"{self.quantile:.0%} of its own samples are from the others ({self.threshold:.3f}):"
        ]
        for i in np.argsort(-self.distances, kind="stable")[: max(10, n_novel)].tolist():
            near = ", ".join(map(str, self.neighbours[i, :5].tolist()))
            mark = "  nothing like this was in the training set" if self.novel[i] else ""
            lines.append(
                f"  {self.distances[i]:.3f}, beyond {percent(self.shares[i])}  test {i}, nearest to training "
                f"samples {near}{mark}"
            )
        return "\n".join(lines)


def novel_inputs(
    explainer: Any,
    x: Any = None,
    *,
    features: Any = None,
    training: Any = None,
    k: int = 5,
    quantile: float = 0.99,
) -> NovelInputs:
    """Find tests that nothing in the training set is like, and how typical the others are.

    Features are brought to unit length, and the distance to the k-th nearest training sample is compared with
    that of training samples to the others: a test beyond what ``quantile`` of these have is novel.

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
        The share of training samples that count as typical.

    Examples
    --------
    >>> import numpy as np, whence
    >>> rng = np.random.default_rng(0)
    >>> X = np.eye(3)[np.arange(60) % 3] + 0.1 * rng.random((60, 3))
    >>> bank = whence.features.FeatureBank.of(X, np.arange(60) % 3)
    >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(features=bank)
    >>> tests = np.array([[1, 0.05, 0.05], [-1.0, -1.0, -1.0]])
    >>> whence.audit.novel_inputs(explainer, features=tests, training=bank).novel.tolist()
    [False, True]
    """
    can = capabilities_of(explainer)
    if can.members or not can.explains:
        raise unsupported(explainer, "a fitted DualDA, or another that explains by features")
    _, tests = features_of(explainer, x, features)
    typical: Novelty = explainer.novelty(training, k=k, quantile=quantile)
    parts = [typical.of(part) for part, _ in tests]
    distances, shares, novel, near = (np.concatenate(column) for column in zip(*parts, strict=True))
    return NovelInputs(distances[:, -1], novel, typical.threshold, typical.quantile, near, shares)
