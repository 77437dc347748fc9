"""A training set that changes: samples that are added, left out or labelled anew, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from whence.core import contents
from whence.core.arrays import Array, Floats
from whence.core.display import counted, displayed
from whence.data import TrainingSet, as_training_set
from whence.errors import InvalidInputError
from whence.features import FeatureBank, as_float32, extract
from whence.features.rows import stacked
from whence.surrogate.solutions import changed_labels
from whence.surrogate.training import all_features
from whence.svm.inputs import check_features, squared_norms
from whence.tasks import Task

if TYPE_CHECKING:
    from whence.attribution.surrogate_attributor import SurrogateAttributor


@displayed()
@dataclass(frozen=True)
class Change:
    """One change of a training set.

    Attributes
    ----------
    when : date and time, UTC
    added : how many samples came after those there were
    removed : places of the samples that were left out, and the labels they had
    relabelled : places of samples with another label, the one before and the one after
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # of a file that has another field

    when: str
    added: int
    removed: tuple[tuple[int, Any], ...]
    relabelled: tuple[tuple[int, Any, Any], ...]

    def __str__(self) -> str:
        parts = {"added": self.added, "removed": len(self.removed), "relabelled": len(self.relabelled)}
        told = [f"{counted(n, 'sample')} {what}" for what, n in parts.items() if n]
        return f"{self.when}: {', '.join(told)}"


class Changed(NamedTuple):
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


def changed(
    explainer: SurrogateAttributor,
    add: Any,
    remove: Sequence[int],
    relabel: Mapping[int, Any],
    features: Any,
    cache_dir: str | PathLike[str] | None,
) -> Changed:
    """Change the training set of an explainer, which stays as it is; ``DualDA.update`` says what is given."""
    before, task = explainer.labels_, explainer.task_
    if relabel and task.of_documents:
        raise InvalidInputError(
            "'relabel' must be left out where samples are places of documents, whose tokens are what the "
            f"documents say. Got {len(relabel)}. Leave the document out, and add it as it should be."
        )
    cache_dir = explainer.reading_.get("cache_dir") if cache_dir is None else cache_dir
    labels = changed_labels(task, before, len(before), remove, relabel)
    if add is None and (labels == before).all():
        raise InvalidInputError(
            "One of 'add', 'remove' and 'relabel' must change the training set. Got nothing that does."
        )
    kept = all_features(explainer, features, cache_dir=cache_dir)
    note, data, n_added = "known", explainer.data_, 0
    if add is not None:
        bank = _added(explainer, add, cache_dir)
        n_added, note = len(bank.labels), f"{counted(len(bank.labels), 'sample')} {bank.note}"
        more = _checked(bank, task, kept.shape[1])
        kept = stacked([kept, more])
        labels = np.concatenate([labels, bank.labels])
        data = data and data.changed(labels, *([bank.data] if bank.data else []))
    elif data is not None:
        data = data.changed(labels)
    old, new = before.tolist(), labels.tolist()
    relabelled = tuple((int(i), old[i], new[i]) for i in relabel if old[i] != new[i] and i not in set(remove))
    removed = tuple((int(i), old[i]) for i in sorted(set(remove)))
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return Changed(kept, labels, data, Change(when, n_added, removed, relabelled), note)


def first_labels(labels: Array, history: Sequence[Change], task: Task) -> Array:
    """Return the labels (N, …) that a training set had before all changes of it, or raise StoreError."""
    labels = labels.copy()
    for change in reversed(history):
        labels = labels[: len(labels) - change.added]
        pairs = [*change.removed, *((i, old) for i, old, _ in change.relabelled)]
        if change.added < 0 or not len(labels) or any(not 0 <= i < len(labels) for i, _ in pairs):
            raise contents.refused("'history' must be of its training set, and is not")
        for i, old in pairs:
            with contents.restoring():
                labels[i] = task.encode([old])[0]
                task.check(labels[[i]], np.array([i]), task.n_outputs, "head")
    return labels


def _added(explainer: SurrogateAttributor, add: Any, cache_dir: str | PathLike[str] | None) -> FeatureBank:
    """Return the features of samples that are added."""
    bound = explainer.model_
    if isinstance(add, FeatureBank):
        if explainer.data_ is not None and add.data is None:
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
        return FeatureBank.of(*add, task=explainer.task_)
    ready, corpus = bound.prepare, None if explainer.data_ is None else explainer.data_.corpus
    add = add if corpus is None else corpus.more(add)
    samples = as_training_set(
        add, explainer.batch_size, task=explainer.task_, names=explainer.class_names_,
        preprocess=ready.preprocess, collate_fn=ready.collate_fn, tokenizer=ready.tokenizer,
    )  # fmt: skip
    bound.check_unchanged()
    return extract(
        bound.extractor.model,
        samples,
        layer=bound.extractor.layer,
        layers=bound.extractor.layers,
        batch_size=explainer.batch_size,
        cache_dir=cache_dir,
        show_progress=explainer.show_progress,
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
