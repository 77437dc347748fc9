"""The Crammer–Singer support vector machine: its problem, its certified solver, and its path over C."""

from whence.svm.path import CChoice, PathPoint, choose_C, held_back, solve_path
from whence.svm.solve import Solution, solve

__all__ = ["CChoice", "PathPoint", "Solution", "choose_C", "held_back", "solve", "solve_path"]
