"""Exact copies of a sample: equal features and an equal label."""

from __future__ import annotations

import numpy as np

from whence.core.arrays import Doubles, Floats, Ints


def find_copies(features: Floats, norms: Doubles, labels: Ints) -> list[Ints]:
    """Give the samples of every group of two or more copies, each ascending.

    Only rows of equal squared norm are compared, which are few unless features are integers.
    """
    order = np.argsort(norms)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(norms[order])) + 1, [len(order)]])
    groups: list[Ints] = []
    for k in np.flatnonzero(np.diff(starts) > 1):
        found: dict[tuple[int, bytes], list[int]] = {}
        for i in np.sort(order[starts[k] : starts[k + 1]]).tolist():
            # Adding zero makes −0.0 and 0.0, which are equal, the same bytes.
            found.setdefault((labels[i], (features[i] + 0.0).tobytes()), []).append(i)
        groups += [np.array(rows) for rows in found.values() if len(rows) > 1]
    return groups


def share_alike(alpha: Doubles, groups: list[Ints]) -> None:
    """Give the samples of every group their mean α (N, K): W and the dual value stay as they are."""
    for rows in groups:
        alpha[rows] = alpha[rows].mean(axis=0)
