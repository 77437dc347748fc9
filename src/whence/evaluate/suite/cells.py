"""Finished cells of an evaluation's tables, each in a file of its own as soon as it is there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whence.core import contents, store
from whence.errors import StoreError
from whence.evaluate.suite.results import ERROR, Row


class Cells:
    """Keeps the rows of a metric and a method under what they depend on.

    Parameters
    ----------
    folder
        For the files.
    common
        What all cells depend on: data, seed, training, versions.
    """

    def __init__(self, folder: Path, common: Any) -> None:
        self.folder, self.common = folder, common
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, *parts: Any) -> Path:
        """Give the file of a cell; ``parts`` say which it is."""
        text = json.dumps([self.common, parts], sort_keys=True, default=str)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"

    def read(self, *parts: Any) -> list[Row] | None:
        """Give a cell's rows; None where it is not finished, or failed, so that it is tried again."""
        try:
            text = self.path(*parts).read_text(encoding="utf-8")
            rows = contents.manifest(list[Row], json.loads(text))
        except (FileNotFoundError, ValueError, RecursionError, StoreError):
            return None
        return None if any(row.quantity == ERROR for row in rows) else rows

    def write(self, rows: Sequence[Row], *parts: Any) -> None:
        """Keep a cell's rows."""
        store.write_text(self.path(*parts), json.dumps(rows, allow_nan=False))
