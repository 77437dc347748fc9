"""The class views of the explorer: evidence for each class, what separates two, concepts of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from whence.audit import class_view
from whence.core.arrays import Doubles, Ints, Mask
from whence.errors import InvalidInputError
from whence.relevance import Concepts
from whence.ui.explorer import Explorer
from whence.ui.requests import Answer

_STRONGEST = 12  # samples of a class in the class view
_SEPARATING = 8  # samples of a class in a comparison
_RIVALS = 8
_CONFUSED = 12  # pairs of classes
_MATRIX = 24  # classes in a confusion matrix
_SHARED = 5  # concepts
_SHOWN = 8  # samples at each end of a concept
_USERS = 4  # classes per concept
_UNUSED = 1e-3  # concepts with a smaller share are left out


def classes(explorer: Explorer, offset: int = 0, limit: int | None = None) -> Answer:
    """Return a page of the classes with their strongest samples, and the most frequent confusions."""
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


def confusion(explorer: Explorer) -> Answer:
    """Return the confusion matrix of the tests: rows are true classes, columns predicted ones.

    Of more than 24 classes, those with the most errors; ``omitted`` is the number of the others.
    """
    if not (explorer.task.has_classes and explorer.project.labelled):
        raise InvalidInputError("A confusion matrix needs a classifier and labelled tests.")
    tests, n = explorer.tests, len(explorer.names)
    known = tests.valid & (tests.truths >= 0)
    pairs, numbers = np.unique(
        np.stack([tests.truths[known], tests.predicted[known]], axis=1), axis=0, return_counts=True
    )
    errors, missed = np.zeros(n, np.int64), pairs[:, 0] != pairs[:, 1]
    for side in (0, 1):
        np.add.at(errors, pairs[missed, side], numbers[missed])
    shown = np.sort(np.argsort(-errors, kind="stable")[:_MATRIX])
    place = np.full(n, -1)
    place[shown] = np.arange(len(shown))
    counts = np.zeros((len(shown), len(shown)), np.int64)
    inside = (place[pairs] >= 0).all(axis=1)
    rows, columns = place[pairs[inside]].T
    counts[rows, columns] = numbers[inside]
    return {"classes": shown.tolist(), "counts": counts.tolist(), "omitted": n - len(shown)}


def _confused(explorer: Explorer) -> list[Answer]:
    """Return the pairs of true and predicted class of the model's errors, the most frequent first."""
    tests = explorer.tests
    errors = np.stack([tests.truths[tests.wrong], tests.predicted[tests.wrong]], axis=1)
    kinds, counts = np.unique(errors, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_CONFUSED].tolist()
    return [
        {"truth": int(kinds[j, 0]), "predicted": int(kinds[j, 1]), "count": int(counts[j])} for j in order
    ]


class _Border(NamedTuple):
    """How support vectors separate a class from another, or from all others.

    Attributes
    ----------
    labels : (S,)
    pulls : (S,) λ_i,one − λ_i,other, or λ_i,one against all others: the side each pulls to
    shares : (S,) share of w_one − w_other, or of w_one against all others, that each contributes
    margins : (S,) how far each is on its own label's side of the border
    held : (S,) whether the surrogate holds a sample of one of the two apart from the other
    """

    labels: Ints
    pulls: Doubles
    shares: Doubles
    margins: Doubles
    held: Mask


def compare(explorer: Explorer, one: int, other: int | None = None) -> Answer:
    """Compare a class with another, or with all others if ``other`` is None.

    ``similarity`` is the cosine of the two classes' weights.
    """
    if not explorer.task.has_classes:
        raise InvalidInputError(
            "Comparing classes needs a classifier. The outputs of this model are not classes."
        )
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
    """Return, for each of the two classes, its tests and the training samples that separate it.

    The model takes ``mistaken`` of ``n_tests`` for the other class; the surrogate holds ``n_border`` of the
    training samples apart from it. ``separating`` separate the two most, ``border`` are nearest the other.
    """
    tests, line = explorer.tests, _border(explorer, one, other)

    def has(labels: Any, side: int) -> Any:
        """Return which labels (n,) belong to a side."""
        if side == 0:
            return labels == one
        return labels != one if other is None else labels == other

    sides = []
    for side, sign in ((0, 1), (1, -1)):
        border = np.flatnonzero(has(line.labels, side) & line.held)
        # Evidence against a single class has a negative share of it.
        weight = line.shares * (sign if other is None else 1)
        separating = np.flatnonzero((sign * line.pulls > 0) & (weight > 0))
        truly = tests.valid & (tests.truths >= 0) & has(tests.truths, side)
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
    """Return the first rows, in ascending order of their values."""
    return rows[np.argsort(by[rows], kind="stable")[:_SEPARATING]]


