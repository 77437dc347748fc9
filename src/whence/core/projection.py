"""A random projection of gradients, generated from a seed: one sign per parameter, without a matrix."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numba
import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Array, Floats, Ints
from whence.core.checks import check_count
from whence.errors import InvalidInputError

Dimension = int | Literal["auto"] | None

AUTO_DIMENSION = 2048


def check_dimension(name: str, value: Any) -> Dimension:
    """Return a number of dimensions, "auto" or None."""
    automatic = isinstance(value, str) and value == "auto"
    return value if value is None or automatic else check_count(name, value)


def projection_for(dimension: Dimension, n_parameters: int, seed: int) -> Projection | None:
    """Make the projection of gradients with P parameters; None for no projection.

    "auto" is 2,048 dimensions for longer gradients; None means no projection.
    """
    if dimension == "auto":
        dimension = AUTO_DIMENSION if n_parameters > AUTO_DIMENSION else None
    return None if dimension is None else Projection(dimension, n_parameters, seed)


class Projection:
    """Project rows g (B, P) to S g (B, k) so that inner products keep their expectation.

    The P coordinates are cut into blocks of k. Each coordinate gets a random sign, each block is rotated by a
    random number of places, and the blocks are added up: S has one entry of ±1 a column. For any x and y,

        E[Sx·Sy] = x·y,    Var[Sx·Sy] ≤ (‖x‖²‖y‖² + (x·y)²) / k,

    as with a dense matrix of k × P random signs, at P operations per row instead of k·P. Signs and rotations
    come from the Philox bit stream of the seed, which numpy keeps the same in all versions: a projection
    is repeatable to the bit, whatever the batch, machine or device.

    Parameters
    ----------
    dimension : k, at most P
    n_parameters : P
    seed : an integer of at least 0

    Examples
    --------
    >>> import torch
    >>> Projection(3, n_parameters=7)(torch.eye(7)).abs().sum(1).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """

    def __init__(self, dimension: int, n_parameters: int, seed: int = 0) -> None:
        if dimension > n_parameters:
            raise InvalidInputError(
                f"'projection' must be at most {n_parameters:,}, the number of parameters that gradients are "
                f"taken of. Got {dimension:,}. Choose fewer dimensions, or None for no projection."
            )
        self.dimension, self.n_parameters, self.seed = int(dimension), n_parameters, seed

    def __call__(self, rows: Tensor) -> Tensor:
        """Project rows (B, P) to (B, k)."""
        out = rows.new_zeros(len(rows), self.dimension)
        places, signs = self._drawn
        if rows.device.type == "cpu":
            add_blocks(out.numpy(), rows.numpy(), signs, places)
        else:
            add_blocks_on_device(out, rows, torch.from_numpy(signs).to(rows), places.tolist())
        return out

    @cached_property
    def _drawn(self) -> tuple[Ints, Array]:
        """Random offsets (blocks,) of the blocks, and signs (P,) of the coordinates, one byte each."""
        k, P = self.dimension, self.n_parameters
        stream = np.random.Philox(key=self.seed)
        places = (stream.random_raw(-(-P // k)) % np.uint64(k)).astype(np.int64)
        bits = np.unpackbits(stream.random_raw(-(-P // 64)).astype("<u8").view(np.uint8), count=P)
        return places, 2 * bits.astype(np.int8) - 1


@numba.njit(cache=True, nogil=True)
def add_blocks(out: Floats, rows: Floats, signs: Array, places: Ints) -> None:
    """Add the blocks of rows (B, P) to out (B, k): thousands of small steps, which are slow in torch.

    One block after another, so that sums have the same order in every batch and on every device.
    """
    k, P = out.shape[1], rows.shape[1]
    for i in range(len(rows)):
        for block in range(len(places)):
            start, place = block * k, places[block]
            stop = min(start + k, P)
            split = min(start + k - place, stop)
            _add_signed(out[i, place:], rows[i, start:split], signs[start:split])
            _add_signed(out[i], rows[i, split:stop], signs[split:stop])


@numba.njit(cache=True, nogil=True)
def _add_signed(out: Floats, part: Floats, signs: Array) -> None:
    for j in range(len(part)):
        out[j] += part[j] * signs[j]


def add_blocks_on_device(out: Tensor, rows: Tensor, signs: Tensor, places: list[int]) -> None:
    """Do the same in torch."""
    k, P = out.shape[1], rows.shape[1]
    for block, place in enumerate(places):
        columns = slice(block * k, min((block + 1) * k, P))
        part = rows[:, columns] * signs[columns]
        split = min(k - place, part.shape[1])
        out[:, place : place + split] += part[:, :split]
        out[:, : part.shape[1] - split] += part[:, split:]
