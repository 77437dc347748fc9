"""Nearest samples in feature space."""

from __future__ import annotations

import numpy as np
from tqdm.auto import tqdm

from whence.core.arrays import Floats, Ints

_BLOCK = 1 << 22  # likenesses held at a time


def nearest(features: Floats, rows: Ints, k: int, show_progress: bool = False) -> Ints:
    """Find the k rows whose features (P, d) have the largest cosine to those of some of them.

    Returns
    -------
    (n, k) row numbers, nearest first, never the row itself; −1 where there are fewer than k others.
    """
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    unit = np.divide(features, lengths, out=np.zeros_like(features), where=lengths > 0)
    width = min(k, len(features) - 1)
    found = np.full((len(rows), k), -1, dtype=np.int64)
    if width < 1:
        return found
    step = max(1, _BLOCK // len(features))
    starts = range(0, len(rows), step)
    quiet = not show_progress or len(starts) < 4
    for start in tqdm(starts, "Finding neighbours", unit="block", disable=quiet):
        part = rows[start : start + step]
        alike = unit[part] @ unit.T
        alike[np.arange(len(part)), part] = -np.inf
        best = np.argpartition(-alike, width - 1, axis=1)[:, :width]
        order = np.argsort(-np.take_along_axis(alike, best, axis=1), axis=1, kind="stable")
        found[start : start + step, :width] = np.take_along_axis(best, order, axis=1)
    return found
