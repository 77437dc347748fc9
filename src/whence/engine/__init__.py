"""Where independent pieces of work run: here, or in processes; a run gives the same bits on either."""

from whence.engine.base import ENGINES, Engine, Outcome, Piece, names, ordered, results, run, using
from whence.engine.local import Local, limited
from whence.engine.processes import Processes

__all__ = [
    "ENGINES",
    "Engine",
    "Local",
    "Outcome",
    "Piece",
    "Processes",
    "limited",
    "names",
    "ordered",
    "results",
    "run",
    "using",
]
