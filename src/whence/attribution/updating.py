"""Changes of a training set after the fit: an update, and what-if questions. Both re-solve the surrogate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

from whence.attribution.fitted import Fitted
from whence.attribution.training_features import all_features
from whence.core.arrays import Array, Floats, Ints
from whence.core.display import counted
from whence.data import TrainingSet, as_training_set
from whence.errors import InvalidInputError
from whence.features import FeatureBank, as_float32, extract
from whence.features.rows import stacked
from whence.surrogate.agreement import still_unseen
from whence.surrogate.changes import Change, changed_labels
from whence.surrogate.fitting import make_surrogate
from whence.surrogate.identity import check_training
from whence.surrogate.solving import SurrogateSolution, SurrogateSolver
from whence.surrogate.surrogate import Surrogate
from whence.svm.inputs import check_C, check_features, squared_norms
from whence.tasks import Task


def update(
    fitted: Fitted,
    solver: SurrogateSolver,
    add: Any,
    remove: Sequence[int],
    relabel: Mapping[int, Any],
    features: Any,
    cache_dir: str | PathLike[str] | None,
) -> Fitted:
    """Change the training set and re-solve with the same C; ``DualDA.update`` says what is given."""
    started, before = time.perf_counter(), fitted.require_surrogate()
    changed = _changed(fitted, add, remove, relabel, features, cache_dir)
    reading = time.perf_counter() - started
    X, labels, n = changed.features, changed.labels, changed.change.added
    lam = csr_array(vstack([before.lam, csr_array((n, before.lam.shape[1]))])) if n else before.lam
    solution = solver.again(X, labels, lam, before.C)._replace(choice=before.C_path)
    unseen = still_unseen(before.unseen, len(before.labels), before.task.known(labels))
    surrogate = _surrogate(before, solution, X, labels, unseen, history=(*before.history, changed.change))
    seconds = {"features": reading, "solution": time.perf_counter() - started - reading}
    origins = {"features": changed.note, "solution": solution.note}
    bank = fitted.bank
    if bank is not None:  # in no cache
        bank = replace(bank, features=X, labels=labels, data=changed.data, parts={}, checksum="")
    return replace(_with(fitted, surrogate, seconds, origins, changed.data), bank=bank)


def what_if(
    fitted: Fitted,
    solver: SurrogateSolver,
    X: Floats,
    remove: Sequence[int],
    relabel: Mapping[int, Any],
    C: float | None,
) -> Fitted:
    """Re-solve with other samples, labels or C, from the features (train, d) of the training set."""
    started, before = time.perf_counter(), fitted.require_surrogate()
    labels = changed_labels(before.task, before.labels, len(X), remove, relabel)
    C = before.C if C is None else check_C(C)
    solution = solver.again(X, labels, before.lam, C, before.constant, before.metric)
    unseen = before.unseen[before.task.known(labels)[before.unseen]]
    # The sketch is of the training set as it was fitted, whatever is asked about it.
    surrogate = _surrogate(before, solution, X, labels, unseen, history=before.history, sketch=before.sketch)
    seconds = {"solution": time.perf_counter() - started}
    return _with(fitted, surrogate, seconds, {"solution": solution.note}, fitted.data)


def refit(fitted: Fitted, solver: SurrogateSolver, features: Any, C: float) -> Fitted:
    """Solve the same samples and labels from the start, with the metric and the options of another solver."""
    started, before = time.perf_counter(), fitted.require_surrogate()
    X = check_features(features)
    check_training(before, X)
    solution = solver.of_features(X, before.labels, before.head, check_C(C))
    history, sketch = before.history, before.sketch
    surrogate = _surrogate(before, solution, X, before.labels, before.unseen, history=history, sketch=sketch)
    seconds = {"solution": time.perf_counter() - started}
    return _with(fitted, surrogate, seconds, {"solution": solution.note}, fitted.data)


def _surrogate(
    before: Surrogate, solution: SurrogateSolution, X: Floats, labels: Array, unseen: Ints, **more: Any
) -> Surrogate:
    stored = before.stored
    return make_surrogate(before.task, solution, X, labels, before.head, stored.like.device, unseen, **more)


def _with(
    fitted: Fitted,
    surrogate: Surrogate,
    seconds: dict[str, float],
    origins: dict[str, str],
    data: TrainingSet | None,
) -> Fitted:
    return replace(
        fitted,
        labels=surrogate.labels,
        data=data,
        surrogate=surrogate,
        scorer=surrogate,
        seconds=seconds,
        origins=origins,
    )


class _Changed(NamedTuple):
    """A training set after a change.

    Attributes
    ----------
    features, labels : (N, d) and (N, …), what was added after the rest; blank where a sample is left out
    data : the samples, where they were known before
    change : what was changed
    note : where the features come from
    """

    features: Floats
    labels: Array
    data: TrainingSet | None
    change: Change
    note: str


def _changed(
    fitted: Fitted,
    add: Any,
    remove: Sequence[int],
    relabel: Mapping[int, Any],
    features: Any,
    cache_dir: str | PathLike[str] | None,
) -> _Changed:
    before, task = fitted.labels, fitted.task
    if relabel and task.of_documents:
        raise InvalidInputError(
            "'relabel' must be left out where samples are places of documents, whose tokens are what the "
            f"documents say. Got {len(relabel)}. Leave the document out, and add it as it should be."
        )
    cache_dir = fitted.reading.get("cache_dir") if cache_dir is None else cache_dir
    labels = changed_labels(task, before, len(before), remove, relabel)
    if add is None and (labels == before).all():
        raise InvalidInputError(
            "One of 'add', 'remove' and 'relabel' must change the training set. Got nothing that does."
        )
    X = all_features(fitted, features, cache_dir=cache_dir)
    note, data, n_added = "known", fitted.data, 0
    if add is not None:
        bank = _added(fitted, add, cache_dir)
        n_added, note = len(bank.labels), f"{counted(len(bank.labels), 'sample')} {bank.note}"
        X = stacked([X, _checked(bank, task, X.shape[1])])
        labels = np.concatenate([labels, bank.labels])
        data = data and data.changed(labels, *([bank.data] if bank.data else []))
    elif data is not None:
        data = data.changed(labels)
    old, new = before.tolist(), labels.tolist()
    relabelled = tuple((int(i), old[i], new[i]) for i in relabel if old[i] != new[i] and i not in set(remove))
    removed = tuple((int(i), old[i]) for i in sorted(set(remove)))
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return _Changed(X, labels, data, Change(when, n_added, removed, relabelled), note)


def _added(fitted: Fitted, add: Any, cache_dir: str | PathLike[str] | None) -> FeatureBank:
    """Return the features of samples that are added."""
    bound = fitted.model
    if isinstance(add, FeatureBank):
        if fitted.data is not None and add.data is None:
            raise InvalidInputError(
                "'add' must be samples, or a bank that was extracted from them, as the explainer has its "
                "training set. Got a bank of arrays."
            )
        return add
    if bound is None:
        if not isinstance(add, tuple | list) or len(add) != 2:
            raise InvalidInputError(
                "'add' must be features and labels, (features, labels) or a FeatureBank, as the explainer "
                f"has no model. Got {type(add).__name__}."
            )
        return FeatureBank.of(*add, task=fitted.task)
    ready, corpus = bound.prepare, None if fitted.data is None else fitted.data.corpus
    add = add if corpus is None else corpus.more(add)
    samples = as_training_set(
        add, fitted.batch_size, task=fitted.task, names=fitted.class_names,
        preprocess=ready.preprocess, collate_fn=ready.collate_fn, tokenizer=ready.tokenizer,
    )  # fmt: skip
    bound.check_unchanged()
    return extract(
        bound.extractor.model,
        samples,
        layer=bound.extractor.layer,
        layers=bound.extractor.layers,
        batch_size=fitted.batch_size,
        cache_dir=cache_dir,
        show_progress=fitted.show_progress,
    )


def _checked(bank: FeatureBank, task: Task, width: int) -> Floats:
    """Return the features of a bank, or raise unless they and their labels fit those that are there."""
    X = check_features(as_float32(bank.features))
    if X.shape[1] != width:
        raise InvalidInputError(f"'add' must have {width} features, as those before. Got {X.shape[1]}.")
    squared_norms(X)  # raises where a feature is not finite
    known = task.known(bank.labels)
    task.check_labels(bank.labels[known], int(known.sum()), task.n_outputs)
    return X
