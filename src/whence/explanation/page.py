"""Explanations as one page that needs no network and no scripts."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whence.explanation.record import Explanation


def write(explanations: Sequence[Explanation], path: str | PathLike[str] | None) -> str:
    """Render the page, and write it where a path is given."""
    raise NotImplementedError
