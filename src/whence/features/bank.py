"""Feature rows in memory or on disk, and the journal that says how far a file of them is sound.

Rows are written with plain writes and, where memory allows, read with plain reads: a disk that is full and a
file that was cut are then errors that can be handled, where a map would end the process.
"""

from __future__ import annotations

import errno
import io
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from whence.core import contents, store
from whence.errors import StoreError

Rows = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FORMAT = 2
SKIPPED = -1
"""The label of a sample that could not be read; its features are 0 and have no part in anything."""

_BLOCK_BYTES = 1 << 24
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FAILING = {errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.ESTALE}


class Growing(Protocol):
    """An array that grows by rows."""

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows at the end."""

    def whole(self) -> npt.NDArray[Any]:
        """Give all rows; nothing is added afterwards."""


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
        """Give all rows."""
        return self.array[: self.count]


class InFile:
    """Rows in a .npy file, of which the first ``count`` are kept.

    Parameters
    ----------
    file : opened for reading and writing, unbuffered
    tail : the shape of a row
    dtype : of the file
    count : rows to keep; what lies after them is written over
    """

    def __init__(self, file: IO[bytes], tail: tuple[int, ...], dtype: npt.DTypeLike, count: int = 0) -> None:
        self.file, self.tail, self.dtype, self.count = file, tail, np.dtype(dtype), count
        self.row_bytes = self.dtype.itemsize * int(np.prod(tail))
        self.start = len(self._header(count))
        if count == 0:
            self._write(self._header(0), 0)

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows at the end."""
        self._write(_bytes(np.asarray(rows, self.dtype)), self.start + self.count * self.row_bytes)
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
        array = np.empty((self.count, *self.tail), self.dtype)
        self.file.seek(self.start)
        view = memoryview(_bytes(array))
        while view.nbytes:
            n = self.file.readinto(view)  # type: ignore[attr-defined]
            if not n:
                raise OSError("the file ends before its rows do")
            view = view[n:]
        return array

    def has_header(self) -> bool:
        """Whether the file begins with the header of its rows."""
        self.file.seek(0)
        return self.file.read(self.start) == self._header(self.count)

    def flush(self) -> None:
        """Have the system write everything to the disk itself."""
        os.fsync(self.file.fileno())

    def _header(self, count: int) -> bytes:
        """Give the header, whose length does not depend on ``count``: numpy leaves room for its digits."""
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


@dataclass(frozen=True)
class Journal:
    """How far a bank is sound.

    Attributes
    ----------
    samples : samples of the training set that are done, and the rows that they have
    sums : running CRC-32 of those rows' features and labels
    complete : whether that is all
    """

    dimension: int
    dtype: str
    samples: int = 0
    sums: list[int] = field(default_factory=lambda: [0, 0])
    complete: bool = False


