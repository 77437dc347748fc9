"""Classes without a sample: all alike, so that one of them stands for them all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from whence.svm.problem import Ints, Problem


def merge_absent(problem: Problem) -> tuple[Problem, Ints]:
    """Give the problem with one class, the last, in place of all that have no sample, and each class's place.

    The primal is strictly convex and stays the same when two such classes change places, so the optimal W has
    the same row for all of them, and their mean λ is as good as any.
    """
    present = np.zeros(problem.n_classes, bool)
    present[problem.labels] = True
    n = int(present.sum())
    n_absent = problem.n_classes - n
    if n_absent < 2:
        return problem, np.arange(problem.n_classes)
    place = np.where(present, np.cumsum(present) - 1, n)
    merged = replace(problem, labels=place[problem.labels], n_classes=n + 1, multiplicity=n_absent)
    return merged, place


def merge_columns(lam: csr_array, place: Ints, merged: Problem) -> csr_array:
    """λ of all classes as that of the merged problem, with the mean of the columns that became one."""
    if merged.multiplicity == 1:
        return lam
    return csr_array((lam @ _members(place)) / merged.times)


def expand_columns(lam: csr_array, place: Ints) -> csr_array:
    """λ of the merged problem as that of all classes: every value stays what it is."""
    if lam.shape[1] == len(place):
        return lam
    expanded = csr_array(lam @ _members(place).T)
    expanded.sort_indices()
    return expanded


def _members(place: Ints) -> csr_array:
    """(classes, merged classes): 1 where a class has that place."""
    each = np.arange(len(place))
    return csr_array((np.ones(len(place)), (each, place)))
