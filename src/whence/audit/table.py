"""What is found in plain types, and as files: CSV that any program reads, and Parquet."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from whence.core.checks import shown
from whence.core.columns import to_csv, to_pandas, to_parquet
from whence.core.display import Columns
from whence.errors import InvalidInputError


class Table(ABC):
    """A list of samples that can be written to a file: a dataclass with the user's own names as ``ids``."""

    ids: tuple[Any, ...] | None

    @abstractmethod
    def columns(self) -> Columns:
        """Return the list as columns of plain values, one row per sample."""

    def _id_column(self) -> Columns:
        """Return the column of the user's own names, where there are any."""
        return {} if self.ids is None else {"id": list(self.ids)}

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types that JSON takes; ids as they were given."""
        whole = {name: v for name, v in vars(self).items() if not isinstance(v, np.ndarray) and name != "ids"}
        return {**whole, "columns": dict(self.columns())}

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write a CSV file; several samples stand in one cell, with spaces between.

        Texts that spreadsheets would take for formulas get a ' before them.
        """
        to_csv(self.columns(), path)

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write a Parquet file, lists as lists; needs pyarrow."""
        to_parquet(self.columns(), path)

    def to_pandas(self) -> Any:
        """Return the list as a DataFrame of pandas, which must be installed."""
        return to_pandas(self.columns())


def plain(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass in plain types that JSON takes, but for records in them."""
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in values.items()}


def check_ids(ids: Sequence[Any] | None, n: int) -> None:
    """Raise unless there is a name for every training sample."""
    sized = hasattr(ids, "__len__") and hasattr(ids, "__getitem__")
    if ids is not None and (isinstance(ids, str | bytes) or not sized or len(ids) != n):
        raise InvalidInputError(f"'ids' must name every training sample, {n} of them. Got {shown(ids)}.")


def chosen_ids(ids: Sequence[Any] | None, chosen: npt.NDArray[np.int64]) -> tuple[Any, ...] | None:
    """Return the names of some samples, as plain values."""
    if ids is None:
        return None
    everyone = list(ids)  # a column of a data frame counts by its own index otherwise
    names = (everyone[i] for i in chosen.tolist())
    return tuple(name.item() if isinstance(name, np.generic) else name for name in names)