class Folder:
    """A bank's folder: features.npy, labels.npy, and journal.json, which is written after the rows are safe.

    Opening it checks the rows that the journal vouches for, byte by byte, and drops what lies behind them.

    Parameters
    ----------
    folder
        Of the bank; it exists.
    dimension, dtype
        Of the features; a journal that says otherwise belongs to something else.

    Raises
    ------
    StoreError
        When the files are not what the journal says.
    """

    def __init__(self, folder: Path, dimension: int, dtype: str) -> None:
        self.folder = folder
        for scrap in folder.glob(".*.tmp"):  # of a process that was killed while it wrote its journal
            scrap.unlink()
        self.journal = _read_journal(folder) or Journal(dimension, dtype)
        if (self.journal.dimension, self.journal.dtype) != (dimension, dtype):
            raise StoreError(f"{folder}: the journal is of features of another size or dtype.")
        self.files: list[InFile] = []
        try:
            with full_disk(folder):
                self._open("features.npy", (dimension,), dtype)
                self._open("labels.npy", (), np.int64)
            if [crc(file.mapped()) for file in self.files] != self.journal.sums:
                raise StoreError(f"{folder}: the rows are not those that were written (checksum).")
        except BaseException:
            self.close()
            raise

    def append(self, features: Rows, labels: Ints) -> None:
        """Add the rows of the next samples."""
        was = self.journal
        sums = []
        for file, rows, value in zip(self.files, (features, labels), was.sums, strict=True):
            rows = np.ascontiguousarray(rows, file.dtype)
            file.append(rows)
            sums.append(zlib.crc32(_bytes(rows), value))
        # All at once, so that the journal is right whatever ends this function.
        self.journal = replace(was, samples=was.samples + len(features), sums=sums)

    def mapped(self) -> tuple[Rows, Ints]:
        """Map the features and labels there are."""
        features, labels = (file.mapped() for file in self.files)
        return features, labels

    def checkpoint(self) -> None:
        """Make what was added so far survive the end of the process or of the power."""
        for file in self.files:
            file.flush()
        self._write_journal()

    def finish(self, in_memory: bool) -> tuple[Rows, Ints]:
        """Mark the bank complete, and give its labels and features: read and checked, or mapped."""
        if not self.journal.complete:
            self.checkpoint()
            for file in self.files:
                file.whole()
            self.journal = replace(self.journal, complete=True)
            self._write_journal()
        if not in_memory:
            return self.files[0].mapped(), self.files[1].loaded()
        try:
            features, labels = (file.loaded() for file in self.files)
        except OSError as error:
            raise StoreError(f"{self.folder}: the rows cannot be read ({error}).") from error
        if [crc(features), crc(labels)] != self.journal.sums:
            raise StoreError(f"{self.folder}: the rows are not those that were written (checksum).")
        features.flags.writeable = False
        return features, labels

    def close(self) -> None:
        """Close the files; maps of them stay."""
        for file in self.files:
            file.file.close()

    def _open(self, name: str, tail: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        path = self.folder / name
        rows = self.journal.samples
        if rows and not path.is_file():
            raise StoreError(f"{path} is missing.")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        file = InFile(io.FileIO(handle, "r+"), tail, dtype, rows)
        self.files.append(file)
        size = path.stat().st_size
        expected = file.start + rows * file.row_bytes
        if size < expected or (self.journal.complete and size != expected):
            raise StoreError(f"{path} has {size:,} bytes where {expected:,} were written.")
        if self.journal.complete and not file.has_header():
            raise StoreError(f"{path} has another header than was written.")

    def _write_journal(self) -> None:
        store.write_text(self.folder / "journal.json", json.dumps({"format": FORMAT, **asdict(self.journal)}))


def read_journal(folder: Path) -> Journal | None:
    """Read how far a bank is; None where nothing was recorded or it cannot be read."""
    try:
        return _read_journal(folder)
    except StoreError:
        return None


def _read_journal(folder: Path) -> Journal | None:
    try:
        values = json.loads((folder / "journal.json").read_text(encoding="utf-8"))
        if values.pop("format") != FORMAT:
            raise StoreError(f"{folder} was written by another version of whence.")
        journal = Journal(**values)
        contents.manifest(Journal, values)
        if not (journal.samples >= 0 and len(journal.sums) == 2 and journal.dimension > 0):
            raise ValueError
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(f"{folder}: the journal cannot be read.") from error
    return journal


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


def widened(features: Rows, target: Growing) -> Rows:
    """Copy float16 features to float32 by blocks."""
    for block in blocks(features):
        target.append(block.astype(np.float32))
    return target.whole()


def blocks(array: npt.NDArray[Any], like: npt.NDArray[Any] | None = None) -> Iterator[npt.NDArray[Any]]:
    """Give an array's rows some 16 MB at a time, or as many at a time as those of another array."""
    model = array if like is None else like
    row = max(1, model.itemsize * int(np.prod(model.shape[1:])))
    step = max(1, _BLOCK_BYTES // row)
    for start in range(0, len(array), step):
        yield array[start : start + step]


def crc(array: npt.NDArray[Any]) -> int:
    """CRC-32 of an array's rows."""
    value = 0
    for block in blocks(array):
        value = zlib.crc32(_bytes(block), value)
    return value


def _bytes(array: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
