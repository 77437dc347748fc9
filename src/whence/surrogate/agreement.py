"""How far a surrogate can be trusted to stand for its model, told when it is fitted."""

from __future__ import annotations

import numpy as np

from whence.core.arrays import Array, Doubles, Floats, Ints
from whence.errors import AgreementWarning, DataWarning, warn
from whence.features.unit import row_lengths, unit_rows
from whence.model.heads import Head
from whence.svm import held_back
from whence.svm.likeness import judged
from whence.tasks import Task

LOW = 0.9  # below this share of tests with the model's class, explanations are about something else too often
_COLLAPSED = 1e-8  # share of the features' mean square that varies: float32 holds no more than its root
_ROWS = 4096  # enough to see whether features vary


def agreement(
    task: Task, weight: Doubles, head: Head, features: Floats, labels: Array, unit: bool = False
) -> float:
    """Measure how far the surrogate W (K, d[+1]) agrees with the head: for classes, how often.

    With ``unit`` it reads features (n, d) at unit length; the head reads them as they are.
    """
    read, lengths = (unit_rows(features), row_lengths(features)) if unit else (features, None)
    problem = task.problem.make(read, labels, task.n_outputs, 1.0, False)
    return judged(problem, np.arange(len(read)), weight, (head.weight, head.bias), lengths)[0]


def without_part(task: Task, labels: Array, seed: int, given: bool) -> Ints:
    """Find the samples that had no part in choosing C; where C was ``given``, all that took part at all."""
    used = np.flatnonzero(task.known(labels))
    if not len(used):
        return used
    # Groups are told by labels alone: any features will do.
    problem = task.problem.make(np.zeros((len(used), 1)), labels[used], task.n_outputs, 1.0, False)
    rows = held_back(problem.strata, seed)
    return used if given and not len(rows) else used[rows]


def warn_of_low(task: Task, share: float, n: int) -> None:
    """Warn where the surrogate does not stand for the model, beyond what chance does on n rows."""
    if share + np.sqrt(share * (1 - share) / n) < LOW:
        names = f"names the model's class for {share:.1%} of {n:,} training samples only"
        if not task.has_classes:
            names = f"has {task.measures[0]} {share:.3f} with the model on {n:,} training samples only"
        warn(
            f"The surrogate {names}, so its "
            'scores tell little about the model. Try other values of C or C="auto", and see whether the '
            "model has learned its training set.",
            AgreementWarning,
        )


def warn_of_data(task: Task, features: Floats, labels: Array) -> None:
    """Warn of labels that look wrong, such as of one class only, and of features that hardly vary."""
    if what := task.label_warning(labels):
        warn(f"{what}. Check the labels.", DataWarning)
    rows = np.flatnonzero(task.known(labels))
    some = features[rows[:: max(1, len(rows) // _ROWS)]].astype(np.float64)
    if len(some) > 1 and np.mean((some - some.mean(0)) ** 2) <= _COLLAPSED * np.mean(some**2):
        warn(
            "The features of all training samples are nearly the same, so no sample can be told from "
            "another. Check that the model is trained and that its inputs are prepared as in training.",
            DataWarning,
        )
