"""Novel inputs: tests that are unlike the training set, by nearest-neighbour distances."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from whence.audit.access import capabilities_of, features_of, unsupported
from whence.core.arrays import Doubles, Ints, Mask
from whence.core.display import Columns, counted, displayed
from whence.features import Novelty
from whence.features.novelty import score
from whence.model.inputs import check_batch
from whence.pages.pictures import plain
from whence.pages.style import percent
from whence.relevance.sources import floating


@displayed("distances", "threshold", "quantile", rows="columns")
@dataclass(frozen=True, eq=False)
class NovelInputs:
    """How far tests are from the training set.

    Attributes
    ----------
    distances : (B,) distance to the k-th neighbour, of features of unit length: from 0, the same direction,
        to 2
    novel : (B,) whether a test is unlike the training set: its share is beyond the quantile
    threshold : the ``quantile`` of the training samples' own distances
    quantile : the share of training samples that counts as typical
    neighbours : (B, k) int64, the nearest training samples by their features, nearest first
    shares : (B,) share of training samples that are nearer to the others than the test is, over all spaces
    scores : (B,) distance score over all spaces; larger is more novel
    spaces : the compared spaces: "features", and "values", "direction" and "statistics" of inputs
    """

    distances: Doubles
    novel: Mask
    threshold: float
    quantile: float
    neighbours: Ints
    shares: Doubles
    scores: Doubles
    spaces: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything in plain JSON types."""
        names = {
            "distances": "distance", "shares": "share", "scores": "score", "novel": "novel",
            "neighbours": "neighbours",
        }  # fmt: skip
        columns = zip(*(plain(getattr(self, name)) for name in names), strict=True)
        tests = [{"test": i} | dict(zip(names.values(), row, strict=True)) for i, row in enumerate(columns)]
        return {
            "threshold": self.threshold,
            "quantile": self.quantile,
            "spaces": list(self.spaces),
            "tests": tests,
        }

    def columns(self) -> Columns:
        """Return the list as columns of plain values, the most novel test first."""
        order = np.argsort(-self.scores, kind="stable")
        return {
            "test": order.tolist(),
            "share": self.shares[order].tolist(),
            "distance": self.distances[order].tolist(),
            "novel": self.novel[order].tolist(),
            "neighbours": self.neighbours[order].tolist(),
        }

    def __str__(self) -> str:
        n_novel = int(self.novel.sum())
        by = f"{self.spaces[0]} alone" if len(self.spaces) == 1 else "features and input"
        lines = [
            f"{counted(n_novel, 'test')} of {len(self.novel):,} further from the training set than "
            f"{self.quantile:.1%} of its own samples are from the others, by {by}:"
        ]
        for i in np.argsort(-self.scores, kind="stable")[: max(10, n_novel)].tolist():
            near = ", ".join(map(str, self.neighbours[i, :5].tolist()))
            mark = "  ⚠ unlike the training set" if self.novel[i] else ""
            lines.append(
                f"  beyond {percent(self.shares[i])}  test {i}, nearest to training samples {near}{mark}"
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
    """Find tests that are unlike the training set.

    Tests are compared with their nearest training samples by features at unit length. If ``x`` is given and
    the explainer has its model and data, inputs are compared too; see ``whence.features.Novelty``. A test is
    novel if it is further away than ``quantile`` of the training samples are from the others.

    Parameters
    ----------
    explainer
        A fitted DualDA or Effects, of any task.
    x
        Inputs as for ``explainer.attribute``.
    features
        Features (B, d) of tests, instead of ``x``; then only features are compared.
    training
        Features of the training set, an array or a FeatureBank; None takes those of the fit.
    k
        Number of neighbours; the distance is that of the k-th.
    quantile
        The share of training samples that counts as typical.

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
    novelty: Novelty = explainer.novelty(training, k=k, quantile=quantile)
    nearness = [novelty.of(part, inputs) for part, inputs in _read(explainer, x, features)]
    distances, shares, novel, near, _, excess = (
        np.concatenate(column) if isinstance(column[0], np.ndarray) else column[0]
        for column in zip(*nearness, strict=True)
    )
    return NovelInputs(
        distances[:, -1], novel, novelty.threshold, novelty.quantile, near, shares, score(excess),
        nearness[0].spaces,
    )  # fmt: skip


def _read(explainer: Any, x: Any, features: Any) -> Iterator[tuple[Tensor, dict[str, Tensor] | None]]:
    """Yield features (b, d) and, for ``x``, inputs of ``batch_size`` tests at a time."""
    if features is not None or x is None:
        yield from ((part, None) for part, _ in features_of(explainer, x, features)[1])
        return
    fitted = explainer.fitted_
    x = fitted.as_batch(x)
    check_batch(x)
    for test in fitted.require_model().reads(x, explainer.batch_size):
        yield fitted.check_features(test.features, "x"), floating(test.inputs)
