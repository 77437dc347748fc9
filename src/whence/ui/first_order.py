"""What would change for all tests, predicted to first order by effects: nothing is fitted again."""

from __future__ import annotations

import time

import numpy as np

from whence.core.arrays import Doubles, Ints, Mask
from whence.ui.changes import resolve
from whence.ui.explorer import Explorer
from whence.ui.requests import Answer, Changes

_LISTED = 1_000
"""Tests to list whose class changes; the others are only counted."""
_WORDS = (
    "A first-order prediction by effects: it takes no account of how changed samples stand in for each "
    "other, and is least exact for many samples at once. Solve to check it."
)
_START = "Effects are not fitted yet. POST /api/effects fits them once; then this is answered at once."


def first_order(explorer: Explorer, asked: Changes) -> Answer:
    """Return predicted changes of the present class and the runner-up of all tests, and who changes class.

    Classes are those of the effects' surrogate. ``ready`` is False until effects are fitted; nothing is
    started or waited for.
    """
    changes, began = resolve(explorer, asked), time.perf_counter()
    counts = {"n_removed": len(changes.remove), "n_relabelled": len(changes.relabel)}
    read = explorer.solved.effects_tests
    effects = explorer.solved.effects.ready
    if effects is None or read is None:
        return {"ready": False, "start": "/api/effects", "words": _START, **counts}
    features, logits = read
    moves = np.zeros_like(logits)
    if any(changes):
        moves = effects.logit_changes(features=features, **changes._asdict())
    valid = np.asarray(explorer.tests.valid)
    answer = _answer(explorer, logits, moves, valid)
    return {"ready": True, "words": _WORDS, **counts, **answer, "seconds": time.perf_counter() - began}


def _answer(explorer: Explorer, logits: Doubles, moves: Doubles, valid: Mask) -> Answer:
    after, rows = logits + moves, np.flatnonzero(valid)
    order = np.argsort(-logits, axis=1, kind="stable")
    first, second, now = order[:, 0], order[:, 1], after.argmax(1)
    flips = np.flatnonzero(valid & (now != first))
    truths = explorer.tests.truths
    was_right, is_right = (valid & (classes == truths) for classes in (first, now))
    moved = now != first

    def column(values: Doubles, classes: Ints) -> list[float]:
        return [float(f"{value:.6g}") for value in values[rows, classes[rows]].tolist()]

    return {
        "n_tests": len(rows),
        "tests": {
            "index": rows.tolist(),
            "class": first[rows].tolist(),
            "runner_up": second[rows].tolist(),
            "logit": column(logits, first),
            "logit_runner_up": column(logits, second),
            "change": column(moves, first),
            "change_runner_up": column(moves, second),
        },
        "changed_tests": len(flips),
        "fixed": int((moved & is_right).sum()),
        "broken": int((moved & was_right).sum()),
        "changed": [
            {"index": index, "class_before": int(first[index]), "class_after": int(now[index])}
            for index in flips[:_LISTED].tolist()
        ],
    }
