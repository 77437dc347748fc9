"""Feature rows in memory or on disk, as there is room for them.

Rows are written with plain writes and, where memory allows, read with plain reads: a disk that is full and a
file that was cut are then errors that can be handled, where a map would end the process.
"""

from __future__ import annotations

import copy
import errno
import hashlib
import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from whence.core.arrays import Mask
from whence.core.checks import check_that, to_array
from whence.core.machine import free_memory
from whence.errors import StoreError

Rows = npt.NDArray[np.floating[Any]]

_BLOCK_BYTES = 1 << 24
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FAILING = {errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.ESTALE}


class InMemory:
    """Rows in an array made for the most there can be."""

    def __init__(self, most: int, tail: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self.array = np.empty((most, *tail), dtype)
        self.count = 0

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows at the end."""
        self.array[self.count : self.count + len(rows)] = rows
        self.count += len(rows)

    def whole(self) -> npt.NDArray[Any]:
        """Return all rows."""
        return self.array[: self.count]


class InFile:
    """Rows in a .npy file, of which the first ``count`` are kept.

    ``file`` is opened for reading and writing, unbuffered; ``tail`` is the shape of a row. What lies after
    the rows to keep is written over.
    """

    def __init__(self, file: IO[bytes], tail: tuple[int, ...], dtype: npt.DTypeLike, count: int = 0) -> None:
        self.file, self.tail, self.dtype, self.count = file, tail, np.dtype(dtype), count
        self.row_bytes = self.dtype.itemsize * int(np.prod(tail))
        self.start = len(self._header(count))
        if count == 0:
            self._write(self._header(0), 0)

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows at the end."""
        rows = np.asarray(rows, self.dtype).reshape(len(rows), *self.tail)
        self._write(as_bytes(rows), self.start + self.count * self.row_bytes)
        self.count += len(rows)

    def whole(self) -> npt.NDArray[Any]:
        """Write the number of rows into the header, cut off what lies behind, and map the file."""
        self._write(self._header(self.count), 0)
        self.file.truncate(self.start + self.count * self.row_bytes)
        self.flush()
        return self.mapped()

    def mapped(self) -> npt.NDArray[Any]:
        """Map the rows there are, read-only."""
        shape = (self.count, *self.tail)
        if self.count == 0:
            return np.empty(shape, self.dtype)
        return np.memmap(self.file, self.dtype, "r", self.start, shape)

    def loaded(self) -> npt.NDArray[Any]:
        """Read the rows there are into memory, or raise OSError where the file has fewer."""
        self.file.seek(self.start)
        rows = np.fromfile(self.file, self.dtype, self.count * int(np.prod(self.tail)))
        if rows.nbytes < self.count * self.row_bytes:
            raise OSError("the file ends before its rows do")
        return rows.reshape(self.count, *self.tail)

    def has_header(self) -> bool:
        """Whether the file begins with the header of its rows."""
        self.file.seek(0)
        return self.file.read(self.start) == self._header(self.count)

    def flush(self) -> None:
        """Have the system write everything to the disk itself."""
        os.fsync(self.file.fileno())

    def _header(self, count: int) -> bytes:
        """Return the header, whose length does not depend on ``count``: numpy leaves room for its digits."""
        text = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            text, {"descr": self.dtype.str, "fortran_order": False, "shape": (count, *self.tail)}
        )
        return text.getvalue()

    def _write(self, data: Any, place: int) -> None:
        self.file.seek(place)
        view = memoryview(data)
        while view.nbytes:  # an unbuffered file may take a part only
            view = view[self.file.write(view) :]


def fits(n: int, dimension: int, dtype: np.dtype[Any]) -> bool:
    """Whether rows fill at most half of the memory that is free."""
    free = free_memory()
    return free is None or n * dimension * dtype.itemsize <= free / 2


@contextmanager
def room_for(n: int, dimension: int, dtype: np.dtype[Any]) -> Iterator[InMemory | InFile]:
    """Room for rows in memory, or in a temporary file when they would fill half of what is free."""
    if fits(n, dimension, dtype):
        yield InMemory(n, (dimension,), dtype)
        return
    # The system removes the file when the last map of it is gone, however the process ends.
    with full_disk(tempfile.gettempdir()), tempfile.TemporaryFile(buffering=0) as file:
        yield InFile(file, (dimension,), dtype)


