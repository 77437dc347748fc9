"""The classes of the explorer: what carries each, and what tells two of them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from whence.audit import class_view
from whence.core.arrays import Doubles, Ints
from whence.errors import InvalidInputError
from whence.ui import schema
from whence.ui.explorer import Explorer
from whence.ui.gallery import uses

_STRONGEST = 12  # samples of a class in the class view
_TELLING = 8  # samples of a class in a comparison
_RIVALS = 8
_CONFUSED = 12  # pairs of classes
_SHARED = 5  # concepts


def classes(explorer: Explorer, offset: int = 0, limit: int | None = None) -> schema.Classes:
    """A page of the classes, with the training samples that carry them, and what is confused with what."""
    view = class_view(explorer.project.explainer, _STRONGEST).classes
    chosen = view[offset : None if limit is None else offset + limit]
    wanted = list(dict.fromkeys(i for found in chosen for i in found.proponents.tolist()))
    samples = dict(zip(wanted, explorer.training.samples(wanted), strict=True))
    rows = [
        schema.ClassFacts(
            name=found.name,
            n_train=found.n_train,
            n_support=found.n_support,
            bounded=found.bounded,
            top=found.proponents.tolist(),
            samples=[samples[i] for i in found.proponents.tolist()],
        )
        for found in chosen
    ]
    return schema.Classes(total=len(view), rows=rows, confused=_confused(explorer))


def _confused(explorer: Explorer) -> list[schema.Confused]:
    """The kinds of errors of the model, the most frequent first."""
    tests = explorer.tests
    errors = np.stack([tests.truths[tests.wrong], tests.predicted[tests.wrong]], axis=1)
    kinds, counts = np.unique(errors, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_CONFUSED].tolist()
    return [
        schema.Confused(truth=int(kinds[j, 0]), predicted=int(kinds[j, 1]), count=int(counts[j]))
        for j in order
    ]


class _Border(NamedTuple):
    """What separates a class from another: places among the support vectors, shares (S,), margins (S,)."""

    pulls: Doubles
    shares: Doubles
    margins: Doubles


def compare(explorer: Explorer, one: int, other: int | None = None) -> schema.Comparison:
    """Lay a class beside another, or beside all others."""
    if not explorer.task.has_classes:
        raise InvalidInputError("Classes must be compared where outputs are classes. These are not.")
    explorer.check_class("one", one)
    if other is not None and explorer.check_class("other", other) == one:
        raise InvalidInputError(f"'other' must be another class than 'one', {one}. Got the same.")
    return schema.Comparison(
        one=one,
        other=other,
        likeness=None if other is None else float(_likeness(explorer, one)[other]),
        sides=_sides(explorer, one, other),
        rivals=_rivals(explorer, one),
        shared=[] if other is None else _shared(explorer, one, other),
    )


def _border(explorer: Explorer, one: int, other: int | None) -> _Border:
    """Take w_one − w_other, of all others w_one, apart into the support vectors that it is the sum of."""
    explainer = explorer.project.explainer
    surrogate, W = explainer.surrogate_, explainer.coef_
    lam = surrogate.lam[explainer.support_].tocsc()
    pulls, direction = lam[:, [one]].toarray().ravel(), W[one].copy()
    if other is not None:
        pulls = pulls - lam[:, [other]].toarray().ravel()
        direction = direction - W[other]
    d = surrogate.stored.shape[1]
    squares = float((direction[:d] ** 2).sum())
    if explainer.bias:
        squares += float(direction[-1] / explainer.constant_) ** 2
    along = np.concatenate(
        [
            surrogate.stored[part].double().cpu().numpy() @ direction[:d]
            for part in surrogate.stored.parts(len(surrogate.stored))
        ]
    )
    along += direction[-1] if explainer.bias else 0.0
    return _Border(pulls, pulls * along / max(squares, np.finfo(np.float64).tiny), along)


def _sides(explorer: Explorer, one: int, other: int | None) -> tuple[schema.Sides, schema.Sides]:
    """What either class rests on beside the other."""
    explainer, tests = explorer.project.explainer, explorer.tests
    found, labels = _border(explorer, one, other), explainer.labels_[explainer.support_]
    lam = explainer.surrogate_.lam[explainer.support_].tocsc()
    mine = labels == one
    theirs = ~mine if other is None else labels == other
    against = [
        np.ones(len(labels), bool) if other is None else lam[:, [other]].toarray().ravel() < 0,
        lam[:, [one]].toarray().ravel() < 0,
    ]
    truth = [tests.truths == one, tests.truths != one if other is None else tests.truths == other]
    said = [tests.predicted == one, tests.predicted != one if other is None else tests.predicted == other]
    sides = []
    for j, (own, sign) in enumerate(((mine, 1.0), (theirs, -1.0))):
        border = np.flatnonzero(own & against[j])
        telling = np.flatnonzero(sign * found.pulls > 0)
        telling = telling[np.argsort(-found.shares[telling], kind="stable")[:_TELLING]]
        nearest = border[np.argsort(sign * found.margins[border], kind="stable")[:_TELLING]]
        sides.append(
            schema.Sides(
                n_tests=int((tests.valid & truth[j]).sum()),
                mistaken=int((tests.valid & truth[j] & said[1 - j]).sum()),
                n_border=len(border),
                telling=_told(explorer, telling, found, sign),
                border=_told(explorer, nearest, found, sign),
            )
        )
    return sides[0], sides[1]


def _told(explorer: Explorer, rows: Ints, found: _Border, sign: float) -> list[schema.Telling]:
    explainer = explorer.project.explainer
    places = explainer.support_[rows].tolist()
    return [
        schema.Telling(
            index=place,
            label=int(explainer.labels_[place]),
            share=float(found.shares[row]),
            margin=float(sign * found.margins[row]),
            sample=sample,
        )
        for row, place, sample in zip(rows.tolist(), places, explorer.training.samples(places), strict=True)
    ]


def _likeness(explorer: Explorer, one: int) -> Any:
    """Cosine (K,) of a class's weights with those of every class."""
    W = explorer.project.explainer.coef_
    lengths = np.linalg.norm(W, axis=1)
    return W @ W[one] / np.maximum(lengths * lengths[one], np.finfo(np.float64).tiny)


