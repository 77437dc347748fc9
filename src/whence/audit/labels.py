"""Training samples whose label may be wrong, the most suspicious first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.attribution.training_features import training_features
from whence.audit.access import Table, check_ids, chosen_ids, markdown, surrogate_of
from whence.audit.rankings import RANKINGS, Evidence
from whence.core.arrays import Doubles, Floats, Ints, Mask
from whence.core.checks import check_choice, check_count
from whence.core.display import Columns, displayed
from whence.core.ranking import padded
from whence.features.metric import METRICS
from whence.features.novelty import nearest
from whence.methods import DualDA


@displayed("n_likely", "n_audited", "ranking", "__len__", "among", rows="columns")
@dataclass(frozen=True, eq=False)
class WrongLabels(Table):
    """Training samples ranked by how likely their label is wrong, the most suspicious first.

    Attributes
    ----------
    ranking : name of the ranking, see ``wrong_labels``
    indices : (n,) indices in the training set
    labels : (n,) their labels
    suggested : (n,) the class predicted by the ranking's classifier, or the label
    scores : (n,) **larger is more suspicious**
    self_influence : (n,) λ_{i,y_i}‖f_i‖²
    neighbours : (n, k) those of the k nearest samples, by the surrogate's features, that have another label,
        nearest first, then −1
    neighbour_labels : (n, k) their labels, then −1
    among : the pool of neighbours, "training samples" or "support vectors"
    class_names : one per class
    n_audited : number of ranked samples
    n_likely : number of labels that are more likely wrong than right
    ids : the user's ids, in the order of ``indices``, or None
    """

    ranking: str
    indices: Ints
    labels: Ints
    suggested: Ints
    scores: Doubles
    self_influence: Doubles
    neighbours: Ints
    neighbour_labels: Ints
    among: str
    class_names: tuple[str, ...]
    n_audited: int
    n_likely: int
    ids: tuple[Any, ...] | None = None

    def __len__(self) -> int:
        """Return the number of samples listed."""
        return len(self.indices)

    @property
    def likely(self) -> Mask:
        """Whether each label is more likely wrong than right, (n,)."""
        return _likely(self.scores, self.suggested, self.labels)

    @property
    def summary(self) -> str:
        """How many labels are more likely wrong than right, in a sentence."""
        if not self.n_likely:
            return f"Nothing found: none of {self.n_audited:,} labels is more likely wrong than right."
        names = {"odds": "log-odds above 0"}
        why = names.get(self.ranking, "another class is more likely")
        verb = "is" if self.n_likely == 1 else "are"
        return f"{self.n_likely:,} of {self.n_audited:,} labels {verb} more likely wrong than right: {why}."

    def columns(self) -> Columns:
        """Return the list as columns of plain values, one row per sample."""
        name = self.class_names
        return {
            "rank": list(range(1, len(self) + 1)),
            "index": self.indices.tolist(),
            **self._id_column(),
            "label": self.labels.tolist(),
            "label_name": [name[c] for c in self.labels],
            "suggested": self.suggested.tolist(),
            "suggested_name": [name[c] for c in self.suggested],
            "score": self.scores.tolist(),
            "self_influence": self.self_influence.tolist(),
            "neighbours": [row[row >= 0].tolist() for row in self.neighbours],
            "neighbour_labels": [row[row >= 0].tolist() for row in self.neighbour_labels],
        }

    def __str__(self) -> str:
        """Write how many were found, and the ten most suspicious as a table in Markdown."""
        k, name = self.neighbours.shape[1], self.class_names
        score = {"odds": "log-odds", "self_influence": "self-influence"}.get(self.ranking, self.ranking)
        titles = ("sample", "label", "suggested", score, "neighbours that disagree")
        return f"{self.summary}\n\n" + markdown(
            titles,
            (
                (
                    self.indices[j] if self.ids is None else self.ids[j],
                    name[self.labels[j]],
                    name[self.suggested[j]],
                    f"{self.scores[j]:.3g}",
                    f"{(self.neighbours[j] >= 0).sum()} of {k}",
                )
                for j in range(min(10, len(self)))
            ),
        )


def wrong_labels(
    explainer: DualDA,
    *,
    ranking: str = "odds",
    features: Any = None,
    n: int | None = None,
    k: int = 10,
    ids: Sequence[Any] | None = None,
) -> WrongLabels:
    """Rank training samples by how likely their label is wrong.

    Rankings, larger scores being more suspicious:

    - ``"odds"``, the default: log Σ_{c≠y_i} p_ic D_{c,y_i} − log p_{i,y_i}, the log-odds that the true class
      is another one that was mislabelled as y_i. log p is the mean over surrogates at two low C, solved
      without the sample on four fifths of the training set (one per layer if the explainer has several), and
      the model's own last layer, each calibrated with the scale and an offset per class that fit the labels
      best. The model's weight is twice the share of labels with which it disagrees, at most 1; it is 0 if the
      last layer is unknown. D_cy is the share of the errors of class c that have the label y, estimated from
      the labels (``destinations``). With more than 32 classes, p is over 32 candidates per sample: its label,
      the predicted class and those with the highest scores. Above 2,000 classes D is uniform.
    - ``"confidence"``: −log p_{i,y_i}, as if errors were uniform over classes.
    - ``"slack"``: ξ_i = max_c (1 − δ_{c,y_i} − w_{y_i}·f_i + w_c·f_i) at the fitted C, the loss of the
      surrogate that was trained on the sample. It is 0 for samples that are not support vectors.
    - ``"self_influence"``: λ_{i,y_i}‖f_i‖², how far the label depends on the sample itself. All bounded
      support vectors have λ = C, so that only the lengths of their features differ.

    Parameters
    ----------
    explainer
        A fitted DualDA.
    ranking
        One of the above; see docs/research/audit.md.
    features
        Features (N, d) of all training samples, or their FeatureBank. None takes those of the fit or, after
        ``load``, computes them with the model and its training set. "slack" and "self_influence" do not need
        them: neighbours are then support vectors.
    n
        Number of samples to list; None lists all.
    k
        Number of neighbours.
    ids
        One id per training sample, for the export.

    Examples
    --------
    >>> import numpy as np, whence
    >>> from whence.audit import wrong_labels
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 3
    >>> f = np.eye(3)[y] + 0.1 * rng.normal(size=(60, 3))
    >>> y[7] = 0  # it was 1
    >>> bank = whence.features.FeatureBank.of(f, y)
    >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(features=bank)
    >>> wrong = wrong_labels(explainer, features=f, n=3)
    >>> int(wrong.indices[0]), int(wrong.suggested[0])
    (7, 1)
    """
    surrogate = surrogate_of(explainer)
    check_choice("ranking", ranking, tuple(RANKINGS))
    k = check_count("k", k, 1, padded(explainer.n_train_))
    if n is not None:
        n = check_count("n", n)
    check_ids(ids, explainer.n_train_)
    unknown = explainer.model_ is None or explainer.data_ is None
    without = features is None and unknown and ranking in ("slack", "self_influence")
    X = None if without else training_features(explainer.fitted_, features)
    samples = np.flatnonzero(explainer.used_)
    scores, suggested = RANKINGS[ranking](Evidence(explainer, X))
    order = np.argsort(-scores, kind="stable")[:n]
    chosen = samples[order]
    if X is None:
        pool, pooled = explainer.support_, explainer.vectors_.cpu().numpy()
    else:
        pool, pooled = samples, surrogate.metric.rows(X)
    near = _disagreeing(explainer, pool, pooled, chosen, k)
    return WrongLabels(
        ranking=ranking,
        indices=chosen,
        labels=explainer.labels_[chosen],
        suggested=suggested[order],
        scores=scores[order],
        self_influence=surrogate.self_influence().double().cpu().numpy()[chosen],
        neighbours=near,
        neighbour_labels=np.where(near >= 0, explainer.labels_[near], -1),
        among="support vectors" if X is None else "training samples",
        class_names=explainer.task_.output_names,
        n_audited=len(samples),
        n_likely=int(_likely(scores, suggested, explainer.labels_[samples]).sum()),
        ids=chosen_ids(ids, chosen),
    )


def _likely(scores: Doubles, suggested: Ints, labels: Ints) -> Mask:
    """Return which labels are more likely wrong than right: suspicious, with another class suggested."""
    likely: Mask = (scores > 0) & (suggested != labels)
    return likely


def _disagreeing(explainer: DualDA, pool: Ints, features: Floats, chosen: Ints, k: int) -> Ints:
    """Return the neighbours in the pool with another label than the chosen samples, (n, k), then −1."""
    labels, disagreeing = explainer.labels_, np.full((len(chosen), k), -1, dtype=np.int64)
    inside = np.flatnonzero(np.isin(chosen, pool))  # samples without stored features have none
    width, rows = min(k, len(pool) - 1), np.searchsorted(pool, chosen[inside])
    if width < 1 or not len(rows):
        return disagreeing
    unit = METRICS["unit"].fit(features).rows(features)
    neighbours = pool[nearest(unit[rows], unit, width, rows, explainer.show_progress)[1]]
    for i, near in zip(inside, neighbours, strict=True):
        others = near[labels[near] != labels[chosen[i]]]
        disagreeing[i, : len(others)] = others
    return disagreeing
