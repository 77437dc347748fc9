"""What training samples are ranked by when wrong labels are looked for, and which ranking suits them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.special import log_softmax, softmax

from whence.attributors import DualDA
from whence.audit.heldout import calibrated, held_out_scores
from whence.core.arrays import Doubles, Floats, Ints

CRUDE = 2
"""Of the held-out surrogates, how many of the lowest κ give probabilities: wrong labels hardly move them."""

HEAD_SHARE = 2.0
"""Weight of the model's own probabilities for each part of the labels that it disagrees with, up to 1 in all.
A model that agrees with every label tells nothing about wrong ones."""

EVEN = 0.05
"""Evenness above which errors count as spread over the classes, if the judge makes no mistakes itself …"""

MISTAKEN_MODEL, MISTAKEN_SURROGATE = 0.25, 0.5
"""… and what is added to that per part of the labels that the judge, model or surrogates, disagrees with."""

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

    def _labelled(self, scores: Doubles) -> Doubles:
        """−∞ for classes without a label, which nothing can be said for."""
        absent = np.setdiff1d(np.arange(scores.shape[1]), self.labels)
        scores[:, absent] = -np.inf
        return scores


def suited(evidence: Evidence) -> str:
    """Choose "margin" where the errors gather in few pairs of classes, "confidence" where they do not.

    Let δ be the share of labels that a judge (the model's last layer, or without one the mean of the
    held-out scores) disagrees with, and e the share of these for which more than half of the classes score
    higher than the label, over what it would be for labels drawn at random. Errors are spread if e exceeds
    0.05 + δ/4, or 0.05 + δ/2 without a last layer: δ allows for the natural mistakes of a weak judge.
    Confidence is also taken where the features were fitted to the wrong labels, which shows in held-out
    surrogates that disagree with twice as many labels at κ = 300 as at 3,000.
    """
    y = evidence.labels
    judge, mistaken = evidence.logits, MISTAKEN_MODEL
    if judge is None:
        judge, mistaken = mean_score(evidence.held_out), MISTAKEN_SURROGATE
    spread = evenness(judge, y) > EVEN + mistaken * disagreement(judge, y)
    _, crude, bending, _ = (disagreement(scores, y) for scores in evidence.held_out)
    return "confidence" if spread or crude > MEMORISED * bending else "margin"


def disagreement(scores: Doubles, labels: Ints) -> float:
    """Give the share of samples that a class scores higher for than their label."""
    return float((_places(scores, labels) > 0).mean())


def evenness(scores: Doubles, labels: Ints) -> float:
    """Tell how far labels that the scores disagree with are spread over all other classes.

    It is the share of them that more than half of the classes score higher than, over the share among labels
    drawn at random from the other classes: near 1 for random errors of a good judge, near 0 where each wrong
    label is the second choice. Classes at −∞ do not count; with two classes it is 0.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.tile([3.0, 2.0, 1.0], (4, 1))  # the order is always 0, 1, 2
    >>> evenness(scores, np.array([0, 1, 1, 1])), evenness(scores, np.array([0, 0, 1, 2]))
    (0.0, 1.0)
    """
    n_classes = int(np.isfinite(scores[0]).sum())
    place = _places(scores, labels)
    wrong = place[place > 0]
    by_chance = float((np.arange(1, n_classes) > n_classes / 2).mean()) if n_classes > 2 else 0.0
    return float((wrong > n_classes / 2).mean()) / by_chance if by_chance and len(wrong) else 0.0


def _places(scores: Doubles, labels: Ints) -> Ints:
    """How many classes score higher than the label, (M,)."""
    own = np.take_along_axis(scores, labels[:, None], axis=1)
    places: Ints = (scores > own).sum(axis=1)
    return places


def mean_score(scores: list[Doubles]) -> Doubles:
    """Average over κ, (M, K); the unit of all is the margin of 1."""
    mean: Doubles = np.mean(scores, axis=0)
    return mean


def margin(evidence: Evidence) -> Ranked:
    """max_{c≠y} p_c − p_y, with p = softmax of the held-out scores averaged over κ."""
    p = softmax(mean_score(evidence.held_out), axis=1)
    rows, y = np.arange(len(p)), evidence.labels
    others = p.copy()
    others[rows, y] = 0.0
    return others.max(axis=1) - p[rows, y], p.argmax(axis=1)


def confidence(evidence: Evidence) -> Ranked:
    """−log p_y, p being calibrated: of the held-out surrogates of the lowest κ, and of the model."""
    y, logits = evidence.labels, evidence.logits
    logs: Doubles = np.mean([calibrated(scores, y) for scores in evidence.held_out[:CRUDE]], axis=0)
    if logits is not None:
        share = min(1.0, HEAD_SHARE * disagreement(logits, y))
        seen = np.unique(y)  # all others are at −∞, and 0 · −∞ is no number
        logs[:, seen] = (1 - share) * logs[:, seen] + share * calibrated(logits, y)[:, seen]
    logs = log_softmax(logs, axis=1)
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
    "margin": margin,
    "confidence": confidence,
    "slack": slack,
    "self_influence": self_influence,
}
"""Rankings by name: from the evidence to scores and suggested classes."""
