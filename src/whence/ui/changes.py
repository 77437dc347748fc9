"""What if: re-solve the surrogate without samples or with other labels, and list the tests that change."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from whence.core.arrays import Doubles, Ints
from whence.errors import InvalidInputError
from whence.methods import DualDA, Effects
from whence.ui.explorer import Explorer
from whence.ui.requests import Answer, Changes, WhatIfRequest, Which

_LISTED = 200
"""Changed tests to list; the others are only counted."""


class Resolved(NamedTuple):
    """Training samples to remove, and new labels for others."""

    remove: list[int]
    relabel: dict[int, int]


def resolve(explorer: Explorer, asked: Changes) -> Resolved:
    """Find the samples that a request names one by one, by class, by search or by the audit.

    If a sample is named several times, the first mention counts: samples named one by one come first, then
    groups, then the saved list. A new label that equals the present one is ignored.
    """
    if not explorer.task.has_classes:
        raise InvalidInputError(
            "'What if' needs a classifier. The outputs of this model are labels or numbers."
        )
    labels = explorer.project.explainer.labels_
    new: dict[int, int | None] = dict.fromkeys(asked.remove)
    for index, label in asked.relabel.items():
        new.setdefault(index, label)
    for group in asked.groups:
        places, suggested = members(explorer, group)
        for place, other in zip(places.tolist(), suggested.tolist(), strict=True):
            new.setdefault(place, other if group.to == "suggested" else group.to)
    if asked.saved:
        marks = explorer.project.work.marks()
        for index, to in (*marks.relabel.items(), *((index, None) for index in marks.remove)):
            new.setdefault(index, to)
    named = {index: label for index, label in new.items() if label is not None}
    same = {index for index, label in named.items() if 0 <= index < len(labels) and labels[index] == label}
    remove = [index for index, label in new.items() if label is None]
    return Resolved(remove, {index: label for index, label in named.items() if index not in same})


def members(explorer: Explorer, group: Which) -> tuple[Ints, Ints]:
    """Return the indices of a group's samples, and their suggested (else present) labels."""
    labels = explorer.project.explainer.labels_
    if group.by == "wrong labels":
        ranking = explorer.solved.wrong_labels.result()
        chosen = ranking.likely if group.above is None else ranking.scores > group.above
        return ranking.indices[chosen], ranking.suggested[chosen]
    if group.label is not None:
        explorer.check_class("label", group.label)
    places = explorer.training.fitting(group)
    return places, labels[places]


def what_if(explorer: Explorer, asked: WhatIfRequest) -> Answer:
    """Re-solve the surrogate with changes and compare its outputs for one test.

    ``first_order`` is the change of the target's logit by effects: predicted to first order, exact by
    re-solving their surrogate, and whether the two disagree; None if effects are not fitted yet.
    """
    before, tests, changes = explorer.project.explainer, explorer.tests, resolve(explorer, asked)
    f = tests.features[explorer.project.read_tests([asked.test])]
    target = explorer.wanted(asked.test, asked.target)
    after = explorer.solved.changed(*changes)
    classes = after.predict(features=tests.features).numpy()
    return {
        "test": asked.test,
        "target": target,
        "before": _side(before, f, target),
        "after": _side(after, f, target),
        "changed_tests": int((classes != tests.surrogate_labels)[tests.valid].sum()),
        "n_tests": int(tests.valid.sum()),
        "seconds": after.seconds_["solution"],
        "first_order": _first_order(explorer, asked.test, changes, target),
    }


def _first_order(explorer: Explorer, index: int, changes: Resolved, target: int) -> Answer | None:
    effects = explorer.solved.effects.ready
    if effects is None or not any(changes):
        return None
    effect = effects.effect_of(**_of_effects(explorer, effects, [index], changes, [target]))
    predicted, exact = float(effect.first_order[0]), float(effect.exact[0])
    return {"predicted": predicted, "exact": exact, "disagree": effect.disagree}


def _of_effects(
    explorer: Explorer, effects: Effects, tests: list[int], changes: Resolved, targets: list[int]
) -> dict[str, Any]:
    """Return the arguments of ``effect_of`` for some tests, with one class per test."""
    vectors = effects.surrogate_.vectors.cpu().numpy()
    known = vectors if len(vectors) == effects.n_train_ else None  # usually all samples have weight
    x = explorer.project.tests.take(tests)
    with explorer.model_lock:  # not held while the surrogate is solved, so that explanations continue
        features = effects.fitted_.require_model().read(x, effects.batch_size).features
    return {"features": features, "target": targets, **changes._asdict(), "training_features": known}


