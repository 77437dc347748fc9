"""Engines for independent pieces of work: local, processes, Ray; with the same bits on each."""

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
