"""Support vector machines: a problem, its certified solver, and its path over C."""

from whence.svm.boxed import Boxed, EpsilonInsensitive, Hinges, OneClass, Tube
from whence.svm.crammer_singer import CrammerSinger
from whence.svm.path import CChoice, PathPoint, choose_C, held_back, solve_path
from whence.svm.problem import Makes, Problem
from whence.svm.solve import Solution, solve
from whence.svm.subsets import Subsets, SubsetSolution

__all__ = [
    "Boxed",
    "CChoice",
    "CrammerSinger",
    "EpsilonInsensitive",
    "Hinges",
    "Makes",
    "OneClass",
    "PathPoint",
    "Problem",
    "Solution",
    "SubsetSolution",
    "Subsets",
    "Tube",
    "choose_C",
    "held_back",
    "solve",
    "solve_path",
]