def mapped(rows: Rows) -> bool:
    """Whether rows lie in a memory map, seen as what they are or through an array."""
    base: Any = rows
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    return base is not None


def as_float32(features: Rows) -> Rows:
    """Widen float16 rows, which the solver does not read; other rows come back unchanged."""
    given: Any = features
    if not isinstance(given, np.ndarray):  # of which a memory map stays one
        features = to_array("features", features)
    if features.dtype != np.float16:
        return features
    check_that(features.ndim == 2, "features", "have shape (n, d)", features.shape)
    return together(blocks(features), len(features), features.shape[1], np.dtype(np.float32))


def taken(features: Rows, mask: Mask) -> Rows:
    """Return the rows where a mask (N,) is True: without a copy where that is all of them."""
    check_that(
        isinstance(features, np.ndarray) and features.ndim == 2, "features", "be an array (n, d)", features
    )
    rule = f"be an array of {len(features)} booleans, one per row"
    plain = isinstance(mask, np.ndarray) and not isinstance(mask, np.ma.MaskedArray)
    fits = plain and mask.dtype == np.bool_ and len(mask) == len(features) == mask.size
    check_that(fits, "mask", rule, mask)
    if mask.all():
        return features
    parts = (block[chosen] for block, chosen in zip(blocks(features), blocks(mask, features), strict=True))
    return together(parts, int(mask.sum()), features.shape[1], features.dtype)


def stacked(several: Sequence[Rows]) -> Rows:
    """Put the rows of several arrays (n, d) one after the other."""
    first, n = several[0], sum(map(len, several))
    return together((block for rows in several for block in blocks(rows)), n, first.shape[1], first.dtype)


def together(parts: Iterable[Rows], n: int, dimension: int, dtype: np.dtype[Any]) -> Rows:
    """Put parts of n rows together where there is room for them."""
    with room_for(n, dimension, dtype) as rows:
        for part in parts:
            rows.append(part)
        return rows.whole()


@contextmanager
def full_disk(place: str | os.PathLike[str], kept: str = "") -> Iterator[None]:
    """Turn the system's word that a disk is full, or fails, into a StoreError, with what was ``kept``."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreError(
                f"The disk of {place} is full ({error.strerror}). {kept}Free some space and run again, "
                "or name another cache_dir."
            ) from error
        if error.errno in _FAILING and str(error.filename or place).startswith(str(place)):
            raise StoreError(
                f"Files in {place} cannot be read and written ({error.strerror}). {kept}Name another "
                "cache_dir, or none."
            ) from error
        raise


def blocks(array: npt.NDArray[Any], like: npt.NDArray[Any] | None = None) -> Iterator[npt.NDArray[Any]]:
    """Return an array's rows some 16 MB at a time, or as many at a time as those of another array."""
    model = array if like is None else like
    row = max(1, model.itemsize * int(np.prod(model.shape[1:])))
    step = max(1, _BLOCK_BYTES // row)
    for start in range(0, len(array), step):
        yield array[start : start + step]


class RunningHash:
    """SHA-256 of rows as they come: of their dtype, their shape but the number of rows, and every byte."""

    def __init__(self, tail: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._hash = hashlib.sha256(f"{np.dtype(dtype).descr} {tail}\n".encode())

    def add(self, rows: npt.NDArray[Any]) -> None:
        """Add rows."""
        for block in blocks(rows):
            self._hash.update(as_bytes(block))

    def copy(self) -> Self:
        """Return another of the same rows."""
        other = copy.copy(self)
        other._hash = self._hash.copy()
        return other

    @property
    def value(self) -> str:
        """The digest of the rows so far."""
        return self._hash.hexdigest()[:32]


def hashed(array: npt.NDArray[Any]) -> str:
    """SHA-256 of an array's rows, see ``RunningHash``."""
    running = RunningHash(array.shape[1:], array.dtype)
    running.add(array)
    return running.value


def as_bytes(array: npt.NDArray[Any]) -> memoryview:
    """Return an array's bytes, without a copy where they lie in order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


# At unit length: every row divided by its Euclidean length, and rows of zeros unchanged


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
