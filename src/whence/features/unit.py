"""Features at unit length: every row divided by its Euclidean length, and rows of zeros as they are."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Doubles
from whence.features.rows import Rows, blocks, together


def lengths(features: Tensor) -> Tensor:
    """Return the Euclidean length of each row (n, d), (n, 1) in float64; of a row of zeros 1.

    Examples
    --------
    >>> lengths(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))[:, 0].tolist()
    [5.0, 1.0]
    """
    rows = features.double()
    # By the largest entry first: squares of very small or large ones would leave float64.
    largest = rows.abs().amax(1, keepdim=True)
    largest = largest.where(largest > 0, 1.0)
    norms: Tensor = largest * torch.linalg.vector_norm(rows / largest, dim=1, keepdim=True)
    return norms.where(norms > 0, 1.0)


def at_unit_length(features: Tensor) -> Tensor:
    """Divide each row (n, d) by its length, in float64; rows come back in the precision that they had."""
    return (features.double() / lengths(features)).to(features.dtype)


def unit_rows(features: Rows) -> Rows:
    """Return all rows (N, d) at unit length: in memory, or in a temporary file where there is no room."""
    parts = (at_unit_length(torch.from_numpy(np.array(block))).numpy() for block in blocks(features))
    return together(parts, len(features), features.shape[1], features.dtype)


def row_lengths(features: Rows) -> Doubles:
    """Return the Euclidean length of each row, (N,); of a row of zeros 1."""
    parts = [lengths(torch.from_numpy(np.array(block))).numpy()[:, 0] for block in blocks(features)]
    return np.concatenate(parts) if parts else np.zeros(0)
