"""Coreset selection and adversarial pruning: training samples by importance, and models without them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_places, check_seed, check_share
from whence.core.display import displayed
from whence.errors import InvalidInputError
from whence.evaluate.metrics.arrays import classes, numbers

FRACTIONS: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares p of the training set that models are retrained on, or without."""


def coreset_order(scores: Any, seed: int = 0) -> Ints:
    """Order training samples by importance, mean |τ(x, i)| over the tests, largest first, (N,).

    Samples of equal importance, such as all that a sparse method leaves at zero, come in a random order, not
    in the one they are stored in.

    Parameters
    ----------
    scores : (T, N)
    seed
        Of the order among equals.

    Examples
    --------
    >>> import numpy as np
    >>> coreset_order(np.array([[0.0, 1.0, -3.0], [1.0, -1.0, 0.0]]))
    array([2, 1, 0])
    """
    seed = check_seed(seed)
    importance = np.abs(numbers("scores", scores, (None, None))).mean(axis=0, dtype=np.float64)
    lots = np.random.default_rng(seed).permutation(len(importance))
    return lots[np.argsort(-importance[lots], kind="stable")]


def coreset(order: Ints, fraction: float) -> Ints:
    """Indices of the most important share of the training set, to retrain on."""
    return _split(order, fraction)[0]


def pruned(order: Ints, fraction: float) -> Ints:
    """Indices of what is left without the most important share of the training set, to retrain on."""
    return _split(order, fraction)[1]


def _split(order: Any, fraction: float) -> tuple[Ints, Ints]:
    places = classes("order", order)
    if places.min() < 0:
        raise InvalidInputError(f"'order' must be places of training samples. Got {places.min()} among them.")
    fraction = check_share("fraction", fraction)
    count = round(fraction * len(places))
    if not 0 < count < len(places):
        raise InvalidInputError(
            f"'fraction' must take some of the {len(places)} samples and leave some. "
            f"Got {fraction!r}, which is {count}."
        )
    return places[:count], places[count:]


def weighted_mean(values: Any, fractions: Any = FRACTIONS) -> float:
    """Mean of values at fractions p of the training set, weighted by 1/p: Σ_p v(p)/p / Σ_p 1/p.

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
    if (p <= 0).any():
        raise InvalidInputError(f"'fractions' must be above 0. Got {p.min()}.")
    return float(np.average(v, weights=1 / p))


def loss_of(seed: int) -> str:
    """Name, in results, of the losses of models that were trained from one seed."""
    return f"loss_of_seed_{seed}"


@displayed()
class Performance(NamedTuple):
    """Mean cross-entropy, in nats, and accuracy of a model on a test set."""

    loss: float
    accuracy: float


def performance(logits: Any, true_labels: Any) -> Performance:
    """Measure predictions against true labels.

    Parameters
    ----------
    logits : (T, K)
    true_labels : (T,)
        What the tests are, never what some model says they are.

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
