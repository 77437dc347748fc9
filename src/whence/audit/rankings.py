"""What training samples are ranked by when wrong labels are looked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.special import log_softmax, logsumexp

from whence.audit.confusion import taken_for
from whence.audit.heldout import Scores, calibrated, held_out_scores
from whence.core.arrays import Doubles, Floats, Ints
from whence.features.unit import unit_rows
from whence.methods import DualDA

HEAD_SHARE = 2.0
"""Weight of the model's own probabilities for each part of the labels that it disagrees with, up to 1 in all.
A model that agrees with every label tells nothing about wrong ones."""

Ranked = tuple[Doubles, Ints]
"""Scores (M,), larger being more suspicious, and the classes (M,) that the ranking's classifier gives."""


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
        logs: Doubles = np.mean([calibrated(scores, listed) for scores in held_out], axis=0)
        if head is not None:
            mistaken = float((head.argmax(axis=1) != listed.own).mean())
            share = min(1.0, HEAD_SHARE * mistaken)
            logs = (1 - share) * logs + share * calibrated(head, listed)
        return log_softmax(logs, axis=1)


def odds(evidence: Evidence) -> Ranked:
    """log Σ_{c≠y} p_c D_cy − log p_y: how much likelier another class is that is taken for the label."""
    logs, listed = evidence.logs, evidence.scores.listed
    best = listed.name(logs.argmax(axis=1))
    if len(listed.seen) == 1:  # no other class
        return np.zeros(len(best)), best
    with np.errstate(divide="ignore"):
        others = logs + np.log(taken_for(logs, listed))
    found: Doubles = logsumexp(others, axis=1) - logs[np.arange(len(best)), listed.own]
    return found, best


def confidence(evidence: Evidence) -> Ranked:
    """−log p_y, as if any class were taken for any other."""
    logs, listed = evidence.logs, evidence.scores.listed
    return -logs[np.arange(len(logs)), listed.own], listed.name(logs.argmax(axis=1))


def slack(evidence: Evidence) -> Ranked:
    """ξ_i and the surrogate's class of all samples that took part.

    Support vectors are enough: at the optimum every other sample clears its margin of 1.
    """
    explainer = evidence.explainer
    found, classes = np.zeros(explainer.n_train_), explainer.labels_.copy()
    for some, s in explainer.surrogate_.support_logits():
        rows = explainer.support_[some]
        y, each = explainer.labels_[rows], np.arange(len(rows))
        classes[rows] = s.argmax(axis=1)
        s += 1.0 - s[each, y][:, None]
        s[each, y] = 0.0
        found[rows] = s.max(axis=1, initial=0.0)
    return found[explainer.used_], classes[explainer.used_]


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
