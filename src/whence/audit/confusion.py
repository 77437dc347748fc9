"""Where wrong labels go: which classes are taken for which, estimated from the labels themselves."""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax, logsumexp

from whence.audit.heldout import Listed, likeliest, standard
from whence.core.arrays import Doubles, Floats

_RATE = 0.1  # of wrong labels that the search begins with
_SHARPER = 4.0
"""How much sharper than the labels ask for the search begins. Wrong labels flatten the probabilities that
suit them best, and from these the search ends where nothing is wrong and everything hard."""

_STEPS = 50
_ENOUGH = 1e-3  # change of every rate below which the search ends
_EVEN = 1.0  # errors per class that are put in as if they were spread evenly: no rate is 0
_GATHERED = 0.2
"""Concentration above which errors count as gathered in pairs of classes. On the sets that it was chosen on,
even errors had at most 0.11 and errors in pairs at least 0.34."""


_MANY = 2_000
"""Classes above which errors count as even: kinds of errors are then more than there are errors."""


def taken_for(scores: Floats, listed: Listed) -> Doubles:
    """D_cy of the classes (N, T) that are listed and of each sample's label: see ``destinations``."""
    k, y = len(listed.seen), listed.labels[:, None]
    if k > _MANY:
        found: Doubles = np.where(listed.classes == y, 0.0, 1 / (k - 1))
        return found
    return destinations(scores, listed)[listed.classes, y]


def destinations(scores: Floats, listed: Listed) -> Doubles:
    """Estimate where wrong labels go: D (k, k), the part D_cy of the errors of class c that has the label y.

    A sample's class is drawn from p = softmax(β s_i + b), and is taken for another at a rate r: for y, at
    r·D_cy. Expectation and maximisation of Σ_i log((1 − r) p_{i,y_i} + r Σ_c p_ic D_{c,y_i}) finds r, D, β
    and b. In errors that have no preference D would only follow chance and the classifier's own mistakes,
    so it is even, 1/(k − 1), unless ``concentration`` says that errors gather.

    Parameters
    ----------
    scores : (N, T) of a classifier that the labels have not been fitted by; their scale does not matter
    listed : the classes that they are of, and the labels

    Returns
    -------
    (k, k), of the classes that have labels, with 0 on the diagonal; rows sum to 1.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.arange(600) % 3
    >>> labels = np.where(np.arange(600) % 5 == 0, (truth + 1) % 3, truth)  # a fifth is taken for the next
    >>> scores = np.eye(3)[truth] + 0.2 * np.random.default_rng(0).normal(size=(600, 3))
    >>> destinations(scores, Listed.all_of(labels)).round(1) + 0.0
    array([[0., 1., 0.],
           [0., 0., 1.],
           [1., 0., 0.]])
    """
    k = len(listed.seen)
    even = (1 - np.eye(k)) / max(k - 1, 1)
    if k <= 2:
        return even
    found, errors = _search(standard(scores), listed, even)
    return found if concentration(found, errors) > _GATHERED else even


def concentration(D: Doubles, errors: Doubles) -> float:
    """Give how far the errors of each class, so many (K,), gather in one other: at 1 all, at 0 as by chance.

    Of n even errors over k classes the most frequent kind is a part of about 1/k + √(2 log k / (k n)).

    Examples
    --------
    >>> import numpy as np
    >>> pairs, even = np.roll(np.eye(5), 1, axis=1), (1 - np.eye(5)) / 4
    >>> [concentration(D, np.full(5, 100.0)) for D in (pairs, even)], concentration(pairs, np.full(5, 0.5))
    ([1.0, 0.0], 0.0)
    """
    k, total = len(D) - 1, float(errors.sum())
    if not total:
        return 0.0
    most = float(errors @ D.max(axis=1)) / total
    chance = float((errors / k + np.sqrt(2 * np.log(k) * errors / k)).sum()) / total
    return max(0.0, (most - chance) / (1 - chance)) if chance < 1 else 0.0


def _search(S: Doubles, listed: Listed, even: Doubles) -> tuple[Doubles, Doubles]:
    """Find D (k, k), and how many errors each class has, (k,)."""
    k, classes, y = len(even), listed.classes, listed.labels[:, None]
    kinds = (classes * k + y).ravel()  # of class c and label y
    parameters = _SHARPER * likeliest(S, listed, listed.given)[1]
    logs: Doubles = log_softmax(parameters[0] * S + parameters[1:][classes], axis=1)
    rate, D = _RATE, even
    for _ in range(_STEPS):
        with np.errstate(divide="ignore"):
            joint = logs + np.log((1 - rate) * np.eye(k) + rate * D)[classes, y]
        odds = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        wrong = np.bincount(kinds, odds.ravel(), k * k).reshape(k, k)
        np.fill_diagonal(wrong, 0.0)
        errors = wrong.sum(axis=1)
        before = np.r_[rate, D.ravel()]
        rate, D = float(errors.sum()) / len(S), (wrong + _EVEN * even) / (errors[:, None] + _EVEN)
        if np.abs(np.r_[rate, D.ravel()] - before).max() < _ENOUGH:
            break
        logs, parameters = likeliest(S, listed, odds, parameters)
    return D, errors
