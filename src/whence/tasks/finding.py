"""Which task labels are for, where that can be told of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from whence.core.checks import to_array
from whence.errors import InvalidInputError
from whence.tasks.classes import Classes, OneLogit
from whence.tasks.many_labels import ManyLabels
from whence.tasks.regression import Regression
from whence.tasks.task import Task


def task_of_labels(labels: Any) -> Task:
    """Return the task of labels as users have them, or raise where several are meant as likely.

    Integers and text are classes. Zeros and ones that are no integers, (N,) or (N, 1), belong to one logit;
    other numbers to a regression. Zeros and ones (N, K) are many labels, unless every sample has exactly one
    of them: then they may be classes as well, and the user says which.
    """
    if isinstance(labels, list | tuple):
        labels = [
            one.tolist() if isinstance(one, Tensor | np.ndarray | np.generic) else one for one in labels
        ]
    try:
        found = to_array("data", labels)
    except InvalidInputError:
        return Classes()  # which says what is wrong
    single = found.ndim == 1 or found.shape[1:] == (1,)
    if found.ndim not in (1, 2) or not len(found) or found.dtype.kind not in "biuf":
        return Classes()
    if found.ndim == 1 and found.dtype.kind in "iu":
        return Classes()
    ones = bool(((found == 0) | (found == 1)).all())
    if single:
        return OneLogit() if ones else Regression()
    if not ones:
        return Regression()
    if bool((found.sum(axis=1) == 1).all()):
        raise InvalidInputError(
            "'data' has labels of zeros and ones with exactly one 1 per sample, which may be classes or many "
            'labels. For classes give integers, labels.argmax(1); for many labels pass task="many-labels".'
        )
    return ManyLabels()
