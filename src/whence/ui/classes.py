"""The classes of the explorer: the evidence for each, and what separates two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from whence.audit import class_view
from whence.core.arrays import Doubles, Ints, Mask
from whence.errors import InvalidInputError
from whence.ui.explorer import Explorer
from whence.ui.gallery import uses
from whence.ui.requests import Answer

_STRONGEST = 12  # samples of a class in the class view
_SEPARATING = 8  # samples of a class in a comparison
_RIVALS = 8
_CONFUSED = 12  # pairs of classes
_SHARED = 5  # concepts


def classes(explorer: Explorer, offset: int = 0, limit: int | None = None) -> Answer:
    """A page of the classes, with their strongest training samples, and which are confused most often."""
    view = class_view(explorer.project.explainer, _STRONGEST).classes
    chosen = view[offset : None if limit is None else offset + limit]
    places = list(dict.fromkeys(i for one in chosen for i in one.proponents.tolist()))
    samples = dict(zip(places, explorer.training.samples(places), strict=True))
    rows = [
        {
            "name": one.name,
            "n_train": one.n_train,
            "n_support": one.n_support,
            "bounded": one.bounded,
            "top": one.proponents.tolist(),
            "samples": [samples[i] for i in one.proponents.tolist()],
        }
        for one in chosen
    ]
    return {"total": len(view), "rows": rows, "confused": _confused(explorer)}


def _confused(explorer: Explorer) -> list[Answer]:
    """The kinds of errors of the model, the most frequent first."""
    tests = explorer.tests
    errors = np.stack([tests.truths[tests.wrong], tests.predicted[tests.wrong]], axis=1)
    kinds, counts = np.unique(errors, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_CONFUSED].tolist()
    return [
        {"truth": int(kinds[j, 0]), "predicted": int(kinds[j, 1]), "count": int(counts[j])} for j in order
    ]


class _Border(NamedTuple):
    """What separates a class from another, or from all others, by support vectors.

    Attributes
    ----------
    labels : (S,)
    pulls : (S,) λ_i,one − λ_i,other, of all others λ_i,one: to which side each pulls
    shares : (S,) of w_one − w_other, of all others of w_one, which is the sum of what they pull
    margins : (S,) how far each is on its own label's side of the border
    held : (S,) whether a sample of one of the two is held apart from the other
    """

    labels: Ints
    pulls: Doubles
    shares: Doubles
    margins: Doubles
    held: Mask


def compare(explorer: Explorer, one: int, other: int | None = None) -> Answer:
    """Compare a class with another, or with all others where that is None.

    ``similarity`` is the cosine of the two classes' weights.
    """
    if not explorer.task.has_classes:
        raise InvalidInputError("Classes must be compared where outputs are classes. These are not.")
    explorer.check_class("one", one)
    if other is not None and explorer.check_class("other", other) == one:
        raise InvalidInputError(f"'other' must be another class than 'one', {one}. Got the same.")
    return {
        "one": one,
        "other": other,
        "similarity": None if other is None else float(_similarity(explorer, one)[other]),
        "sides": _sides(explorer, one, other),
        "rivals": _rivals(explorer, one),
        "shared": [] if other is None else _shared(explorer, one, other),
    }


def _border(explorer: Explorer, one: int, other: int | None) -> _Border:
    explainer = explorer.project.explainer
    W, labels = explainer.coef_, explainer.labels_[explainer.support_]
    lam = explainer.surrogate_.lam[explainer.support_].tocsc()
    mine = labels == one
    pulls = ones = lam[:, [one]].toarray().ravel()
    direction, held = W[one], np.where(mine, True, ones < 0)
    if other is not None:
        others = lam[:, [other]].toarray().ravel()
        pulls, direction, held = ones - others, W[one] - W[other], np.where(mine, others < 0, ones < 0)
    along, margins = np.empty(len(labels)), np.empty(len(labels))
    for rows, logits in explainer.surrogate_.support_logits():
        here, own = logits[:, one].copy(), logits[np.arange(len(logits)), labels[rows]]
        rival = logits[:, other] if other is not None else own
        along[rows] = here if other is None else here - rival
        if other is None:
            logits[:, one] = -np.inf
            margins[rows] = np.where(mine[rows], here - logits.max(axis=1), rival - here)
        else:
            margins[rows] = np.where(mine[rows], 1, -1) * along[rows]
    squares = direction**2
    if explainer.bias:
        squares[-1] /= explainer.constant_**2  # a bias is a weight on the constant times that constant
    length = max(float(squares.sum()), np.finfo(np.float64).tiny)
    return _Border(labels, pulls, pulls * along / length, margins, held)


def _sides(explorer: Explorer, one: int, other: int | None) -> list[Answer]:
    """The evidence for either class against the other: the tests that have it, and training samples.

    ``mistaken`` of ``n_tests`` are taken for the other; ``n_border`` training samples of it are held apart
    from the other by the surrogate. ``separating`` separate the two most, ``border`` are nearest the other.
    """
    tests, line = explorer.tests, _border(explorer, one, other)

    def has(labels: Any, side: int) -> Any:
        """Which labels (n,) are those of a side."""
        if side == 0:
            return labels == one
        return labels != one if other is None else labels == other

    sides = []
    for side, sign in ((0, 1), (1, -1)):
        border = np.flatnonzero(has(line.labels, side) & line.held)
        # Evidence against one class alone takes from it, and has a negative share.
        weight = line.shares * (sign if other is None else 1)
        separating = np.flatnonzero((sign * line.pulls > 0) & (weight > 0))
        truly = tests.valid & has(tests.truths, side)
        sides.append(
            {
                "n_tests": int(truly.sum()),
                "mistaken": int((truly & has(tests.predicted, 1 - side)).sum()),
                "n_border": len(border),
                "separating": _listed(explorer, _first(separating, -weight), line),
                "border": _listed(explorer, _first(border, line.margins), line),
            }
        )
    return sides


def _first(rows: Ints, by: Doubles) -> Ints:
    """The first rows, in ascending order of their values."""
    return rows[np.argsort(by[rows], kind="stable")[:_SEPARATING]]


def _listed(explorer: Explorer, rows: Ints, line: _Border) -> list[Answer]:
    """Return training samples at a border.

    ``share`` is a sample's part of what separates the classes, over all samples 1, and negative where it
    takes from that; ``margin`` is how far it is on its own label's side, 1 being far enough.
    """
    explainer = explorer.project.explainer
    places = explainer.support_[rows].tolist()
    return [
        {
            "index": place,
            "label": int(explainer.labels_[place]),
            "share": float(line.shares[row]),
            "margin": float(line.margins[row]),
            "sample": sample,
        }
        for row, place, sample in zip(rows.tolist(), places, explorer.training.samples(places), strict=True)
    ]


def _similarity(explorer: Explorer, one: int) -> Any:
    """Cosine (K,) of a class's weights with those of every class."""
    W = explorer.project.explainer.coef_
    lengths = np.linalg.norm(W, axis=1)
    return W @ W[one] / np.maximum(lengths * lengths[one], np.finfo(np.float64).tiny)


