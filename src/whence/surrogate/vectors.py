"""The support vectors' features: in memory, or rows of a memory map that are read when they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Floats, Ints
from whence.features.rows import fits, mapped
from whence.features.unit import at_unit_length, lengths

_BLOCK_BYTES = 1 << 25  # of rows that are read from a map at a time


class Vectors:
    """Features (S, d) of the support vectors, of which some are read at a time.

    Parameters
    ----------
    rows : (S, d), or a memory map (N, d) that ``places`` of it are rows of
    places : (S,) ascending; None where the rows are all there are, and are kept in memory
    device : where tensors of them are made
    unit : whether features are read at unit length: tests, and rows of a map. Rows in memory are so already
    """

    def __init__(
        self,
        rows: Floats | Tensor,
        places: Ints | None = None,
        device: str | torch.device | None = None,
        unit: bool = False,
    ) -> None:
        self._places, self._map, self.unit = places, rows, unit
        self._held = torch.as_tensor(rows, device=device) if places is None else None
        n = len(rows) if places is None else len(places)
        self.shape = n, int(rows.shape[1])
        # Of as many features, but of no rows: tells device and dtype.
        wide = rows.dtype in (np.float64, torch.float64)
        empty = torch.empty(0, self.shape[1], dtype=torch.float64 if wide else torch.float32, device=device)
        self.like = empty if self._held is None else self._held[:0]

    @classmethod
    def of(
        cls, features: Floats, support: Ints, device: str | torch.device | None = None, unit: bool = False
    ) -> Self:
        """Take the rows of support vectors (S,) among features (N, d): copies, or a map's where it is large.

        With ``unit`` they are read at unit length.
        """
        if mapped(features) and not fits(len(support), features.shape[1], features.dtype):
            return cls(features, support, device, unit)
        rows = torch.from_numpy(np.asarray(features[support]))
        return cls(at_unit_length(rows) if unit else rows, None, device, unit)

    def __len__(self) -> int:
        return self.shape[0]

    def divisors(self, features: Tensor) -> Tensor:
        """Return what features (n, d) are divided by when they are read, (n, 1): 1, or their lengths."""
        return lengths(features) if self.unit else features.new_ones(len(features), 1)

    def as_read(self, features: Tensor) -> Tensor:
        """Return features (n, d) of any samples as those of the support vectors are read."""
        return at_unit_length(features) if self.unit else features

    def __getitem__(self, which: Any) -> Tensor:
        """Return some rows (n, d): a slice, or places among the support vectors."""
        if self._held is not None:
            return self._held[which]
        assert self._places is not None
        if isinstance(which, Tensor):
            which = which.cpu().numpy()
        return self.as_read(torch.as_tensor(np.array(self._map[self._places[which]])).to(self.like))

    def whole(self) -> Tensor:
        """Return all rows (S, d), in memory."""
        return self[:] if self._held is None else self._held

    @property
    def mapped(self) -> bool:
        """Whether rows are read when they are needed."""
        return self._held is None

    def parts(self, n: int) -> Iterator[slice]:
        """Divide n rows into what may be in memory at a time: all, where they are in memory anyway."""
        step = n
        if self.mapped:
            step = max(1, _BLOCK_BYTES // (self.shape[1] * self.like.element_size()))
        for start in range(0, n, max(step, 1)):
            yield slice(start, min(start + step, n))

    def lengths(self) -> Tensor:
        """‖f_i‖ of each row, (S,), in float64."""
        blocks = (self[part] for part in self.parts(len(self)))
        found = [torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in blocks]
        return torch.cat(found) if found else self.like.new_zeros(0, dtype=torch.float64)

    def squared_norms(self) -> Tensor:
        """‖f_i‖² of each row, (S,)."""
        blocks = (self[part] for part in self.parts(len(self)))
        found = [torch.einsum("sd,sd->s", rows, rows) for rows in blocks]
        return torch.cat(found) if found else self.like.new_zeros(0)
