"""Rankings of training samples for the search for wrong labels, and the estimation of label noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.special import log_softmax, logsumexp

from whence.audit.heldout import Listed, Scores, calibrate, held_out_scores, most_likely, standard
from whence.core.arrays import Doubles, Floats, Ints
from whence.methods import DualDA

HEAD_SHARE = 2.0
"""Weight of the model's probabilities per share of labels with which it disagrees, at most 1 in all. A model
that agrees with every label contains no information on wrong ones."""

Ranked = tuple[Doubles, Ints]
"""Scores (M,), larger being more suspicious, and the classes (M,) that the ranking's classifier predicts."""


class Evidence:
    """Scores of surrogates and model for the M samples of the fit, computed on demand.

    Parameters
    ----------
    explainer : a fitted DualDA
    features : (M, d), or None if only the support vectors are known
    """

    def __init__(self, explainer: DualDA, features: Floats | None) -> None:
        self.explainer, self._features = explainer, features
        self.labels: Ints = explainer.labels_[explainer.used_]

    @cached_property
    def scores(self) -> Scores:
        """Scores of held-out surrogates, per layer and κ of ``KAPPAS``, and of the model."""
        explainer, layers = self.explainer, self.explainer.layers_
        assert self._features is not None
        return held_out_scores(
            explainer.surrogate_.metric.rows(self._features),
            self.labels,
            explainer.n_classes_,
            bias=explainer.constant_ or False,
            places=[slice(None)] if layers is None else [*layers.places.values()],
            head=None if explainer.head_ is None else (explainer.head_, self._features),
            n_folds=min(5, len(self.labels)),
            seed=explainer.seed,
            n_threads=explainer.n_threads,
            show_progress=explainer.show_progress,
        )

    @cached_property
    def logs(self) -> Doubles:
        """Log-probabilities (M, T) of the candidate classes.

        They are the mean over calibrated held-out surrogates and the calibrated model, which has a weight if
        it disagrees with labels.
        """
        listed, held_out, head = self.scores
        logs: Doubles = np.mean([calibrate(scores, listed) for scores in held_out], axis=0)
        if head is not None:
            mistaken = float((head.argmax(axis=1) != listed.label_column).mean())
            share = min(1.0, HEAD_SHARE * mistaken)
            logs = (1 - share) * logs + share * calibrate(head, listed)
        return log_softmax(logs, axis=1)


def odds(evidence: Evidence) -> Ranked:
    """Rank by log Σ_{c≠y} p_c D_cy − log p_y, the log-odds of another class mislabelled as y."""
    logs, listed = evidence.logs, evidence.scores.listed
    best = listed.name(logs.argmax(axis=1))
    if len(listed.seen) == 1:  # no other class
        return np.zeros(len(best)), best
    with np.errstate(divide="ignore"):
        others = logs + np.log(taken_for(logs, listed))
    scores: Doubles = logsumexp(others, axis=1) - logs[np.arange(len(best)), listed.label_column]
    return scores, best


def confidence(evidence: Evidence) -> Ranked:
    """Rank by −log p_y, as if errors were uniform over classes."""
    logs, listed = evidence.logs, evidence.scores.listed
    return -logs[np.arange(len(logs)), listed.label_column], listed.name(logs.argmax(axis=1))


def slack(evidence: Evidence) -> Ranked:
    """Rank by ξ_i; the class is the surrogate's.

    Only support vectors are computed: at the optimum all other samples reach their margin of 1.
    """
    explainer = evidence.explainer
    losses, classes = np.zeros(explainer.n_train_), explainer.labels_.copy()
    for part, s in explainer.surrogate_.support_logits():
        rows = explainer.support_[part]
        y, places = explainer.labels_[rows], np.arange(len(rows))
        classes[rows] = s.argmax(axis=1)
        s += 1.0 - s[places, y][:, None]
        s[places, y] = 0.0
        losses[rows] = s.max(axis=1, initial=0.0)
    return losses[explainer.used_], classes[explainer.used_]


