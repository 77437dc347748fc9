"""Answers about the change list and the slices of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from whence.core.arrays import Array, Doubles, Ints
from whence.core.checks import check_places
from whence.core.ranges import count_ranges, format_ranges, parse_ranges
from whence.errors import InvalidInputError
from whence.features import as_float32
from whence.project import MARKS, Decision, Slice
from whence.ui.changes import members
from whence.ui.explorer import Explorer
from whence.ui.requests import Answer, Marking, NewSlice

_MOST_COMPARED = 20
_MOST_TESTS = 1_000  # whose evidence is summed
_BLOCK = 128  # tests whose scores are in memory at a time


def change_list(explorer: Explorer) -> Answer:
    """Return the change list: its entries, and what they come to as ranges of samples."""
    work = explorer.project.work
    marks, entries = work.marks(), work.entries
    relabelled = marks.of("relabel")
    to = marks.label[relabelled]
    counts = {action: len(marks.of(action)) for action in MARKS}
    return {
        "entries": [_entry(entry, len(marks.action)) for entry in entries],
        "marks": {
            **{action: format_ranges(marks.of(action)) for action in ("remove", "keep", "flag")},
            "relabel": {str(c): format_ranges(relabelled[to == c]) for c in np.unique(to).tolist()},
        },
        "counts": {**counts, "changed": counts["remove"] + counts["relabel"]},
        "who": work.who,
        "saved": None if work.path is None else str(work.path),
    }


def _entry(entry: Decision, n: int) -> Answer:
    """Return an entry; ``label`` is None where it has several new labels, which ``labels`` lists."""
    spans = entry.samples
    places = next(iter(spans.values()))
    if len(spans) > 1:
        places = format_ranges(np.sort(np.concatenate([parse_ranges(text, n) for text in spans.values()])))
    relabels = entry.action == "relabel"
    return {
        "id": entry.id,
        "action": entry.action,
        "label": int(next(iter(spans))) if relabels and len(spans) == 1 else None,
        "labels": spans if relabels else {},
        "n": count_ranges(places, n),
        "samples": places,
        "why": entry.why,
        "who": entry.who,
        "when": entry.when,
    }


def add_marking(explorer: Explorer, asked: Marking) -> None:
    """Add an entry to the change list."""
    work = explorer.project.work
    if (asked.samples is None) == (asked.group is None):
        raise InvalidInputError("'samples' or 'group' must be given, and only one of them.")
    samples: Any = asked.samples
    suggested: Ints | None = None
    if asked.group is not None:
        samples, suggested = members(explorer, asked.group)
        if not len(samples):
            raise InvalidInputError("'group' must match at least one training sample. It matches none.")
    label: Any = asked.label
    if label == "suggested":
        samples, label = _suggested(explorer, samples, suggested if _by_audit(asked) else None)
    work.add(asked.action, samples, label=label, why=asked.why, who=asked.who)


def _by_audit(asked: Marking) -> bool:
    return asked.group is not None and asked.group.by == "wrong labels"


def _suggested(explorer: Explorer, samples: Any, known: Ints | None) -> tuple[Ints, Ints]:
    """Return the samples whose suggested label is another than theirs, with it."""
    labels = explorer.project.explainer.labels_
    if isinstance(samples, str):
        places = parse_ranges(samples, len(labels))
    else:
        places = check_places("samples", samples, len(labels))
    if known is None:
        ranking = explorer.solved.wrong_labels.result()
        listed = np.full(len(labels), -1)
        listed[ranking.indices] = ranking.suggested
        places = np.unique(places)
        known = listed[places]
    other = (known >= 0) & (known != labels[places])
    if not other.any():
        raise InvalidInputError(
            "'label' must be a class here: the audit suggests no other label for any of these samples. Got "
            "'suggested'."
        )
    return places[other], known[other]


# Slices


def slices(explorer: Explorer) -> Answer:
    """Return the slices, oldest first."""
    return {"slices": list(map(_slice, explorer.project.work.slices))}


def _slice(one: Slice) -> Answer:
    n = count_ranges(one.samples, one.total)
    return {"name": one.name, "of": one.of, "n": n, "who": one.who, "when": one.when}


def save_slice(explorer: Explorer, asked: NewSlice) -> None:
    """Name a set of samples, or all that filters of a list leave."""
    if (asked.samples is None) == (asked.filters is None):
        raise InvalidInputError("'samples' or 'filters' must be given, and only one of them.")
    samples: Any = asked.samples
    if asked.of == "tests" and asked.filters is not None:
        samples = explorer.tests.fitting(asked.filters)
    elif asked.of == "training" and asked.filters is not None:
        samples = explorer.training.fitting(asked.filters)
    explorer.project.work.save_slice(asked.name, asked.of, samples, asked.who)


def compare_slices(explorer: Explorer, names: Sequence[str]) -> Answer:
    """Return figures of some slices side by side.

    ``accuracy`` is the model's, ``doubt`` the mean of 1 − p(label) by the model. Evidence is the sum of
    positive and that of negative scores for the predicted class: in a slice of tests the mean over its tests,
    of all training samples; in a slice of training samples that of its samples, the mean over all tests.
    """
    if not 1 <= len(names) <= _MOST_COMPARED:
        raise InvalidInputError(f"'names' must be 1 to {_MOST_COMPARED} slices. Got {len(names)}.")
    known = {one.name: one for one in explorer.project.work.slices}
    work, rows = explorer.project.work, []
    sets = [(name, known[name].of if name in known else "training") for name in dict.fromkeys(names)]
    members_of = {name: work.members(name, of) for name, of in sets}
    evidence = _evidence(explorer, [(of, members_of[name]) for name, of in sets])
    for (name, of), (pro, contra, n_tests) in zip(sets, evidence, strict=True):
        places = members_of[name]
        figures = _of_tests(explorer, places) if of == "tests" else _of_training(explorer, places)
        rows.append(
            {
                "name": name,
                "of": of,
                "n": len(places),
                **figures,
                "evidence_for": pro,
                "evidence_against": contra,
                "evidence_tests": n_tests,
            }
        )
    return {"slices": rows}


def _of_tests(explorer: Explorer, places: Ints) -> Answer:
    tests = explorer.tests
    places = places[tests.valid[places]]
    known = explorer.project.labelled and explorer.task.has_classes
    labels = tests.truths[places] if known else None
    return {**_figures(explorer, tests.outputs[torch.as_tensor(places)], labels), "likely_wrong": None}


def _of_training(explorer: Explorer, places: Ints) -> Answer:
    project = explorer.project
    labels = project.attributor.labels_[places] if explorer.task.has_classes else None
    if labels is None or not project.attributor.capabilities.dual:
        return {**_figures(explorer, torch.empty(0, 0), labels), "likely_wrong": None}
    bank, blocks = as_float32(project.train_bank.features), []
    for start in range(0, len(places), 1 << 14):
        rows = torch.from_numpy(np.array(bank[places[start : start + (1 << 14)]]))
        blocks.append(project.explainer.surrogate_.model_logits(rows).double().cpu())
    ranking = explorer.solved.wrong_labels.ready
    likely = None if ranking is None else int(np.isin(places, ranking.indices[ranking.likely]).sum())
    return {**_figures(explorer, torch.cat(blocks), labels), "likely_wrong": likely}


def _figures(explorer: Explorer, outputs: torch.Tensor, labels: Array | None) -> Answer:
    """Return what outputs (n, K) say of labels (n,); None where labels are not known classes."""
    if labels is None:
        return {"accuracy": None, "doubt": None, "labels": None}
    counts = np.bincount(labels, minlength=len(explorer.names)).tolist()
    if not len(labels) or outputs.shape != (len(labels), len(explorer.names)):
        return {"accuracy": None, "doubt": None, "labels": counts}
    right = explorer.task.predict(outputs).numpy() == labels
    chances = outputs.double().softmax(1).numpy()[np.arange(len(labels)), labels]
    return {"accuracy": float(right.mean()), "doubt": float(1 - chances.mean()), "labels": counts}


def _evidence(
    explorer: Explorer, sets: Sequence[tuple[str, Ints]]
) -> list[tuple[float | None, float | None, int]]:
    """Return mean evidence for and against, and the number of tests, of each slice."""
    project = explorer.project
    if not project.attributor.capabilities.dual or not explorer.tests.valid.any():
        return [(None, None, 0)] * len(sets)
    every = _spread(np.flatnonzero(explorer.tests.valid))
    n_train, out = len(project.attributor.labels_), []
    over_all = (
        _scored(explorer, every, n_train)[1] / len(every) if any(of == "training" for of, _ in sets) else None
    )
    for of, places in sets:
        if of == "training" and over_all is not None:
            pro, contra = over_all[:, places].sum(1).tolist()
            out.append((pro, contra, len(every)))
            continue
        chosen = _spread(places[explorer.tests.valid[places]])
        sums = _scored(explorer, chosen, n_train)[0] if len(chosen) else None
        pro, contra = (None, None) if sums is None else sums.mean(1).tolist()
        out.append((pro, contra, len(chosen)))
    return out


def _spread(places: Ints) -> Ints:
    """Return at most so many places, evenly spread."""
    if len(places) <= _MOST_TESTS:
        return places
    chosen: Ints = places[np.linspace(0, len(places) - 1, _MOST_TESTS).round().astype(np.int64)]
    return chosen


def _scored(explorer: Explorer, places: Ints, n_train: int) -> tuple[Doubles, Doubles]:
    """Return sums of positive and of negative scores: (2, tests) per test, and (2, train) per sample."""
    tests, expansion = explorer.tests, explorer.project.explainer.surrogate_.expansion
    per_test, per_sample = np.zeros((2, len(places))), np.zeros((2, n_train))
    for start in range(0, len(places), _BLOCK):
        rows = places[start : start + _BLOCK]
        targets = torch.as_tensor(tests.targets[rows])
        scores = expansion.sparse(tests.features[torch.as_tensor(rows)], targets, relative=True)
        for side, part in enumerate((scores.maximum(0), scores.minimum(0))):
            per_test[side, start : start + len(rows)] = part.sum(axis=1)
            per_sample[side] += part.sum(axis=0)
    return per_test, per_sample
