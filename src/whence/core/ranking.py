"""The strongest training samples of either sign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whence.core.display import Columns, decimals, displayed, text_table
from whence.core.files import to_pandas, to_parquet

_COLUMNS = 1 << 16
_BLOCK = 1 << 22  # scores held at a time


@displayed()
class Ranked(NamedTuple):
    """Training samples in order of score: ``indices`` (B, k) int64 and ``scores`` (B, k).

    Where a test has fewer than k samples of the sign, the rest is padded with index −1 and score 0.
    """

    indices: Tensor
    scores: Tensor


@displayed(rows="columns")
class TopK(NamedTuple):
    """The k strongest training samples that support and contradict each test's target class.

    Attributes
    ----------
    proponents : positive scores, evidence for the target class, largest first
    opponents : negative scores, evidence against it, most negative first
    target : (B,) int64, the class that was explained
    """

    proponents: Ranked
    opponents: Ranked
    target: Tensor

    def __str__(self) -> str:
        """Write the first rows as a table."""
        columns = self.columns()
        return text_table({**columns, "score": decimals(columns["score"])})

    def columns(self) -> Columns:
        """Return the list as columns of plain values: one row per test and sample, without the padding."""
        sides = {"proponent": self.proponents, "opponent": self.opponents}
        lists = {side: (each.indices.tolist(), each.scores.tolist()) for side, each in sides.items()}
        parts = [
            (test, target, side, rank, index, score)
            for test, target in enumerate(self.target.tolist())
            for side, (indices, scores) in lists.items()
            for rank, (index, score) in enumerate(zip(indices[test], scores[test], strict=True), 1)
            if index >= 0
        ]
        names = ("test", "target", "side", "rank", "index", "score")
        return {name: [part[place] for part in parts] for place, name in enumerate(names)}

    def to_pandas(self) -> Any:
        """Return one row per test and sample as a DataFrame of pandas, which must be installed."""
        return to_pandas(self.columns())

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write one row per test and sample to a Parquet file; needs pyarrow."""
        to_parquet(self.columns(), path)


def padded(n_train: int) -> int:
    """Return the most samples per side that a ranking can have: all of them, or some columns of padding."""
    return max(n_train, _COLUMNS)


def rank_blocks(score: Callable[[slice], Tensor], targets: Tensor, k: int, n_train: int) -> TopK:
    """Rank the training samples of each test by scores (b, N), which are computed a few tests at a time."""
    width = max(1, _BLOCK // n_train)
    blocks = [rank(score(slice(start, start + width)), k) for start in range(0, len(targets), width)]
    sides = zip(*blocks, strict=True)
    proponents, opponents = (Ranked(*map(torch.cat, zip(*side, strict=True))) for side in sides)
    return TopK(proponents, opponents, targets)


def merged(several: Sequence[Ranked], k: int, side: int) -> Ranked:
    """Rank what several rankings (B, …) hold of one side, 0 for proponents or 1 for opponents, as (B, k)."""
    indices, scores = (torch.cat([each[part] for each in several], dim=1) for part in (0, 1))
    best = rank(scores, k)[side]
    return Ranked(indices.gather(1, best.indices.clamp(min=0)).where(best.indices >= 0, -1), best.scores)


def rank(scores: Tensor, k: int) -> tuple[Ranked, Ranked]:
    """Find the k largest positive and the k most negative of scores (B, N), each (B, k), padded."""
    width = min(k, scores.shape[1])
    sides = []
    for sign in (1, -1):
        best, where = scores.topk(width, dim=1, largest=sign > 0)
        right = best * sign > 0
        indices = torch.full((len(scores), k), -1, device=scores.device)
        values = scores.new_zeros(len(scores), k)
        indices[:, :width] = where.where(right, -1)
        values[:, :width] = best.where(right, 0)
        sides.append(Ranked(indices, values))
    return sides[0], sides[1]
