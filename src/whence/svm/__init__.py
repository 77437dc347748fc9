"""The Crammer–Singer support vector machine: its problem, its certified solver, and its path over C."""

from whence.svm.solve import Solution, solve

__all__ = ["Solution", "solve"]
