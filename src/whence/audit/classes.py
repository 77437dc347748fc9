"""Summaries of the classes of a training set, from the dual solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.audit.access import markdown, surrogate_of
from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_count
from whence.core.display import Columns, displayed
from whence.methods import DualDA
from whence.pages.pictures import plain

_AT_BOUND = 1 - 1e-9


@displayed()
@dataclass(frozen=True, eq=False)
class ClassSummary:
    """Summary of one class.

    Attributes
    ----------
    name : name of the class
    n_train : number of training samples with this label
    n_support : number of support vectors among them
    n_bounded : number of these at the bound λ_{i,y_i} = C, which do not reach their margin
    bounded : n_bounded / n_support; 0 without support vectors
    margins : (n_support,) margins w_{y_i}·f_i − max_{c≠y_i} w_c·f_i of its support vectors, ascending. All
        other samples have at least 1; below 0 the surrogate predicts another class
    proponents : (k,) the samples with the largest global attribution λ_ic; ties at the bound are ordered by
        their shares
    coefficients : (k,) their λ_ic
    shares : (k,) their shares λ_ic f_i·w_c / ‖w_c‖² of the class's weights, which sum to 1 over all samples,
        including opponents
    """

    name: str
    n_train: int
    n_support: int
    n_bounded: int
    bounded: float
    margins: Doubles
    proponents: Ints
    coefficients: Doubles
    shares: Doubles


@displayed("C", rows="columns")
@dataclass(frozen=True, eq=False)
class ClassView:
    """All classes, in order.

    Attributes
    ----------
    classes : one summary per class
    C : the C of the solution
    """

    classes: tuple[ClassSummary, ...]
    C: float

    def to_dict(self) -> dict[str, Any]:
        """Return everything in plain JSON types."""
        return dict(plain(self))

    def columns(self) -> Columns:
        """Return columns of plain values, one row per class."""
        names = ("name", "n_train", "n_support", "bounded")
        return {
            **{name: [getattr(one, name) for one in self.classes] for name in names},
            "median_margin": [float(np.median(c.margins)) if c.n_support else None for c in self.classes],
            "proponents": [one.proponents.tolist() for one in self.classes],
        }

    def __str__(self) -> str:
        """Format a table in Markdown."""
        titles = ("class", "samples", "support vectors", "at the bound", "median margin", "proponents")
        rows = zip(*self.columns().values(), strict=True)
        cells = (
            (
                *counts,
                f"{bounded:.0%}",
                "–" if margin is None else f"{margin:.2f}",
                ", ".join(map(str, top)) or "–",
            )
            for *counts, bounded, margin, top in rows
        )
        return markdown(titles, cells)


def class_view(explainer: DualDA, k: int = 5) -> ClassView:
    """Summarise every class: its support vectors, the share at the bound, and its strongest evidence.

    Parameters
    ----------
    explainer
        A fitted DualDA.
    k
        Maximum number of proponents per class.

    Examples
    --------
    >>> import numpy as np, whence
    >>> from whence.audit import class_view
    >>> bank = whence.features.FeatureBank.of(np.eye(3), np.arange(3))
    >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(features=bank)
    >>> [summary.n_support for summary in class_view(explainer).classes]
    [1, 1, 1]
    """
    surrogate = surrogate_of(explainer)
    k = check_count("k", k)
    support, W = explainer.support_, explainer.coef_
    labels, margins = explainer.labels_[support], np.empty(len(support))
    for part, logits in surrogate.support_logits():
        places, y = np.arange(len(logits)), labels[part]
        of_label = logits[places, y]
        logits[places, y] = -np.inf
        margins[part] = of_label - logits.max(axis=1, initial=-np.inf)
    squares = W**2
    if explainer.bias:
        squares[:, -1] /= explainer.constant_**2  # a bias is a weight on the constant times that constant
    lengths = np.maximum(squares.sum(axis=1), np.finfo(np.float64).tiny)
    columns = surrogate.lam[support].tocsc()
    n_train = np.bincount(explainer.labels_[explainer.used_], minlength=len(W))
    classes = []
    for c, name in enumerate(explainer.task_.output_names):
        entries = slice(columns.indptr[c], columns.indptr[c + 1])
        rows, lam = columns.indices[entries], columns.data[entries]
        rows, lam = rows[lam > 0], lam[lam > 0]
        at_bound = lam >= _AT_BOUND * explainer.C_
        scores = surrogate.stored[rows].double().cpu().numpy() @ W[c, : surrogate.stored.shape[1]]
        shares = lam * (scores + (W[c, -1] if explainer.bias else 0.0)) / lengths[c]
        best = np.lexsort((-shares, -np.where(at_bound, explainer.C_, lam)))[:k]
        n_support, n_bounded = int((labels == c).sum()), int(at_bound.sum())
        classes.append(
            ClassSummary(
                name=name,
                n_train=int(n_train[c]),
                n_support=n_support,
                n_bounded=n_bounded,
                bounded=n_bounded / n_support if n_support else 0.0,
                margins=np.sort(margins[labels == c]),
                proponents=support[rows[best]],
                coefficients=lam[best],
                shares=shares[best],
            )
        )
    return ClassView(tuple(classes), explainer.C_)
