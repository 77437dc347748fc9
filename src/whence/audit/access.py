"""Helpers of the audits: checks of explainers, features and classes of tests, and tables."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whence.attribution.base import Capabilities
from whence.core.arrays import Ints
from whence.core.checks import check_that, to_array
from whence.core.display import Columns, cell
from whence.core.files import to_csv, to_pandas, to_parquet
from whence.errors import InvalidInputError, UnsupportedError
from whence.model.inputs import check_batch
from whence.surrogate.surrogate import Surrogate


def capabilities_of(explainer: Any) -> Capabilities:
    """Return the capabilities of an explainer; none if it is not an attribution method."""
    supported: Capabilities = getattr(type(explainer), "capabilities", Capabilities())
    return supported


def unsupported(explainer: Any, needed: str) -> UnsupportedError:
    """Return the error for an explainer that an audit does not support; ``needed`` is what it requires."""
    return UnsupportedError(f"'explainer' must be {needed}. Got {type(explainer).__name__}.")


def surrogate_of(explainer: Any) -> Surrogate:
    """Return the surrogate of a fitted explainer with a dual solution, or raise."""
    if not capabilities_of(explainer).dual:
        raise unsupported(explainer, "a fitted DualDA, whose dual solution is audited")
    explainer.task_.require_classes("An explainer that is audited")
    check_no_documents(explainer)
    surrogate: Surrogate = explainer.surrogate_
    return surrogate


def check_no_documents(explainer: Any) -> None:
    """Raise if samples are places of documents, which have no labels of their own."""
    if explainer.task_.of_documents:
        raise UnsupportedError(
            "'explainer' must have samples with labels of their own for an audit. Got one of a language "
            "model, whose samples are places of documents. Use trace(prompt) or whence explain --prompt to "
            "trace an answer, and faithfulness_by_frequency(documents) to measure how far to trust it."
        )


def features_of(explainer: Any, x: Any, features: Any) -> tuple[int, Iterator[tuple[Tensor, Tensor]]]:
    """Return the number of tests, and features (b, d) and outputs (b, K), ``batch_size`` tests at a time.

    Pass ``x``, inputs as for ``explainer.attribute``, or ``features`` (B, d), which are read in slices.
    """
    if (x is None) == (features is None):
        raise InvalidInputError("Either 'x' or 'features' must be given, not both.")
    size = explainer.batch_size
    if features is None:
        fitted = explainer.fitted_
        x = fitted.as_batch(x)
        reads = fitted.require_model().reads(x, size)
        return check_batch(x), ((fitted.check_features(one.features, "x"), one.logits) for one in reads)
    rows = to_array("features", features)
    count = len(rows) if rows.ndim else 0
    if not count:
        raise InvalidInputError(f"'features' must have one row per test. Got shape {rows.shape}.")
    slices = (explainer.fitted_.check_features(rows[start : start + size]) for start in range(0, count, size))
    return count, ((f, explainer.surrogate_.model_logits(f)) for f in slices)


def tests_of(
    explainer: Any, x: Any, features: Any, target: Any, name: str
) -> tuple[int, Iterator[tuple[Tensor, Tensor]]]:
    """Return the number of tests, and features (b, d) and classes (b,), ``batch_size`` tests at a time.

    Parameters
    ----------
    explainer, x, features : as for ``features_of``
    target : None for the predicted class, one class, or one class per test
    name : name of the target in errors
    """
    (count, batches), task = features_of(explainer, x, features), explainer.task_
    wanted = (
        itertools.repeat(None)
        if target is None
        else iter(torch.split(task.check_target(target, count, name), explainer.batch_size))
    )
    return count, ((f, task.choose_target(logits, next(wanted))) for f, logits in batches)


class Table(ABC):
    """A list of samples that can be written to a file: a dataclass with the user's own ``ids``."""

    ids: tuple[Any, ...] | None

    @abstractmethod
    def columns(self) -> Columns:
        """Return the list as columns of plain values, one row per sample."""

    def _id_column(self) -> Columns:
        """Return the column of the user's ids, if any."""
        return {} if self.ids is None else {"id": list(self.ids)}

    def to_dict(self) -> dict[str, Any]:
        """Return everything in plain JSON types; ids are unchanged."""
        whole = {name: v for name, v in vars(self).items() if not isinstance(v, np.ndarray) and name != "ids"}
        return {**whole, "columns": dict(self.columns())}

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write a CSV file; lists of samples are separated by spaces.

        Texts that spreadsheets would read as formulas get a leading '.
        """
        to_csv(self.columns(), path)

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write a Parquet file; requires pyarrow."""
        to_parquet(self.columns(), path)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame; requires pandas."""
        return to_pandas(self.columns())


def markdown(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    head, *body = (
        f"| {' | '.join(cell(str(value)) for value in row)} |" for row in itertools.chain([titles], rows)
    )
    return "\n".join([head, "|" + "---|" * len(titles), *body])


def check_ids(ids: Sequence[Any] | None, n: int) -> None:
    """Raise unless there is an id for every training sample."""
    sized = hasattr(ids, "__len__") and hasattr(ids, "__getitem__")
    fits = ids is None or (not isinstance(ids, str | bytes) and sized and len(ids) == n)
    check_that(fits, "ids", f"have one name per training sample, {n} of them", ids)


def chosen_ids(ids: Sequence[Any] | None, chosen: Ints) -> tuple[Any, ...] | None:
    """Return the ids of some samples, as plain values."""
    if ids is None:
        return None
    names = list(ids)  # a column of a data frame would be indexed by labels
    return tuple(
        name.item() if isinstance(name, np.generic) else name for name in (names[i] for i in chosen.tolist())
    )
