"""Training samples whose label may be wrong, the most suspicious first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.attribution.training_features import training_features
from whence.audit.access import Table, check_ids, chosen_ids, markdown, surrogate_of
from whence.audit.rankings import RANKINGS, Evidence
from whence.core.arrays import Doubles, Floats, Ints
from whence.core.checks import check_choice, check_count
from whence.core.display import Columns, displayed
from whence.core.ranking import padded
from whence.features.novelty import nearest
from whence.features.rows import unit_rows
from whence.methods import DualDA


@displayed("ranking", "__len__", "among", rows="columns")
@dataclass(frozen=True, eq=False)
class WrongLabels(Table):
    """Training samples ranked by how likely their label is wrong, the most suspicious first.

    Attributes
    ----------
    ranking : what they are ranked by, see ``wrong_labels``
    indices : (n,) places in the training set
    labels : (n,) the label each has
    suggested : (n,) the class the ranking's classifier gives it; its own label where it has no better
    scores : (n,) **larger is more suspicious**
    self_influence : (n,) λ_{i,y_i}‖f_i‖²
    neighbours : (n, k) of the k samples with the most similar features those with another label, nearest
        first, then −1
    neighbour_labels : (n, k) their labels, then −1
    among : where neighbours were looked for, "training samples" or "support vectors"
    class_names : one per class
    ids : the user's own name of each sample, in the order of ``indices``; None where none were given
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
    ids: tuple[Any, ...] | None = None

    def __len__(self) -> int:
        """Return the number of samples listed."""
        return len(self.indices)

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
        """Write the first ten as a table in Markdown."""
        k, name = self.neighbours.shape[1], self.class_names
        titles = ("sample", "label", "suggested", self.ranking, "neighbours that disagree")
        return markdown(
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

    - ``"odds"``, the default: log Σ_{c≠y_i} p_ic D_{c,y_i} − log p_{i,y_i}, how much likelier another class
      is that is taken for the label. log p is the mean over surrogates of two low C that were solved on four
      fifths of the training set, without the sample (of each layer, where the explainer has several), and of
      the model's own last layer, each with the scale and an offset per class that fit the labels best. The
      model's weight is twice the share of labels that it disagrees with, at most 1; without a known last
      layer it has none. D_cy is the part of the errors of class c that has the label y, estimated from the
      labels (``destinations``). Where more than 32 classes have labels, 32 are looked at per sample: its
      label, the model's class and those that score highest; p is then a distribution over these. Above 2,000
      classes D is even.
    - ``"confidence"``: −log p_{i,y_i}, as if errors went to all classes alike.
    - ``"slack"``: ξ_i = max_c (1 − δ_{c,y_i} − w_{y_i}·f_i + w_c·f_i) at the fitted C, the loss of the
      surrogate that has seen the sample. It is 0 for all samples that are no support vectors.
    - ``"self_influence"``: λ_{i,y_i}‖f_i‖², how far the label depends on the sample itself. All bounded
      support vectors have λ = C, so that only the length of their features tells them apart.

    Parameters
    ----------
    explainer
        A fitted DualDA.
    ranking
        One of the above; see docs/audit.md.
    features
        Features (N, d) of all training samples, or their FeatureBank. None computes them again from the
        model and the training set. "slack" and "self_influence" do without: what
        neighbours they can show are then support vectors.
    n
        Samples to list; None lists all.
    k
        Neighbours to look at.
    ids
        The user's own name of every training sample, for the export.

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
    pool, pooled = (explainer.support_, explainer.vectors_.cpu().numpy()) if X is None else (samples, X)
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
        ids=chosen_ids(ids, chosen),
    )


def _disagreeing(explainer: DualDA, pool: Ints, features: Floats, chosen: Ints, k: int) -> Ints:
    """Find the neighbours in the pool with another label than the chosen samples, (n, k), then −1."""
    labels, disagreeing = explainer.labels_, np.full((len(chosen), k), -1, dtype=np.int64)
    inside = np.flatnonzero(np.isin(chosen, pool))  # a sample whose features were not kept has none
    width, rows = min(k, len(pool) - 1), np.searchsorted(pool, chosen[inside])
    if width < 1 or not len(rows):
        return disagreeing
    unit = unit_rows(features)
    neighbours = pool[nearest(unit[rows], unit, width, rows, explainer.show_progress)[1]]
    for i, near in zip(inside, neighbours, strict=True):
        others = near[labels[near] != labels[chosen[i]]]
        disagreeing[i, : len(others)] = others
    return disagreeing
