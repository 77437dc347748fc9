"""A random projection of gradients that is generated from its seed as it is used, and never stored."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from whence.core.checks import check_count
from whence.errors import InvalidInputError

Dimension = int | Literal["auto"] | None

AUTO_DIMENSION = 2048


def check_dimension(name: str, value: Any) -> Dimension:
    """Return a number of dimensions, "auto" or None."""
    automatic = isinstance(value, str) and value == "auto"
    return value if value is None or automatic else check_count(name, value)


def projection_for(dimension: Dimension, n_parameters: int, seed: int) -> Projection | None:
    """Make the projection of gradients with P parameters; None where they stay whole.

    "auto" is 2,048 dimensions for gradients that have more, None is none, and a number is taken at its word.
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
        k, P = self.dimension, self.n_parameters
        n_blocks = -(-P // k)
        stream = np.random.Philox(key=self.seed)
        places = (stream.random_raw(n_blocks) % np.uint64(k)).tolist()
        bits = np.unpackbits(stream.random_raw(-(-P // 64)).astype("<u8").view(np.uint8), count=P)
        signs = torch.from_numpy(bits).to(rows).mul_(2).sub_(1)
        out = rows.new_zeros(len(rows), k)
        # One block after the other in place, so that sums have the same order in every batch.
        for block, place in enumerate(places):
            columns = slice(block * k, min((block + 1) * k, P))
            part = rows[:, columns] * signs[columns]
            split = min(k - place, part.shape[1])
            out[:, place : place + split] += part[:, :split]
            out[:, : part.shape[1] - split] += part[:, split:]
        return out
