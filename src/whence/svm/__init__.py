"""Support vector machines: a problem, its certified solver, and its path over C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.svm.boxed import Boxed, EpsilonInsensitive, Hinges, OneClass, Tube
from whence.svm.crammer_singer import CrammerSinger
from whence.svm.path import CChoice, PathPoint, choose_C, held_back, solve_path
from whence.svm.problem import Makes, Problem
from whence.svm.sharded import solve_shards
from whence.svm.solve import Solution, solve

if TYPE_CHECKING:
    from whence.svm.estimator import CrammerSingerSVC

__all__ = [
    "Boxed",
    "CChoice",
    "CrammerSinger",
    "CrammerSingerSVC",
    "EpsilonInsensitive",
    "Hinges",
    "Makes",
    "OneClass",
    "PathPoint",
    "Problem",
    "Solution",
    "Tube",
    "choose_C",
    "held_back",
    "solve",
    "solve_path",
    "solve_shards",
]


def __getattr__(name: str) -> Any:
    """Import the estimator when it is asked for: scikit-learn takes a while."""
    if name == "CrammerSingerSVC":
        from whence.svm.estimator import CrammerSingerSVC

        return CrammerSingerSVC
    raise AttributeError(f"module 'whence.svm' has no attribute {name!r}")
