"""Changes of a training set: samples that are added, removed or relabelled, and their history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from whence.core import contents
from whence.core.arrays import Array
from whence.core.checks import check_is, check_places, shown
from whence.core.display import counted, displayed
from whence.errors import InvalidInputError
from whence.tasks import Task


@displayed()
@dataclass(frozen=True)
class Change:
    """One change of a training set.

    Attributes
    ----------
    when : date and time, UTC
    added : number of samples that were appended
    removed : indices of the removed samples, with their former labels
    relabelled : indices of relabelled samples, with the labels before and after
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # refuse files with other fields

    when: str
    added: int
    removed: tuple[tuple[int, Any], ...]
    relabelled: tuple[tuple[int, Any, Any], ...]

    def __str__(self) -> str:
        parts = {"added": self.added, "removed": len(self.removed), "relabelled": len(self.relabelled)}
        changes = [f"{counted(n, 'sample')} {what}" for what, n in parts.items() if n]
        return f"{self.when}: {', '.join(changes)}"


def first_labels(labels: Array, history: Sequence[Change], task: Task) -> Array:
    """Return the labels (N, …) of a training set before all its changes, or raise StoreError."""
    labels = labels.copy()
    for change in reversed(history):
        labels = labels[: len(labels) - change.added]
        pairs = [*change.removed, *((i, old) for i, old, _ in change.relabelled)]
        if change.added < 0 or not len(labels) or any(not 0 <= i < len(labels) for i, _ in pairs):
            raise contents.refused("'history' must fit its training set")
        for i, old in pairs:
            with contents.restoring():
                labels[i] = task.encode([old])[0]
                task.check(labels[[i]], np.array([i]), task.n_outputs, "head")
    return labels


def changed_labels(
    task: Task, labels: Array, n_rows: int, remove: Sequence[int], relabel: Mapping[int, Any]
) -> Array:
    """Return labels (N, …) with blanks for removed samples and with new labels, or raise."""
    changed, known = labels.copy(), task.known(labels)
    if n_rows != len(labels):
        raise InvalidInputError(
            f"'features' must be those of all {len(labels):,} training samples. Got {n_rows:,} rows."
        )
    what = "a mapping of training samples to classes, such as {3: 0}"
    check_is("relabel", relabel, Mapping, what)
    for argument, indices in (("remove", remove), ("relabel", list(relabel))):
        wrong = [i for i in check_places(argument, indices, len(labels)).tolist() if not known[i]]
        if wrong:
            raise InvalidInputError(
                f"'{argument}' must name training samples in [0, {len(labels)}) that took part in the fit. "
                f"Got {wrong[0]}."
            )
    for index, label in relabel.items():
        try:
            changed[index] = task.encode([label])[0]
            task.check(changed[[index]], np.array([index]), task.n_outputs, "")
        except InvalidInputError as error:
            raise InvalidInputError(
                f"'relabel' must give {task.labels}. Got {shown(label)} for sample {index}."
            ) from error
    changed[check_places("remove", remove, len(labels))] = task.blank(1)[0]
    if not task.known(changed).any():
        raise InvalidInputError("'remove' must leave a training sample. Got all of them.")
    return changed
