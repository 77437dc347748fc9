"""What an audit needs of an explainer: its surrogate, and features and classes of tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from whence.attribution.pairs import PairAttributor
from whence.core.checks import to_array
from whence.errors import InvalidInputError
from whence.methods import DualDA
from whence.model.inputs import check_batch
from whence.surrogate.surrogate import Surrogate


def surrogate_of(explainer: Any) -> Surrogate:
    """Return a fitted explainer's surrogate, or raise."""
    if not isinstance(explainer, DualDA):
        raise InvalidInputError(
            f"'explainer' must be a fitted DualDA, whose dual solution is audited. "
            f"Got {type(explainer).__name__}."
        )
    explainer.check_fitted()
    explainer.task_.require_classes("An explainer that is audited")
    refuse_documents(explainer)
    return explainer.surrogate_


def refuse_documents(explainer: PairAttributor) -> None:
    """Raise where samples are places of documents, which have no labels that could be wrong."""
    if explainer.task_.of_documents:
        raise InvalidInputError(
            "'explainer' must have samples with labels of their own to be audited. This one is of a language "
            "model, whose samples are places of documents. Ask whence an answer comes, by trace(prompt) or "
            "whence explain --prompt, and how far to trust that, by faithfulness_by_frequency(documents)."
        )


def features_of(
    explainer: PairAttributor, x: Any, features: Any
) -> tuple[int, Iterator[tuple[Tensor, Tensor]]]:
    """Return the number of tests, and features (b, d) and outputs (b, K), ``batch_size`` tests at a time.

    ``x`` are inputs as for ``explainer.attribute``, ``features`` (B, d) are read in slices; one is None.
    """
    if (x is None) == (features is None):
        raise InvalidInputError("Either 'x' or 'features' must be given, and not both.")
    size = explainer.batch_size
    if features is None:
        reads = explainer.require_model().reads(x, size)
        return check_batch(x), ((explainer.check_features(one.features, "x"), one.logits) for one in reads)
    rows = to_array("features", features)
    count = len(rows) if rows.ndim else 0
    if not count:
        raise InvalidInputError(f"'features' must have one row per test. Got shape {rows.shape}.")
    slices = (explainer.check_features(rows[start : start + size]) for start in range(0, count, size))
    return count, ((f, explainer.surrogate_.model_logits(f)) for f in slices)


def tests_of(
    explainer: PairAttributor, x: Any, features: Any, target: Any, name: str
) -> tuple[int, Iterator[tuple[Tensor, Tensor]]]:
    """Return the number of tests, and features (b, d) and classes (b,), ``batch_size`` tests at a time.

    Parameters
    ----------
    explainer, x, features
        As for ``features_of``.
    target
        None for the model's class, one class, or one class per test.
    name
        What errors call the target.
    """
    (count, found), task = features_of(explainer, x, features), explainer.task_
    wanted = (
        repeat(None)
        if target is None
        else iter(torch.split(task.check_target(target, count, name), explainer.batch_size))
    )
    return count, ((f, task.choose_target(logits, next(wanted))) for f, logits in found)
