"""Groups of classes that a model does not confuse."""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_count, check_seed
from whence.errors import InvalidInputError
from whence.evaluate.metrics.arrays import numbers

_STARTS = 20  # partitions to start from; ten classes in pairs find the best of all 945 from most of them


def group_classes(confusion: Any, n_groups: int, seed: int = 0) -> Ints:
    """Put dissimilar classes into groups, so that a group has no common look: the group of each class, (K,).

    Minimises the confusion inside groups, Σ_g Σ_{a≠b in g} M_ab, where M is the confusion matrix with rows
    scaled to sum to 1. Groups have equal sizes, or sizes that differ by one. Seeded starts are improved by
    exchanging two classes while that helps; among equally good groupings the seed decides.

    Parameters
    ----------
    confusion : (K, K)
        Tests of class a (row) that a model takes for class b (column), as scikit-learn's
        ``confusion_matrix`` gives it, best of a model trained on the single classes.
    n_groups
        From 1 to K; K // 2 makes pairs.
    seed
        Of the starts.

    Examples
    --------
    >>> import numpy as np
    >>> group_classes(np.array([[8, 2, 0, 0], [2, 8, 0, 0], [0, 0, 8, 2], [0, 0, 2, 8]]), 2).tolist()
    [0, 1, 1, 0]
    """
    counts = numbers("confusion", confusion, (None, None)).astype(np.float64)
    K = len(counts)
    if counts.shape != (K, K) or (counts < 0).any():
        raise InvalidInputError(
            f"'confusion' must be square and nowhere negative. "
            f"Got shape {counts.shape}, least {counts.min()}."
        )
    n_groups = check_count("n_groups", n_groups)
    if n_groups > K:
        raise InvalidInputError(f"'n_groups' must be at most the {K} classes. Got {n_groups}.")
    rates = counts / np.maximum(counts.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    likeness = rates + rates.T
    np.fill_diagonal(likeness, 0)
    rng = np.random.default_rng(check_seed(seed))
    found = [_improved(likeness, rng.permutation(K) % n_groups) for _ in range(_STARTS)]
    costs = [_cost(likeness, groups) for groups in found]
    return _renumbered(found[int(np.argmin(costs))])


def _improved(likeness: Doubles, groups: Ints) -> Ints:
    """Exchange each class in turn with the one that lowers the cost most, until none does."""
    groups = groups.copy()
    everyone = np.arange(len(groups))
    pull = likeness @ np.eye(groups.max() + 1)[groups]  # (K, G) likeness of a class with a group
    better = True
    while better:
        better = False
        for a in everyone:
            g = groups[a]
            # What a costs more in the group of each b, and b in that of a; not with each other.
            change = pull[a, groups] - pull[a, g] + pull[:, g] - pull[everyone, groups] - 2 * likeness[a]
            change[groups == g] = 0
            b = change.argmin()
            if change[b] < -1e-12:  # below rounding, exchanges would go round in circles
                difference = likeness[:, b] - likeness[:, a]
                pull[:, g] += difference
                pull[:, groups[b]] -= difference
                groups[a], groups[b] = groups[b], g
                better = True
    return groups


def _cost(likeness: Doubles, groups: Ints) -> float:
    return float(likeness[groups[:, None] == groups].sum())


def _renumbered(groups: Ints) -> Ints:
    """Number groups in the order of their first class."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    numbers_of = np.argsort(np.argsort(first))
    return numbers_of[inverse]