def _side(explainer: DualDA, f: torch.Tensor, target: int) -> Answer:
    """Return the outputs of a surrogate for one test sample."""
    logits = explainer.surrogate_.logits(f)[0].double()
    return {
        "predicted": int(logits.argmax()),
        "logits": logits.tolist(),
        "logit": float(logits[target]),
        "n_support": len(explainer.support_),
        "gap": explainer.gap_,
    }


def what_changes(explorer: Explorer, asked: Changes) -> Answer:
    """Re-solve the surrogate with changes and return the tests that change class.

    ``changed`` lists the first of the ``changed_tests``; ``fixed`` of them become right, ``broken`` wrong.
    """
    explainer, tests, changes = explorer.project.explainer, explorer.tests, resolve(explorer, asked)
    if not any(changes):
        raise InvalidInputError("'changes' must change at least one training sample. These change none.")
    other = explorer.solved.changed(*changes)
    before, after = tests.surrogate_labels, other.predict(features=tests.features).numpy()
    moved = tests.valid & (before != after)
    known, n_tests = explorer.project.labelled, int(tests.valid.sum())
    right = [tests.valid & (labels == tests.truths) for labels in (before, after)]
    states = [
        {
            "accuracy": float(hits.sum() / n_tests) if known else None,
            "n_support": len(one.support_),
            "gap": one.gap_,
        }
        for one, hits in zip((explainer, other), right, strict=True)
    ]
    return {
        "n_removed": len(changes.remove),
        "n_relabelled": len(changes.relabel),
        "before": states[0],
        "after": states[1],
        "n_tests": n_tests,
        "changed_tests": int(moved.sum()),
        "fixed": int((moved & right[1]).sum()),
        "broken": int((moved & right[0]).sum()),
        "changed": _listed(explorer, other, changes, np.flatnonzero(moved)[:_LISTED], after),
        "seconds": other.seconds_["solution"],
    }


def _listed(explorer: Explorer, other: DualDA, changes: Resolved, places: Ints, after: Ints) -> list[Answer]:
    """Return the tests that change, each with the logit of its former class before and after.

    ``tau`` is what the changed samples added to that logit; ``effect`` its change as predicted to first
    order, None if effects are not fitted yet.
    """
    if not len(places):
        return []
    explainer, tests = explorer.project.explainer, explorer.tests
    f, had, rows = tests.features[places], tests.surrogate_labels[places], np.arange(len(places))
    logits = [one.surrogate_.logits(f).cpu().numpy()[rows, had] for one in (explainer, other)]
    tau = _part(explainer, [*changes.remove, *changes.relabel], f, had)
    effects, predicted = explorer.solved.effects.ready, None
    if effects is not None:
        asked = _of_effects(explorer, effects, places.tolist(), changes, had.tolist())
        predicted = effects.first_order(**asked)  # the exact effect would take as long as a fit
    return [
        {
            "row": row,
            "class_before": int(had[j]),
            "class_after": int(after[row["index"]]),
            "logits": (float(logits[0][j]), float(logits[1][j])),
            "tau": float(tau[j]),
            "effect": None if predicted is None else float(predicted[j]),
        }
        for j, row in enumerate(tests.summaries(places.tolist()))
    ]


def _part(explainer: DualDA, samples: list[int], f: torch.Tensor, classes: Ints) -> Doubles:
    """Return what training samples add to the logits of the classes (B,) for tests with features (B, d)."""
    surrogate = explainer.surrogate_
    chosen = np.intersect1d(samples, surrogate.support)
    rows = surrogate.stored[surrogate.rows(chosen.tolist())].double().cpu().numpy()
    lam = surrogate.lam[chosen]
    weight, constant = lam.T @ rows, surrogate.constant**2 * np.asarray(lam.sum(axis=0)).ravel()
    read = surrogate.stored.transform(f).double().cpu().numpy()
    part: Doubles = (read * weight[classes]).sum(axis=1) + constant[classes]
    return part
