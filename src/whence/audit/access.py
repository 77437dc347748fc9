"""What an audit needs of an explainer: its surrogate, and features and classes of tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from whence.attributors import DualDA
from whence.attributors.dual.attributor import SurrogateAttributor
from whence.attributors.dual.surrogate import Surrogate
from whence.core.checks import to_array
from whence.errors import InvalidInputError
from whence.model.inputs import check_batch


def surrogate_of(explainer: Any) -> Surrogate:
    """Give a fitted explainer's surrogate, or raise."""
    if not isinstance(explainer, DualDA):
        raise InvalidInputError(
            f"'explainer' must be a fitted DualDA, whose dual solution is audited. "
            f"Got {type(explainer).__name__}."
        )
    explainer.check_fitted()
    explainer.task_.require_classes("An explainer that is audited")
    return explainer.surrogate_


def tests_of(
    explainer: SurrogateAttributor, x: Any, features: Any, target: Any, name: str
) -> tuple[int, Iterator[tuple[Tensor, Tensor]]]:
    """Give the number of tests, and features (b, d) and classes (b,), ``batch_size`` tests at a time.

    Parameters
    ----------
    explainer
        A fitted DualDA, or Effects.
    x
        Inputs as for ``explainer.attribute``, or None.
    features
        (B, d), read in slices, or None.
    target
        None for the model's class, one class, or one class per test.
    name
        What errors call the target.
    """
    if (x is None) == (features is None):
        raise InvalidInputError("Either 'x' or 'features' must be given, and not both.")
    size = explainer.batch_size
    if features is None:
        reads = explainer.require_model().reads(x, size)
        count = check_batch(x)
        found = ((explainer.check_features(part.features, "x"), part.logits) for part in reads)
    else:
        rows = to_array("features", features)
        count = len(rows) if rows.ndim else 0
        if not count:
            raise InvalidInputError(f"'features' must have one row per test. Got shape {rows.shape}.")
        slices = (explainer.check_features(rows[start : start + size]) for start in range(0, count, size))
        found = ((f, explainer.surrogate_.model_logits(f)) for f in slices)
    task = explainer.task_
    wanted = (
        repeat(None) if target is None else iter(torch.split(task.check_target(target, count, name), size))
    )
    return count, ((f, task.explained(logits, next(wanted))) for f, logits in found)
