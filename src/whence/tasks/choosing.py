"""Choose the task: by the argument, by the labels, or by a saved file."""

from __future__ import annotations

from typing import Any, cast

from whence.core import contents
from whence.core.checks import shown
from whence.errors import InvalidInputError, StoreError
from whence.tasks.classes import Classes, OneLogit
from whence.tasks.many_labels import ManyLabels
from whence.tasks.regression import Regression
from whence.tasks.task import TASKS, Task, is_task_class, label_array


def as_task(task: Any) -> Task | None:
    """Return the task that a user passes, its name or its class; None stays None; anything else raises."""
    if isinstance(task, str):
        task = TASKS.get(task, "task")
    if is_task_class(task):
        task = task()
    if task is not None and not is_task_class(type(task)):
        raise InvalidInputError(
            "'task' must be None, to find it by the labels, a name such as \"regression\", or a task such as "
            f"whence.tasks.Classes(). Got {shown(task)}."
        )
    return cast(Task | None, task)


def find_task(labels: Any) -> Task:
    """Return the task that fits the labels, or raise if several fit equally well.

    Integers and text are classes. Zeros and ones that are not integers, (N,) or (N, 1), belong to one logit;
    other numbers to a regression. Zeros and ones (N, K) are many labels, unless every sample has exactly one
    of them: then they may be classes as well, and the user says which.
    """
    try:
        array = label_array(labels)
    except InvalidInputError:
        return Classes()  # whose ``encode`` says what is wrong
    if array.ndim not in (1, 2) or not len(array) or array.dtype.kind not in "biuf":
        return Classes()
    if array.ndim == 1 and array.dtype.kind in "iu":
        return Classes()
    binary = bool(((array == 0) | (array == 1)).all())
    if not binary:
        return Regression()
    if array.ndim == 1 or array.shape[1] == 1:
        return OneLogit()
    if bool((array.sum(axis=1) == 1).all()):
        raise InvalidInputError(
            "'data' has labels of zeros and ones with exactly one 1 per sample, which may be classes or many "
            'labels. For classes give integers, labels.argmax(1); for many labels pass task="many-labels".'
        )
    return ManyLabels()


def task_class(saved: dict[str, Any] | None) -> type[Task]:
    """Return the class of a saved task, classes for None, or raise StoreError."""
    name = Classes.name if saved is None else saved.get("name")
    if name not in TASKS:
        raise StoreError(
            f"The explainer was fitted for the task {name!r}, which is not registered. Import the module "
            "that registers it with whence.register, or use the version of whence that has it."
        )
    return TASKS.get(name)


def restore_task(saved: dict[str, Any] | None, n_outputs: int, names: tuple[str, ...] | None) -> Task:
    """Return the task of a saved file, classes for None, or raise StoreError."""
    parameters = {name: value for name, value in (saved or {}).items() if name != "name"}
    make = task_class(saved)
    with contents.restoring():
        return make(n_outputs, names, **parameters)
