"""Validation of scores, labels and masks in metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.core.arrays import Array, Ints, Mask
from whence.core.checks import as_int64, check_finite, check_shape, check_that, real_array, to_array
from whence.errors import InvalidInputError

MOST_DRAWS = 100_000
"""The most draws of a bootstrap."""
_LARGEST = 1e150
_BLOCK = 1 << 24  # entries per block


def numbers(name: str, values: Any, shape: tuple[int | None, ...]) -> Array:
    """Return finite numbers of a shape, in which None is any length, with their dtype, or raise."""
    array = real_array(name, values)
    if array.dtype.kind in "bu":  # these have no negative differences
        array = array.astype(np.float64)
    check_shape(name, array, shape)
    rows = max(1, _BLOCK // max(1, array[:1].size))
    for start in range(0, len(array), rows):
        block = array[start : start + rows]
        if not np.isfinite(block).all():
            check_finite(name, array)
        if array.dtype.itemsize >= 8 and max(abs(block.max()), abs(block.min())) > _LARGEST:
            raise InvalidInputError(
                f"'{name}' must be within ±{_LARGEST:g}, whose squares can be added. Scale them down."
            )
    return array


def classes(name: str, values: Any, n: int | None = None) -> Ints:
    """Return integers (n,), or raise."""
    array = to_array(name, values)
    check_shape(name, array, (n,))
    if array.dtype.kind not in "iu":
        raise InvalidInputError(f"'{name}' must be integers. Got dtype {array.dtype}.")
    return as_int64(name, array)


def mask(name: str, values: Any, shape: tuple[int | None, ...]) -> Mask:
    """Return booleans of a shape, or raise."""
    array = to_array(name, values)
    check_shape(name, array, shape)
    if array.dtype != np.bool_:
        raise InvalidInputError(
            f"'{name}' must be booleans, True for the samples that are meant. Got dtype {array.dtype}. "
            "Of indices, make mask = np.zeros(n, bool); mask[indices] = True."
        )
    return array


def split_mask(name: str, values: Any, n: int, what: str = "samples") -> Mask:
    """Return booleans (n,) with both values, or raise."""
    marked = mask(name, values, (n,))
    check_that(
        not marked.all() and marked.any(), name, f"mark some of the {n} {what} and not all", marked.sum()
    )
    return marked