def _listed(explorer: Explorer, rows: Ints, line: _Border) -> list[Answer]:
    """Return training samples at a border.

    ``share`` is a sample's share of what separates the classes; shares sum to 1 over all samples and may be
    negative. ``margin`` is how far the sample is on its own label's side; 1 is far enough.
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
    """Return the cosine (K,) of a class's weights with those of every class."""
    W = explorer.project.explainer.coef_
    lengths = np.linalg.norm(W, axis=1)
    return W @ W[one] / np.maximum(lengths * lengths[one], np.finfo(np.float64).tiny)


def _rivals(explorer: Explorer, one: int) -> list[Answer]:
    """Return the classes that a class is held apart from, those with the most training samples first."""
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
    """Return the concepts that raise the logits of both classes most, over the tests of both."""
    used = uses(explorer)
    parts = used.of(one), used.of(other)
    both = np.minimum(*parts)
    order = np.argsort(-both, kind="stable")[:_SHARED].tolist()
    names = explorer.solved.components.names
    return [
        {"name": names[j], "parts": (float(parts[0][j]), float(parts[1][j]))} for j in order if both[j] > 0
    ]


# Concepts: the samples that show each concept, and the classes that use it


class Uses(NamedTuple):
    """How classes use concepts.

    Attributes
    ----------
    classes : (k,) the classes that the model predicts for at least one test
    parts : (k, q) parts of each class's mean logit, (w_c·v)(μ_c·v); μ_c is the mean feature of the tests that
        the model predicts as class c. Concepts are a basis, so the parts of a class sum to its mean logit
        without the bias
    activations : (k, q) mean activation of each concept over these tests, μ_c·v
    """

    classes: Ints
    parts: Doubles
    activations: Doubles

    def of(self, c: int) -> Doubles:
        """Return the parts (q,) of a class; 0 if the model predicts it for no test."""
        parts: Doubles = self.parts[self.classes == c].sum(axis=0)
        return parts


def uses(explorer: Explorer) -> Uses:
    """Return how all classes use all concepts."""
    tests, explainer = explorer.tests, explorer.project.explainer
    features = explainer.surrogate_.stored.transform(tests.features).double().cpu().numpy()[tests.valid]
    classes, given = np.unique(tests.predicted[tests.valid], return_inverse=True)
    means = np.zeros((len(classes), features.shape[1]))
    np.add.at(means, given, features)
    means /= np.bincount(given)[:, None]
    v = explorer.solved.components.vectors
    activations = means @ v.T
    weights = explainer.coef_[classes, : features.shape[1]]
    return Uses(classes, (weights @ v.T) * activations, activations)


def gallery(explorer: Explorer, offset: int = 0, limit: int = 12) -> Answer:
    """Return a page of the concepts, the most used first.

    ``most`` are the support vectors that show a concept most, ``least`` those that show its opposite most.
    ``uses`` are the parts of classes' mean logits through it, over the tests predicted as the class;
    ``shows`` says whether these show the concept or its opposite.
    """
    if not explorer.task.has_classes:
        raise InvalidInputError(
            "The gallery of concepts needs a classifier. The outputs of this model are not classes."
        )
    (classes, parts, activations), components = uses(explorer), explorer.solved.components
    shares = parts / np.maximum(np.abs(parts).sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    used = np.abs(shares).mean(axis=0)
    known = np.argsort(-used, kind="stable")[: int((used > _UNUSED).sum())]
    order = known[offset : offset + limit]
    explainer = explorer.project.explainer
    chosen = Concepts(components.vectors[order], tuple(components.names[j] for j in order))
    shown = chosen.activations(explainer.vectors_.cpu()) if len(order) else np.zeros((0, 0))
    ranked = np.argsort(-shown, axis=0, kind="stable")
    ends = {
        "most": explainer.support_[ranked[:_SHOWN]].T,
        "least": explainer.support_[ranked[::-1][:_SHOWN]].T,
    }
    wanted = np.unique(np.concatenate([end.ravel() for end in ends.values()])).tolist()
    samples = dict(zip(wanted, explorer.training.samples(wanted), strict=True))
    rows = []
    for j, place in enumerate(order.tolist()):
        best = np.argsort(-np.abs(shares[:, place]), kind="stable")[:_USERS].tolist()
        row: Answer = {"name": chosen.names[j], "used": float(used[place])}
        row["uses"] = [
            {
                "label": int(classes[c]),
                "shows": bool(activations[c, place] >= 0),
                "part": float(parts[c, place]),
                "share": float(shares[c, place]),
            }
            for c in best
            if abs(shares[c, place]) > _UNUSED
        ]
        for name, end in ends.items():
            row[name] = end[j].tolist()
            row[f"{name}_labels"] = explainer.labels_[row[name]].tolist()
            row[f"{name}_samples"] = [samples[i] for i in row[name]]
        rows.append(row)
    return {"total": len(known), "rows": rows}
