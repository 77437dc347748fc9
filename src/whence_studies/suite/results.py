"""Results of an evaluation: tidy rows in a Parquet file, with the full configuration."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch

from whence.core import contents
from whence.core.display import Columns, displayed
from whence.core.files import replacing, to_pandas
from whence.core.naming import optional_import
from whence.errors import InvalidInputError, StoreError

_PACKAGES = ("whence", "torch", "numpy", "scipy", "scikit-learn", "numba")
ERROR = "error"
"""Quantity of the row of a failed cell; its note is the error."""
COSTS = "resources"
"""Metric of the rows with a method's cost."""
SPREAD = "accuracy_spread"
"""Quantity of the standard deviation of accuracies between training seeds."""


def loss_of(seed: int) -> str:
    """Return the quantity of the losses of models that were trained from one seed."""
    return f"loss_of_seed_{seed}"


class Row(NamedTuple):
    """One number.

    Attributes
    ----------
    metric : name of the metric, or "scene" for facts about a training set and its model
    method : key of the method, or the kind of scene
    quantity : "score" for the metric's score, "each" for that of one test, or the name of a part
    x : position on a curve: a share, a fraction, a C, a class, the index of a test; None off curves
    value : the number; None if there is none
    note : a remark for the reader
    """

    metric: str
    method: str
    quantity: str
    x: float | None
    value: float | None
    note: str = ""


@displayed("rows", "versions", rows="columns")
@dataclass(frozen=True)
class Results:
    """Rows of an evaluation, with the protocol and the versions of packages."""

    rows: tuple[Row, ...]
    protocol: dict[str, Any]
    versions: dict[str, str]

    def columns(self) -> Columns:
        """Return the rows as columns of plain values."""
        return {name: [getattr(row, name) for row in self.rows] for name in Row._fields}

    def to_pandas(self) -> Any:
        """Return the rows as a DataFrame of pandas, which must be installed."""
        return to_pandas(self.columns())

    def value(self, metric: str, method: str, quantity: str = "score") -> float | None:
        """Return a number that is not on a curve, or None."""
        rows = self.select(metric, method, quantity)
        return rows[0].value if rows else None

    def select(
        self, metric: str | None = None, method: str | None = None, quantity: str | None = None
    ) -> list[Row]:
        """Return matching rows, in their order."""
        among = self.rows if metric is None else self._of.get((metric, method), [])
        return [row for row in among if method in (None, row.method) and quantity in (None, row.quantity)]

    @cached_property
    def _of(self) -> dict[tuple[str, str | None], list[Row]]:
        """Rows by metric and method, and by metric alone."""
        by_key: dict[tuple[str, str | None], list[Row]] = {}
        for row in self.rows:
            by_key.setdefault((row.metric, row.method), []).append(row)
            by_key.setdefault((row.metric, None), []).append(row)
        return by_key


def versions() -> dict[str, str]:
    """Return the versions that results depend on, and the processor's instructions that torch uses.

    Instructions differ in rounding, and training with other rounding ends in another network.
    """
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def write(path: str | PathLike[str], results: Results) -> None:
    """Write results to a Parquet file, atomically."""
    pa, parquet = require()
    kinds = {"x": pa.float64(), "value": pa.float64()}
    schema = pa.schema(
        [(name, kinds.get(name, pa.string())) for name in Row._fields],
        metadata={
            "protocol": json.dumps(results.protocol),
            "versions": json.dumps(results.versions, sort_keys=True),
        },
    )
    table = pa.Table.from_pylist([row._asdict() for row in results.rows], schema)
    with replacing(path) as file:
        parquet.write_table(table, file, compression="zstd")


def read(path: str | PathLike[str], *, single: bool = True) -> Results:
    """Read results, or raise if the file is not one of results.

    Parameters
    ----------
    path
        The Parquet file.
    single
        Whether to read scores of single tests and samples too, which ties are tested by.
    """
    pa, parquet = require()
    if not Path(path).is_file():
        raise InvalidInputError(f"'path' must be a file of results. There is no {path}; run whence evaluate.")
    try:
        table = parquet.read_table(path, filters=None if single else [("quantity", "!=", "each")])
        metadata = {key: json.loads(table.schema.metadata[key.encode()]) for key in ("protocol", "versions")}
        rows = tuple(Row(**row) for row in table.select(Row._fields).to_pylist())
        contents.manifest(Results, {"rows": rows, **metadata})
    except (pa.ArrowException, KeyError, TypeError, ValueError, RecursionError, StoreError) as error:
        raise StoreError(f"{path} holds no results of whence evaluate ({error}). Run it again.") from error
    return Results(rows, _as_today(metadata["protocol"]), metadata["versions"])


def _as_today(protocol: dict[str, Any]) -> dict[str, Any]:
    """Convert a protocol from before its data, model and sweep were tables."""
    if not isinstance(protocol.get("data"), str):
        return protocol
    parts = {"data": {"name": protocol["data"]}, "model": protocol["recipe"]}
    return protocol | parts | {"sweep": {"option": protocol["sweep_option"]}}


def require() -> tuple[Any, Any]:
    """Import pyarrow, or raise if it is missing, before the work starts."""
    with optional_import(
        "Results are written as Parquet, which needs pyarrow. Run: pip install 'whence[evaluate]'"
    ):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet
