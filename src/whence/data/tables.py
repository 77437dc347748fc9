"""Tables of pandas, polars and their like: columns as inputs, with their names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from whence.core.arrays import Array
from whence.data.items import LABEL_NAMES
from whence.errors import InvalidInputError


def is_table(thing: Any) -> bool:
    """Whether a thing is a data frame."""
    return hasattr(thing, "columns") and hasattr(thing, "to_numpy")


def is_row(thing: Any) -> bool:
    """Whether a thing is a row or a column of a data frame."""
    return hasattr(thing, "to_numpy") and hasattr(thing, "index") and not is_table(thing)


def labelled_table(table: Any) -> tuple[Any, Any]:
    """Take a data frame apart into inputs and its column of labels, or raise where it has none."""
    names = list(table.columns)
    labels = [name for name in LABEL_NAMES if name in names]
    if len(labels) != 1 or len(names) < 2:
        raise InvalidInputError(
            f"'data' is a table, which must have a column of labels, one of {', '.join(LABEL_NAMES)}. "
            f"Got the columns {', '.join(map(str, names))}. Pass fit(model, table, y), or rename the column."
        )
    return table[[name for name in names if name != labels[0]]], table[labels[0]]


def column_names(data: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a table, or of the table in a pair (table, y); None of others."""
    table = data[0] if isinstance(data, tuple) and data else data
    return tuple(map(str, table.columns)) if is_table(table) else None


def is_numeric(data: Any) -> bool:
    """Whether all columns of a table, or of the table in a pair (table, y), are numbers."""
    table = data[0] if isinstance(data, tuple) and data else data
    return is_table(table) and _numbers(table) is not None


def table_inputs(table: Any, columns: Iterable[str] = ()) -> Any:
    """Return a table's ``columns``, or all: numbers (n, d), one column of texts as a list, or by name.

    Numbers are float64, so that a model of floats takes integers and flags, too.
    """
    wanted, names = list(columns), {str(name): name for name in table.columns}
    if wanted:
        missing = [name for name in wanted if name not in names]
        if missing:
            raise InvalidInputError(
                f"'x' must have the columns of the training set. Missing: {', '.join(map(repr, missing))}. "
                f"Got {', '.join(map(repr, names))}."
            )
        table = table[[names[name] for name in wanted]]
    numbers = _numbers(table)
    if numbers is not None:
        return numbers
    parts = {str(name): column_values(table[name]) for name in table.columns}
    return next(iter(parts.values())) if len(parts) == 1 else parts


def row_inputs(row: Any, columns: Iterable[str] = ()) -> Any:
    """Return a row of a table as one sample, numbers (d,) or values by name; a column as its values."""
    names = {str(name): name for name in row.index}
    wanted = list(columns)
    if wanted and all(name in names for name in wanted):
        values = {name: row[names[name]] for name in wanted}
        plain = all(isinstance(value, int | float | np.number | np.bool_) for value in values.values())
        if plain:
            return np.array(list(values.values()), np.float64)
        return values if len(values) > 1 else values[wanted[0]]
    return column_values(row)


def column_values(column: Any) -> Any:
    """Return the values of a column: an array of numbers, or a list of anything else."""
    array = column.to_numpy()
    return array if array.dtype.kind in "biuf" else array.tolist()


def _numbers(table: Any) -> Array | None:
    """Return a table of numbers as float64 (n, d); None where a column has something else."""
    parts = [table[name].to_numpy() for name in table.columns]
    if not parts or any(part.ndim != 1 or part.dtype.kind not in "biuf" for part in parts):
        return None
    return np.column_stack(parts).astype(np.float64)