def self_influence(evidence: Evidence) -> Ranked:
    """Rank by λ_{i,y_i}‖f_i‖²; the class is the surrogate's."""
    scores = evidence.explainer.self_influence().double().cpu().numpy()
    return scores[evidence.explainer.used_], slack(evidence)[1]


RANKINGS: dict[str, Callable[[Evidence], Ranked]] = {
    "odds": odds,
    "confidence": confidence,
    "slack": slack,
    "self_influence": self_influence,
}
"""Rankings by name: functions from evidence to scores and suggested classes."""

# Estimation of label noise from the labels

_RATE = 0.1  # initial rate of wrong labels
_SHARPER = 4.0
"""Factor by which the initial scale exceeds the calibrated one. Wrong labels flatten calibrated
probabilities, and from these the search would end at a solution without wrong labels."""

_STEPS = 50
_ENOUGH = 1e-3  # the search ends below this change of all rates
_EVEN = 1.0  # uniform pseudo-errors per class, so that no rate is 0
_GATHERED = 0.2
"""Concentration above which errors count as gathered in pairs of classes. On the data sets of this choice,
uniform errors had at most 0.11 and errors in pairs at least 0.34."""

_MANY = 2_000
"""Number of classes above which errors count as uniform: there are more kinds of errors than errors."""


def taken_for(scores: Floats, listed: Listed) -> Doubles:
    """Return D_cy for the candidate classes (N, T) and each sample's label; see ``destinations``."""
    k, y = len(listed.seen), listed.labels[:, None]
    if k > _MANY:
        even: Doubles = np.where(listed.classes == y, 0.0, 1 / (k - 1))
        return even
    return destinations(scores, listed)[listed.classes, y]


def destinations(scores: Floats, listed: Listed) -> Doubles:
    """Estimate the noise matrix D (k, k): the share D_cy of the errors of class c that have the label y.

    A sample's class is drawn from p = softmax(β s_i + b), and mislabelled at a rate r: as y, at r·D_cy. The
    EM algorithm maximises Σ_i log((1 − r) p_{i,y_i} + r Σ_c p_ic D_{c,y_i}) over r, D, β and b. If errors
    have no preference, D would only follow chance and the classifier's mistakes, so it is uniform,
    1/(k − 1), unless ``concentration`` is high.

    Parameters
    ----------
    scores : (N, T) scores of a classifier that was not fitted on these labels; their scale does not matter
    listed : the candidate classes, and the labels

    Returns
    -------
    (k, k) for the classes that have labels, with 0 on the diagonal; rows sum to 1.

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
    D, errors = _search(standard(scores), listed, even)
    return D if concentration(D, errors) > _GATHERED else even


def concentration(D: Doubles, errors: Doubles) -> float:
    """Return how far the errors (K,) of each class concentrate in one other class: 1 for all, 0 for chance.

    Among n uniform errors over k classes the share of the most frequent kind is about 1/k + √(2 log k/(k n)).

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
    """Estimate D (k, k), and the number of errors of each class, (k,)."""
    k, classes, y = len(even), listed.classes, listed.labels[:, None]
    kinds = (classes * k + y).ravel()  # of class c and label y
    parameters = _SHARPER * most_likely(S, listed, listed.given)[1]
    logs: Doubles = log_softmax(parameters[0] * S + parameters[1:][classes], axis=1)
    rate, D = _RATE, even
    for _ in range(_STEPS):
        with np.errstate(divide="ignore"):
            joint = logs + np.log((1 - rate) * np.eye(k) + rate * D)[classes, y]
        posterior = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        wrong = np.bincount(kinds, posterior.ravel(), k * k).reshape(k, k)
        np.fill_diagonal(wrong, 0.0)
        errors = wrong.sum(axis=1)
        before = np.r_[rate, D.ravel()]
        rate, D = float(errors.sum()) / len(S), (wrong + _EVEN * even) / (errors[:, None] + _EVEN)
        if np.abs(np.r_[rate, D.ravel()] - before).max() < _ENOUGH:
            break
        logs, parameters = most_likely(S, listed, posterior, parameters)
    return D, errors
