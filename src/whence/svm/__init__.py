"""Support vector machines: a problem, its certified solver, and its path over C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.core.naming import lazy_names

if TYPE_CHECKING:
    from whence.svm.boxed.problem import Boxed, EpsilonInsensitive, Hinges, OneClassProblem, Tube
    from whence.svm.crammer_singer.problem import CrammerSinger
    from whence.svm.estimator import CrammerSingerSVC
    from whence.svm.path import CChoice, PathPoint, choose_C, held_back, solve_path
    from whence.svm.problem import Makes, Problem
    from whence.svm.sharded import solve_shards
    from whence.svm.solver import Solution, solve

__all__ = [
    "Boxed",
    "CChoice",
    "CrammerSinger",
    "CrammerSingerSVC",
    "EpsilonInsensitive",
    "Hinges",
    "Makes",
    "OneClassProblem",
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

# Compiled loops and scikit-learn take long to import, and most modules need a check or a type only.
__getattr__, __dir__ = lazy_names(__name__)
