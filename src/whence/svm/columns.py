"""Outputs that are alike, so that one of them stands for them all: their λ in one column, and in all."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from whence.core.arrays import Ints


def merge_columns(lam: csr_array, place: Ints) -> csr_array:
    """λ of all outputs as that of the merged problem, with the mean of the columns that became one."""
    times = np.bincount(place)
    return lam if len(times) == len(place) else csr_array((lam @ _members(place)) / times)


def expand_columns(lam: csr_array, place: Ints) -> csr_array:
    """λ of the merged problem as that of all outputs: every value stays what it is."""
    if lam.shape[1] == len(place):
        return lam
    expanded = csr_array(lam @ _members(place).T)
    expanded.sort_indices()
    return expanded


def _members(place: Ints) -> csr_array:
    """(outputs, merged outputs): 1 where an output has that place."""
    return csr_array((np.ones(len(place)), (np.arange(len(place)), place)))
