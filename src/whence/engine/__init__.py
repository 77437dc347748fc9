"""Where independent pieces of work run: here, in processes, or by Ray; a run gives the same bits on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.core.naming import lazy_names
from whence.engine.base import (
    ENGINES,
    Engine,
    Group,
    Local,
    Outcome,
    Piece,
    current,
    limited,
    names,
    ordered,
    results,
    run,
    using,
)

if TYPE_CHECKING:
    from whence.engine.processes import Processes
    from whence.engine.ray import Ray

__all__ = [
    "ENGINES",
    "Engine",
    "Group",
    "Local",
    "Outcome",
    "Piece",
    "Processes",
    "Ray",
    "current",
    "limited",
    "names",
    "ordered",
    "results",
    "run",
    "using",
]

__getattr__, __dir__ = lazy_names(__name__)