def _rivals(explorer: Explorer, one: int) -> list[schema.Rival]:
    """The other classes that a class is held apart from, those by most training samples first."""
    explainer, tests = explorer.project.explainer, explorer.tests
    lam, labels = explainer.surrogate_.lam[explainer.support_], explainer.labels_[explainer.support_]
    mine = (lam[labels == one] < 0).sum(axis=0)
    held = np.asarray(mine).ravel() + np.bincount(
        labels[(lam[:, [one]] < 0).toarray().ravel()], minlength=len(explorer.names)
    )
    held[one] = 0
    likeness = _likeness(explorer, one)
    order: Sequence[int] = np.argsort(-held, kind="stable")[:_RIVALS].tolist()

    def confused(truth: int, predicted: int) -> int:
        return int((tests.valid & (tests.truths == truth) & (tests.predicted == predicted)).sum())

    return [
        schema.Rival(
            other=c,
            n_border=int(held[c]),
            taken_for=confused(one, c),
            taken_from=confused(c, one),
            likeness=float(likeness[c]),
        )
        for c in order
        if held[c]
    ]


def _shared(explorer: Explorer, one: int, other: int) -> list[schema.Shared]:
    """The concepts that raise the logits of both classes most, for the tests of either."""
    parts = uses(explorer).parts
    both = np.minimum(parts[one], parts[other])
    order = np.argsort(-both, kind="stable")[:_SHARED].tolist()
    names = explorer.solved.components.names
    return [
        schema.Shared(name=names[j], parts=(float(parts[one, j]), float(parts[other, j])))
        for j in order
        if both[j] > 0
    ]
