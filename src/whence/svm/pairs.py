"""Pairs of samples and outputs, the state of the dual during the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Ints
from whence.svm import loops


class Pairs(NamedTuple):
    """Outputs of some samples: outputs[ptr[o]:ptr[o + 1]] of sample rows[o]."""

    rows: npt.NDArray[Any]  # (n,)
    ptr: npt.NDArray[Any]  # (n + 1,)
    outputs: npt.NDArray[Any]  # (P,)

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Expand one value per sample (n,) to its pairs, (P,)."""
        return np.repeat(values, np.diff(self.ptr))


@dataclass
class Kept:
    """α of the kept outputs of every sample; all other α are 0.

    Memory grows with the nonzeros, not with the number of outputs. A problem with few outputs may keep all.
    outputs[ptr[i]:ptr[i + 1]] are kept of sample i, in the order that the problem gives them.
    """

    ptr: Ints  # (N + 1,)
    outputs: npt.NDArray[Any]  # (P,)
    alpha: Doubles  # (P,)

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @property
    def pairs(self) -> Pairs:
        """Return all samples with their kept outputs."""
        return Pairs(np.arange(len(self)), self.ptr, self.outputs)

    def listed(self, counts: npt.NDArray[Any], outputs: npt.NDArray[Any]) -> Kept:
        """Keep other outputs, ``counts`` (N,) per sample, with their α; other α must be 0."""
        pairs = Pairs(np.arange(len(self), dtype=row_int(len(self))), pointers(counts), outputs)
        return Kept(pairs.ptr, outputs, self.at(pairs))

    def at(self, pairs: Pairs) -> Doubles:
        """Return α (P,) of some pairs."""
        alpha = np.empty(len(pairs.outputs))
        loops.carry(self.ptr, self.outputs, self.alpha, pairs.rows, pairs.ptr, pairs.outputs, alpha)
        return alpha

    def replaced(self, pieces: Sequence[tuple[Pairs, Doubles]]) -> Kept:
        """Keep other outputs and α of some samples."""
        counts, source = np.diff(self.ptr), np.zeros(len(self), bool)
        for pairs, _ in pieces:
            counts[pairs.rows] = np.diff(pairs.ptr)
            source[pairs.rows] = True
        ptr = pointers(counts)
        kept = Kept(ptr, np.empty(ptr[-1], self.outputs.dtype), np.empty(ptr[-1]))
        rest = np.flatnonzero(~source)
        loops.place(rest, self.ptr, rest, self.outputs, self.alpha, ptr, kept.outputs, kept.alpha)
        for pairs, alpha in pieces:
            here = np.arange(len(pairs.rows))
            loops.place(here, pairs.ptr, pairs.rows, pairs.outputs, alpha, ptr, kept.outputs, kept.alpha)
        return kept

    def trimmed(self) -> Kept:
        """Drop outputs with α = 0, except the first one of each sample."""
        ptr = np.zeros(len(self.ptr), np.int64)
        old = self.ptr, self.outputs, self.alpha, ptr
        loops.trim(*old, np.empty(0, self.outputs.dtype), np.empty(0), False)
        kept = Kept(ptr, np.empty(ptr[-1], self.outputs.dtype), np.empty(ptr[-1]))
        loops.trim(*old, kept.outputs, kept.alpha, True)
        return kept

    def part(self, start: int, stop: int) -> Kept:
        """Return some samples, in order, with their kept outputs."""
        first, last = self.ptr[start], self.ptr[stop]
        return Kept(self.ptr[start : stop + 1] - first, self.outputs[first:last], self.alpha[first:last])

    def averaged(self, groups: Sequence[Ints]) -> Kept:
        """Set α of every sample of a group to the group's mean."""
        pieces = []
        for rows in groups:
            spans = [slice(self.ptr[i], self.ptr[i + 1]) for i in rows]
            outputs = np.concatenate([self.outputs[span] for span in spans])
            alpha = np.concatenate([self.alpha[span] for span in spans])
            _, first, where = np.unique(outputs, return_index=True, return_inverse=True)
            order = np.argsort(first)  # keep the order of the problem
            mean = (np.bincount(where, alpha) / len(rows))[order]
            ptr = len(order) * np.arange(len(rows) + 1)
            pairs = Pairs(rows, ptr, np.tile(outputs[first[order]], len(rows)))
            pieces.append((pairs, np.tile(mean, len(rows))))
        return self.replaced(pieces) if pieces else self


def pointers(counts: npt.NDArray[Any]) -> Ints:
    """Return the offsets of rows with these counts, including the end of the last one."""
    ptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ptr[1:])
    return ptr


def row_int(n: int) -> type[np.signedinteger[Any]]:
    """Return the integer dtype for n indices."""
    return np.int32 if n < 2**31 else np.int64


def small_int(n_outputs: int) -> type[np.signedinteger[Any]]:
    """Return the integer dtype for outputs."""
    return np.int16 if n_outputs < 2**15 else np.int32


def spread_rows(lam: csr_array, rows: Ints, n: int) -> csr_array:
    """Expand λ of some rows (ascending) to n samples; the others have 0."""
    counts = np.zeros(n, np.int64)
    counts[rows] = np.diff(lam.indptr)
    return csr_array((lam.data, lam.indices, pointers(counts)), shape=(n, lam.shape[1]))
