"""What training samples are ranked by when wrong labels are looked for, and where wrong labels go."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.special import log_softmax, logsumexp

from whence.audit.heldout import Listed, Scores, calibrate, held_out_scores, most_likely, standard
from whence.core.arrays import Doubles, Floats, Ints
from whence.features.rows import unit_rows
from whence.methods import DualDA

HEAD_SHARE = 2.0
"""Weight of the model's own probabilities for each part of the labels that it disagrees with, up to 1 in all.
A model that agrees with every label shows nothing about wrong ones."""

Ranked = tuple[Doubles, Ints]
"""Scores (M,), larger being more suspicious, and the classes (M,) that the ranking's classifier predicts."""


class Evidence:
    """What surrogates and model say about the M samples that took part in the fit, computed when asked for.

    Parameters
    ----------
    explainer : a fitted DualDA
    features : (M, d), or None where only the support vectors are known
    """

    def __init__(self, explainer: DualDA, features: Floats | None) -> None:
        self.explainer, self._features = explainer, features
        self.labels: Ints = explainer.labels_[explainer.used_]

    @cached_property
    def scores(self) -> Scores:
        """Those of surrogates solved without the sample, per layer and κ of ``KAPPAS``, and the model's."""
        explainer, layers = self.explainer, self.explainer.layers_
        assert self._features is not None
        return held_out_scores(
            unit_rows(self._features) if explainer.normalise else self._features,
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
        """Log-probabilities (M, T) of the classes that are listed.

        The mean over held-out surrogates and, as far as it disagrees with labels, the model, each calibrated.
        """
        listed, held_out, head = self.scores
        logs: Doubles = np.mean([calibrate(scores, listed) for scores in held_out], axis=0)
        if head is not None:
            mistaken = float((head.argmax(axis=1) != listed.label_column).mean())
            share = min(1.0, HEAD_SHARE * mistaken)
            logs = (1 - share) * logs + share * calibrate(head, listed)
        return log_softmax(logs, axis=1)


def odds(evidence: Evidence) -> Ranked:
    """log Σ_{c≠y} p_c D_cy − log p_y: how much likelier another class is that is taken for the label."""
    logs, listed = evidence.logs, evidence.scores.listed
    best = listed.name(logs.argmax(axis=1))
    if len(listed.seen) == 1:  # no other class
        return np.zeros(len(best)), best
    with np.errstate(divide="ignore"):
        others = logs + np.log(taken_for(logs, listed))
    scores: Doubles = logsumexp(others, axis=1) - logs[np.arange(len(best)), listed.label_column]
    return scores, best


def confidence(evidence: Evidence) -> Ranked:
    """−log p_y, as if any class were taken for any other."""
    logs, listed = evidence.logs, evidence.scores.listed
    return -logs[np.arange(len(logs)), listed.label_column], listed.name(logs.argmax(axis=1))


def slack(evidence: Evidence) -> Ranked:
    """ξ_i and the surrogate's class of all samples that took part.

    Support vectors are enough: at the optimum every other sample clears its margin of 1.
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
    """λ_{i,y_i}‖f_i‖², and the surrogate's class."""
    scores = evidence.explainer.self_influence().double().cpu().numpy()
    return scores[evidence.explainer.used_], slack(evidence)[1]


RANKINGS: dict[str, Callable[[Evidence], Ranked]] = {
    "odds": odds,
    "confidence": confidence,
    "slack": slack,
    "self_influence": self_influence,
}
"""Rankings by name: from the evidence to scores and suggested classes."""

# Which classes are taken for which, estimated from the labels themselves

_RATE = 0.1  # of wrong labels that the search begins with
_SHARPER = 4.0
"""How much sharper than the labels ask for the search begins. Wrong labels flatten the probabilities that
fit them best, and from these the search ends where nothing is wrong and everything hard."""

_STEPS = 50
_ENOUGH = 1e-3  # change of every rate below which the search ends
_EVEN = 1.0  # errors per class that are added as if they were spread evenly: no rate is 0
_GATHERED = 0.2
"""Concentration above which errors count as gathered in pairs of classes. On the sets that it was chosen on,
even errors had at most 0.11 and errors in pairs at least 0.34."""

_MANY = 2_000
"""Classes above which errors count as even: kinds of errors are then more than there are errors."""


def taken_for(scores: Floats, listed: Listed) -> Doubles:
    """Return D_cy of the classes (N, T) that are listed and of each sample's label: see ``destinations``."""
    k, y = len(listed.seen), listed.labels[:, None]
    if k > _MANY:
        even: Doubles = np.where(listed.classes == y, 0.0, 1 / (k - 1))
        return even
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
    D, errors = _search(standard(scores), listed, even)
    return D if concentration(D, errors) > _GATHERED else even


def concentration(D: Doubles, errors: Doubles) -> float:
    """Return how far the errors (K,) of each class gather in one other class: 1 for all, 0 as by chance.

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
