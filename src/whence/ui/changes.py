"""What if: the surrogate without some training samples, or with other labels, and which tests change."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from whence.core.arrays import Doubles, Ints
from whence.errors import InvalidInputError
from whence.methods import DualDA, Effects
from whence.ui import schema
from whence.ui.explorer import Explorer
from whence.ui.trained import likely_wrong

_LISTED = 200
"""Tests that change which are listed; the others are counted."""


class Changes(NamedTuple):
    """Training samples to take away, and new labels of others."""

    remove: list[int]
    relabel: dict[int, int]


def resolved(explorer: Explorer, asked: schema.Changes) -> Changes:
    """Find the samples that are named one by one, by class, by search or by the audit.

    Of a sample that is named several times the first counts, and those named one by one come first. A new
    label that a sample has already is no change.
    """
    _require_classes(explorer)
    labels = explorer.project.explainer.labels_
    new: dict[int, int | None] = dict.fromkeys(asked.remove)
    for index, label in asked.relabel.items():
        new.setdefault(index, label)
    for group in asked.groups:
        places, suggested = _members(explorer, group)
        for place, other in zip(places.tolist(), suggested.tolist(), strict=True):
            new.setdefault(place, other if group.to == "suggested" else group.to)
    named = {index: label for index, label in new.items() if label is not None}
    same = {index for index, label in named.items() if 0 <= index < len(labels) and labels[index] == label}
    remove = [index for index, label in new.items() if label is None]
    return Changes(remove, {index: label for index, label in named.items() if index not in same})


def _members(explorer: Explorer, group: schema.Group) -> tuple[Ints, Ints]:
    """Places of the samples of a group, and the labels that are suggested for them: their own if none is."""
    labels = explorer.project.explainer.labels_
    if group.by == "wrong labels":
        found = explorer.solved.wrong_labels.result()
        chosen = likely_wrong(found)
        return found.indices[chosen], found.suggested[chosen]
    label = None if group.label is None else explorer.check_class("label", group.label)
    places = explorer.training.fitting(label, group.search)
    return places, labels[places]


def _require_classes(explorer: Explorer) -> None:
    if not explorer.task.has_classes:
        raise InvalidInputError("'What if' must be asked of classes. These outputs are labels or numbers.")


def what_if(explorer: Explorer, asked: schema.Question) -> schema.Answer:
    """Solve the surrogate with changes; compare what it says of one test."""
    own, tests, changes = explorer.project.explainer, explorer.tests, resolved(explorer, asked)
    f = tests.features[explorer.project.read_tests([asked.test])]
    target = explorer.wanted(asked.test, asked.target)
    other = explorer.solved.changed(*changes)
    after = other.predict_features(tests.features).numpy()
    return schema.Answer(
        test=asked.test,
        target=target,
        before=_side(own, f, target),
        after=_side(other, f, target),
        changed_tests=int((after != tests.surrogate_labels)[tests.valid].sum()),
        n_tests=int(tests.valid.sum()),
        seconds=other.seconds_["solution"],
        first_order=_first_order(explorer, asked.test, changes, target),
    )


def _first_order(explorer: Explorer, index: int, changes: Changes, target: int) -> schema.FirstOrder | None:
    """What effects foretell of the same question, where they are fitted: to first order, and exactly."""
    effects = explorer.solved.effects.ready
    if effects is None or not any(changes):
        return None
    found = effects.effect_of_features(**_of_effects(explorer, effects, [index], changes, [target]))
    return schema.FirstOrder(
        foretold=float(found.first_order[0]), exact=float(found.exact[0]), parted=found.parted
    )


def _of_effects(
    explorer: Explorer, effects: Effects, tests: list[int], changes: Changes, targets: list[int]
) -> dict[str, Any]:
    """Put a question about some tests, with a class of each, as effects take it."""
    vectors = effects.surrogate_.vectors.cpu().numpy()
    known = vectors if len(vectors) == effects.n_train_ else None  # as a rule all of them have weight
    x = explorer.project.tests.take(tests)
    with explorer.reading:  # and not while the surrogate is solved, so that explanations go on
        features = effects.require_model().read(x, effects.batch_size).features
    return {"features": features, "target": targets, **changes._asdict(), "training_features": known}


def _side(explainer: DualDA, f: torch.Tensor, target: int) -> schema.Side:
    """What a surrogate says of one test sample."""
    logits = explainer.surrogate_.logits(f)[0].double()
    return schema.Side(
        predicted=int(logits.argmax()),
        logits=logits.tolist(),
        logit=float(logits[target]),
        n_support=len(explainer.support_),
        gap=explainer.gap_,
    )


def what_changes(explorer: Explorer, asked: schema.Changes) -> schema.Outcome:
    """Solve the surrogate with changes; tell which tests change."""
    own, tests, changes = explorer.project.explainer, explorer.tests, resolved(explorer, asked)
    if not any(changes):
        raise InvalidInputError("'changes' must change a training sample. These change none.")
    other = explorer.solved.changed(*changes)
    before, after = tests.surrogate_labels, other.predict_features(tests.features).numpy()
    moved = tests.valid & (before != after)
    right = [tests.valid & (found == tests.truths) for found in (before, after)]
    return schema.Outcome(
        n_removed=len(changes.remove),
        n_relabelled=len(changes.relabel),
        before=_state(own, right[0], tests.valid),
        after=_state(other, right[1], tests.valid),
        n_tests=int(tests.valid.sum()),
        changed_tests=int(moved.sum()),
        mended=int((moved & right[1]).sum()),
        broken=int((moved & right[0]).sum()),
        changed=_listed(explorer, other, changes, np.flatnonzero(moved)[:_LISTED], after),
        seconds=other.seconds_["solution"],
    )


def _state(explainer: DualDA, right: Any, valid: Any) -> schema.State:
    return schema.State(
        accuracy=float(right.sum() / valid.sum()), n_support=len(explainer.support_), gap=explainer.gap_
    )


def _listed(
    explorer: Explorer, other: DualDA, changes: Changes, places: Ints, after: Ints
) -> list[schema.ChangedTest]:
    """The tests that change, each with the logit of the class that it had."""
    if not len(places):
        return []
    own, tests = explorer.project.explainer, explorer.tests
    f, had, each = tests.features[places], tests.surrogate_labels[places], np.arange(len(places))
    logits = [one.surrogate_.logits(f).cpu().numpy()[each, had] for one in (own, other)]
    made_of = _part(own, [*changes.remove, *changes.relabel], f, had)
    effects = explorer.solved.effects.ready
    foretold = None
    if effects is not None:
        asked = _of_effects(explorer, effects, places.tolist(), changes, had.tolist())
        foretold = effects.foretold_of_features(**asked)  # solved again, it would take as long as a fit
    return [
        schema.ChangedTest(
            row=row,
            came=int(had[j]),
            became=int(after[row.index]),
            logits=(float(logits[0][j]), float(logits[1][j])),
            tau=float(made_of[j]),
            foretold=None if foretold is None else float(foretold[j]),
        )
        for j, row in enumerate(tests.summaries(places.tolist()))
    ]


def _part(explainer: DualDA, samples: list[int], f: torch.Tensor, classes: Ints) -> Doubles:
    """What some training samples make of the logits of tests with features (B, d), each for a class (B,)."""
    surrogate = explainer.surrogate_
    chosen = np.intersect1d(samples, surrogate.support)
    rows = surrogate.stored[surrogate.rows(chosen.tolist())].double().cpu().numpy()
    lam = surrogate.lam[chosen]
    weight, constant = lam.T @ rows, surrogate.constant**2 * np.asarray(lam.sum(axis=0)).ravel()
    read = surrogate.stored.as_read(f).double().cpu().numpy()
    found: Doubles = (read * weight[classes]).sum(axis=1) + constant[classes]
    return found
