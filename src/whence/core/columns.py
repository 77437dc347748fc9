"""Tables as columns of plain values, and as files: CSV that any program reads, Parquet, a DataFrame."""

from __future__ import annotations

import csv
import io
from os import PathLike
from typing import Any

from whence.core import store
from whence.core.checks import check_path
from whence.core.display import Columns, no_formula
from whence.core.files import replacing
from whence.core.naming import optional_import


def to_csv(columns: Columns, path: str | PathLike[str]) -> None:
    """Write a CSV file; several values stand in one cell, with spaces between.

    A text that begins with =, +, -, @, a tab or a carriage return gets a ' before it: spreadsheets would take
    it for a formula, and run it.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([_cell(value) for value in row])
    store.write_text(check_path("path", path), text.getvalue())


def to_parquet(columns: Columns, path: str | PathLike[str]) -> None:
    """Write a Parquet file, lists as lists; needs pyarrow."""
    pyarrow, parquet = require_parquet()
    table = pyarrow.table({name: list(values) for name, values in columns.items()})
    with replacing(check_path("path", path)) as file:
        parquet.write_table(table, file)


def to_pandas(columns: Columns) -> Any:
    """Return a DataFrame; needs pandas."""
    with optional_import(
        "A DataFrame needs pandas, which is not installed. Run pip install pandas, or use to_csv."
    ):
        import pandas
    return pandas.DataFrame({name: list(values) for name, values in columns.items()})


def require_parquet() -> tuple[Any, Any]:
    """Return what writes Parquet, or raise where it is not installed."""
    with optional_import(
        "Writing Parquet needs pyarrow, which is not installed. Run pip install pyarrow, or use to_csv."
    ):
        import pyarrow
        from pyarrow import parquet
    return pyarrow, parquet


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        members = [no_formula(member) if isinstance(member, str) else str(member) for member in value]
        return " ".join(members)
    return no_formula(value) if isinstance(value, str) else value