def _rivals(explorer: Explorer, one: int) -> list[Answer]:
    """The other classes that a class is held apart from, those by most training samples first."""
    explainer, tests = explorer.project.explainer, explorer.tests
    lam, labels = explainer.surrogate_.lam[explainer.support_], explainer.labels_[explainer.support_]
    mine = (lam[labels == one] < 0).sum(axis=0)
    held = np.asarray(mine).ravel() + np.bincount(
        labels[(lam[:, [one]] < 0).toarray().ravel()], minlength=len(explorer.names)
    )
    held[one] = 0
    similarity = _similarity(explorer, one)
    order: Sequence[int] = np.argsort(-held, kind="stable")[:_RIVALS].tolist()

    def confused(truth: int, predicted: int) -> int:
        return int((tests.valid & (tests.truths == truth) & (tests.predicted == predicted)).sum())

    return [
        {
            "other": c,
            "n_border": int(held[c]),
            "taken_for": confused(one, c),
            "taken_from": confused(c, one),
            "similarity": float(similarity[c]),
        }
        for c in order
        if held[c]
    ]


def _shared(explorer: Explorer, one: int, other: int) -> list[Answer]:
    """The concepts that raise the logits of both classes most, for the tests of either."""
    used = uses(explorer)
    parts = used.of(one), used.of(other)
    both = np.minimum(*parts)
    order = np.argsort(-both, kind="stable")[:_SHARED].tolist()
    names = explorer.solved.components.names
    return [
        {"name": names[j], "parts": (float(parts[0][j]), float(parts[1][j]))} for j in order if both[j] > 0
    ]
