"""A table of any columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whence.audit.access import Columns, Table


@dataclass
class Written(Table):
    """Columns that are written as an audit's are."""

    values: Columns
    ids: tuple[Any, ...] | None = None

    def columns(self) -> Columns:
        return self.values
