"""What training samples are ranked by when wrong labels are looked for, and which ranking suits them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.special import log_softmax, logsumexp

from whence.attributors import DualDA
from whence.audit.confusion import Confusion
from whence.audit.confusion import confusion as estimated
from whence.audit.heldout import calibrated, held_out_scores
from whence.core.arrays import Doubles, Floats, Ints

CRUDE = 2
"""Of the held-out surrogates, how many of the lowest κ give probabilities: wrong labels hardly move them."""

HEAD_SHARE = 2.0
"""Weight of the model's own probabilities for each part of the labels that it disagrees with, up to 1 in all.
A model that agrees with every label tells nothing about wrong ones."""

CONCENTRATED = 0.35
"""Concentration of the estimated errors from which classes count as confused in pairs."""

MEMORISED = 2.0
"""Disagreement at κ = 300 over that at 3,000 from which the features count as fitted to the wrong labels."""

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
        """Scores (M, K) of surrogates that were solved without the sample, one array per κ of ``KAPPAS``."""
        explainer = self.explainer
        assert self._features is not None
        scores = held_out_scores(
            self._features,
            self.labels,
            explainer.n_classes_,
            bias=explainer.constant_ or False,
            n_folds=min(5, len(self.labels)),
            seed=explainer.seed,
            n_threads=explainer.n_threads,
            show_progress=explainer.show_progress,
        )
        return [self._labelled(part) for part in scores]

    @cached_property
    def logits(self) -> Doubles | None:
        """The model's own (M, K), from its last layer; None where that is unknown."""
        head = self.explainer.head_
        if head is None:
            return None
        assert self._features is not None
        bias = 0.0 if head.bias is None else head.bias
        return self._labelled((self._features @ head.weight.T + bias).astype(np.float64))

    @cached_property
    def logs(self) -> Doubles:
        """log p (M, K): of the held-out surrogates of the lowest κ and of the model, both calibrated."""
        y, logits = self.labels, self.logits
        logs: Doubles = np.mean([calibrated(scores, y) for scores in self.held_out[:CRUDE]], axis=0)
        if logits is not None:
            share = min(1.0, HEAD_SHARE * disagreement(logits, y))
            seen = np.unique(y)  # all others are at −∞, and 0 · −∞ is no number
            logs[:, seen] = (1 - share) * logs[:, seen] + share * calibrated(logits, y)[:, seen]
        normalised: Doubles = log_softmax(logs, axis=1)
        return normalised

    @cached_property
    def confusion(self) -> Confusion:
        """Which classes are taken for which, by these probabilities."""
        return estimated(self.logs, self.labels)

    def _labelled(self, scores: Doubles) -> Doubles:
        """−∞ for classes without a label, which nothing can be said for."""
        absent = np.setdiff1d(np.arange(scores.shape[1]), self.labels)
        scores[:, absent] = -np.inf
        return scores


def suited(evidence: Evidence) -> str:
    """Choose "confusion" where the errors gather in few pairs of classes, "confidence" where they do not.

    Rates of errors are estimated from the labels (``audit.confusion``); they gather in pairs where their
    concentration is at least 0.35. Confidence is also taken where the features were fitted to the wrong
    labels, which leaves too few errors to estimate rates from: held-out surrogates then disagree with twice
    as many labels at κ = 300 as at 3,000.
    """
    _, crude, bending = (disagreement(scores, evidence.labels) for scores in evidence.held_out)
    paired = evidence.confusion.concentration >= CONCENTRATED
    return "confusion" if paired and crude <= MEMORISED * bending else "confidence"


def disagreement(scores: Doubles, labels: Ints) -> float:
    """Give the share of samples that a class scores higher for than their label."""
    own = np.take_along_axis(scores, labels[:, None], axis=1)
    return float((scores > own).any(axis=1).mean())


def confidence(evidence: Evidence) -> Ranked:
    """−log p_y, p being calibrated: of the held-out surrogates of the lowest κ, and of the model."""
    logs, y = evidence.logs, evidence.labels
    return -logs[np.arange(len(y)), y], logs.argmax(axis=1)


def confusion(evidence: Evidence) -> Ranked:
    """log Σ_{c≠y} p_c T_cy − log p_y T_yy, the odds that another class was taken for the label."""
    found, y = evidence.confusion, evidence.labels
    joint, rows = found.joint, np.arange(len(y))
    others = joint.copy()
    others[rows, y] = -np.inf
    with np.errstate(divide="ignore"):
        odds: Doubles = logsumexp(others, axis=1) - joint[rows, y]
    return np.nan_to_num(odds, neginf=np.finfo(np.float64).min), found.logs.argmax(axis=1)


def slack(evidence: Evidence) -> Ranked:
    """ξ_i and the surrogate's class of all samples that took part.

    Support vectors are enough: at the optimum every other sample clears its margin of 1.
    """
    explainer = evidence.explainer
    support, s = explainer.support_, explainer.surrogate_.support_logits()
    y = explainer.labels_[support]
    own = s[np.arange(len(y)), y]
    violation = s + 1.0 - own[:, None]
    violation[np.arange(len(y)), y] = 0.0
    found, classes = np.zeros(explainer.n_train_), explainer.labels_.copy()
    found[support], classes[support] = violation.max(axis=1, initial=0.0), s.argmax(axis=1)
    return found[explainer.used_], classes[explainer.used_]


def self_influence(evidence: Evidence) -> Ranked:
    """λ_{i,y_i}‖f_i‖², and the surrogate's class."""
    scores = evidence.explainer.self_influence().double().cpu().numpy()
    return scores[evidence.explainer.used_], slack(evidence)[1]


RANKINGS: dict[str, Callable[[Evidence], Ranked]] = {
    "confidence": confidence,
    "confusion": confusion,
    "slack": slack,
    "self_influence": self_influence,
}
"""Rankings by name: from the evidence to scores and suggested classes."""
