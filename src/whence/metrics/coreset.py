"""Coreset selection and adversarial pruning: training samples by importance, and the retrained models."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_places, check_seed, check_share, check_that
from whence.core.display import displayed
from whence.metrics.arrays import classes, numbers

FRACTIONS: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares p of the training set with which, or without which, models are retrained."""


def coreset_order(scores: Any, seed: int = 0) -> Ints:
    """Order training samples by importance, mean |τ(x, i)| over the tests, largest first, (N,).

    Samples of equal importance, such as all that a sparse method leaves at zero, come in a random order, not
    in the one they are stored in.

    Parameters
    ----------
    scores : (T, N)
    seed
        Seed of the order of ties.

    Examples
    --------
    >>> import numpy as np
    >>> coreset_order(np.array([[0.0, 1.0, -3.0], [1.0, -1.0, 0.0]]))
    array([2, 1, 0])
    """
    return order_by(importance(scores), seed)


def importance(scores: Any) -> Doubles:
    """Return mean |τ(x, i)| over the tests for scores (T, N), (N,)."""
    mean: Doubles = np.abs(numbers("scores", scores, (None, None))).mean(axis=0, dtype=np.float64)
    return mean


def order_by(worth: Any, seed: int = 0) -> Ints:
    """Order training samples by their values (N,), largest first, (N,); ties are broken at random.

    If all are equal, the order is random.

    Examples
    --------
    >>> order_by([0.5, -2.0, 3.0])
    array([2, 0, 1])
    """
    seed = check_seed(seed)
    given = numbers("worth", worth, (None,)).astype(np.float64)
    lots = np.random.default_rng(seed).permutation(len(given))
    return lots[np.argsort(-given[lots], kind="stable")]


def coreset(order: Ints, fraction: float, labels: Any = None) -> Ints:
    """Return the indices of the most important share of the training set, to retrain on.

    With ``labels`` (N,) it is balanced: the most important of every class, each class in proportion to its
    share of the training set. What is left of whole samples goes to the largest remainders, and among equal
    ones to the classes that come first.

    Examples
    --------
    >>> import numpy as np
    >>> order = np.array([0, 1, 2, 3, 4, 5])
    >>> coreset(order, 0.5)
    array([0, 1, 2])
    >>> coreset(order, 0.5, labels=[0, 0, 0, 0, 1, 1])
    array([0, 1, 4])
    """
    return _split(order, fraction, labels)[0]


def pruned(order: Ints, fraction: float, labels: Any = None) -> Ints:
    """Return the remaining indices without the samples that ``coreset`` returns, to retrain on."""
    return _split(order, fraction, labels)[1]


def _split(order: Any, fraction: float, labels: Any) -> tuple[Ints, Ints]:
    places = classes("order", order)
    check_that(places.min() >= 0, "order", "be places of training samples", places.min())
    fraction = check_share("fraction", fraction)
    count = round(fraction * len(places))
    rule = f"take some of the {len(places)} samples and leave some"
    check_that(0 < count < len(places), "fraction", rule, fraction)
    if labels is None:
        return places[:count], places[count:]
    known = classes("labels", labels, len(places))[check_places("order", places, len(places))]
    _, of = np.unique(known, return_inverse=True)
    chosen = _before_in_class(of) < _seats(np.bincount(of), count)[of]
    return places[chosen], places[~chosen]


def _seats(sizes: Ints, count: int) -> Ints:
    """Divide ``count`` among classes in proportion to their sizes, by largest remainders."""
    # Whole numbers: remainders that are equal stay so.
    seats, rest = np.divmod(count * sizes, sizes.sum())
    seats[np.argsort(-rest, kind="stable")[: count - seats.sum()]] += 1
    return seats


def _before_in_class(of: Ints) -> Ints:
    """Return for every position of an order the number of earlier samples of its class, (N,)."""
    sizes = np.bincount(of)
    before = np.empty_like(of)
    before[np.argsort(of, kind="stable")] = np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return before


def weighted_mean(values: Any, fractions: Any = FRACTIONS) -> float:
    """Return the mean of values at fractions p of the training set, weighted by 1/p: Σ_p v(p)/p / Σ_p 1/p.

    Small fractions, where methods differ most, count most: 10 % as much as 90 % nine times over. Of coreset
    losses lower is better, of pruning losses higher.

    Parameters
    ----------
    values : (P,)
        Test losses or accuracies against true labels.
    fractions : (P,)

    Examples
    --------
    >>> round(weighted_mean([3.0, 0.0], [0.1, 0.2]), 10)
    2.0
    """
    p = numbers("fractions", fractions, (None,))
    v = numbers("values", values, (len(p),))
    check_that((p > 0).all(), "fractions", "be above 0", p.min())
    return float(np.average(v, weights=1 / p))


@displayed()
class Performance(NamedTuple):
    """Mean cross-entropy, in nats, and accuracy of a model on a test set."""

    loss: float
    accuracy: float


def performance(logits: Any, true_labels: Any) -> Performance:
    """Compute loss and accuracy against true labels.

    Parameters
    ----------
    logits : (T, K)
    true_labels : (T,)
        True labels, never predictions of a model.

    Examples
    --------
    >>> import numpy as np
    >>> performance(np.array([[0.0, 0.0], [0.0, 0.0]]), np.array([0, 1])).loss.__round__(4)
    0.6931
    """
    z: Doubles = numbers("logits", logits, (None, None)).astype(np.float64)
    labels = check_places("true_labels", classes("true_labels", true_labels, len(z)), z.shape[1])
    losses = logsumexp(z, axis=1) - z[np.arange(len(z)), labels]
    return Performance(float(losses.mean()), float((z.argmax(axis=1) == labels).mean()))
