"""Localisation: how much of a pair's relevance lies on the shortcut that both samples have."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whence.core.arrays import Array, Ints
from whence.core.checks import check_count, to_array
from whence.core.display import displayed
from whence.metrics.arrays import classes, mask, numbers, split_mask


@displayed()
class Localisation(NamedTuple):
    """Where the relevance of a map is.

    Attributes
    ----------
    auc : area under the ROC curve of relevance as a detector of the shortcut's places, in [0, 1]; chance is
        0.5, and 1 says that every place of the shortcut has more relevance than any other
    share : of the positive relevance, the part on the shortcut, in [0, 1]; 0 where there is none
    chance : of the places, the part on the shortcut: the share of relevance that is the same everywhere
    """

    auc: float
    share: float
    chance: float


def localisation(relevance: Any, inside: Any, places: Any = None) -> Localisation:
    """Measure how well a map finds the places of a shortcut.

    Parameters
    ----------
    relevance : (…) or (channels, …)
        Relevance of each place, such as (T,) for tokens and (C, H, W) for an image, whose channels are
        summed. Positive is evidence for the explained class.
    inside : (…)
        True for the places of the shortcut: some, but not all.
    places : (…)
        Numbers of larger places that are counted instead, each with the sum of its relevance, such as the
        words that tokens belong to (``words_of``). One that is partly inside is inside.

    Examples
    --------
    >>> import numpy as np
    >>> localisation(np.array([0.1, 0.6, -0.2, 0.1]), np.array([False, True, False, False]))
    Localisation(auc=1, share=0.75, chance=0.25)
    """
    from sklearn.metrics import roc_auc_score

    where = mask("inside", inside, (None,) * to_array("inside", inside).ndim)
    with_channels = to_array("relevance", relevance).ndim == where.ndim + 1
    values: Array = numbers("relevance", relevance, (None, *where.shape) if with_channels else where.shape)
    values = values.astype(np.float64)
    values = (values.sum(0) if with_channels else values).ravel()
    where = where.ravel()
    if places is not None:
        numbers_of_places = classes("places", to_array("places", places).ravel(), len(where))
        _, numbered = np.unique(numbers_of_places, return_inverse=True)
        values, where = np.bincount(numbered, values), np.bincount(numbered, where) > 0
    where = split_mask("inside", where, len(where), "places")
    positive = values.clip(min=0)
    total = float(positive.sum())
    return Localisation(
        float(roc_auc_score(where, values)),
        float(positive[where].sum()) / total if total else 0.0,
        float(where.mean()),
    )


def caught_pairs(scores: Any, poisoned_mask: Any, k: int = 10, pairs: int = 1) -> Ints:
    """Find the training samples with the shortcut that are ranked first: (m, 2), a test and a sample.

    For each test, the first ``pairs`` of its k strongest proponents that have the shortcut, strongest first.
    Proponents have scores above 0; the first of tied samples comes first.

    Parameters
    ----------
    scores : (T, N)
        Scores of tests that the shortcut fooled, for the class that has it in training.
    poisoned_mask : (N,) or (T, N)
        True if a training sample has the shortcut: any, or the one of that test.
    k
        Number of proponents to check.
    pairs
        Maximum number of pairs per test.

    Examples
    --------
    >>> import numpy as np
    >>> caught_pairs(np.array([[3.0, 2.0, 1.0], [-1.0, 0.0, 1.0]]), np.array([True, True, False]), k=2)
    array([[0, 0]])
    """
    k = check_count("k", k)
    pairs = check_count("pairs", pairs)
    values = numbers("scores", scores, (None, None))
    T, N = values.shape
    per_test = to_array("poisoned_mask", poisoned_mask).ndim == 2
    poisoned = np.broadcast_to(mask("poisoned_mask", poisoned_mask, (T, N) if per_test else (N,)), (T, N))
    caught: list[tuple[int, int]] = []
    for test, row in enumerate(values):
        order = np.argsort(-row, kind="stable")[:k]
        hits = order[poisoned[test, order] & (row[order] > 0)][:pairs]
        caught += [(test, int(i)) for i in hits]
    return np.array(caught, dtype=np.int64).reshape(-1, 2)
