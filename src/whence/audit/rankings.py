"""What training samples are ranked by when wrong labels are looked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.special import log_softmax, logsumexp

from whence.attributors import DualDA
from whence.audit.confusion import destinations
from whence.audit.heldout import calibrated, held_out_scores
from whence.core.arrays import Doubles, Floats, Ints
from whence.features.unit import unit_rows

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
    def held_out(self) -> list[Doubles]:
        """Scores (M, K) of surrogates solved without the sample, for each layer and κ of ``KAPPAS``."""
        explainer, layers = self.explainer, self.explainer.layers_
        assert self._features is not None
        rows = unit_rows(self._features) if explainer.normalise else self._features
        places = [slice(None)] if layers is None else [*layers.places.values()]
        return [
            scores
            for place in places
            for scores in held_out_scores(
                np.ascontiguousarray(rows[:, place]),
                self.labels,
                explainer.n_classes_,
                bias=explainer.constant_ or False,
                n_folds=min(5, len(self.labels)),
                seed=explainer.seed,
                n_threads=explainer.n_threads,
                show_progress=explainer.show_progress,
            )
        ]

    @cached_property
    def logits(self) -> Doubles | None:
        """The model's own (M, K), from its last layer; None where that is unknown."""
        head = self.explainer.head_
        if head is None:
            return None
        assert self._features is not None
        bias = 0.0 if head.bias is None else head.bias
        logits: Doubles = (self._features @ head.weight.T + bias).astype(np.float64)
        return logits

    @cached_property
    def logs(self) -> Doubles:
        """Log-probabilities (M, K) of all classes that have labels, −∞ for others.

        The mean over held-out surrogates and, as far as it disagrees with labels, the model, each calibrated.
        """
        y, seen = self.labels, np.unique(self.labels)
        logs: Doubles = np.mean([calibrated(scores, y)[:, seen] for scores in self.held_out], axis=0)
        if self.logits is not None:
            mistaken = float((seen[self.logits[:, seen].argmax(axis=1)] != y).mean())
            share = min(1.0, HEAD_SHARE * mistaken)
            logs = (1 - share) * logs + share * calibrated(self.logits, y)[:, seen]
        found = np.full((len(y), self.explainer.n_classes_), -np.inf)
        found[:, seen] = log_softmax(logs, axis=1)
        return found


def odds(evidence: Evidence) -> Ranked:
    """log Σ_{c≠y} p_c D_cy − log p_y: how much likelier another class is that is taken for the label."""
    logs, y = evidence.logs, evidence.labels
    rows, best = np.arange(len(y)), logs.argmax(axis=1)
    if not (y != y[0]).any():  # no other class
        return np.zeros(len(y)), best
    with np.errstate(divide="ignore"):
        others = logs + np.log(destinations(logs, y)[:, y].T)
    found: Doubles = logsumexp(others, axis=1) - logs[rows, y]
    return found, best


def confidence(evidence: Evidence) -> Ranked:
    """−log p_y, as if any class were taken for any other."""
    logs, y = evidence.logs, evidence.labels
    return -logs[np.arange(len(y)), y], logs.argmax(axis=1)


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
