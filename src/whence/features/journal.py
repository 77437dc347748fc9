"""A bank's folder on disk, with the journal that says how far its rows are sound."""

from __future__ import annotations

import io
import json
import os
import zlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from whence.core import contents, store
from whence.core.arrays import Array
from whence.errors import StoreError
from whence.features.rows import InFile, Rows, as_bytes, crc, full_disk

FORMAT = 2


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
    like
        No labels, but of the shape and dtype of those to come.

    Raises
    ------
    StoreError
        When the files are not what the journal says.
    """

    def __init__(self, folder: Path, dimension: int, dtype: str, like: Array) -> None:
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
                self._open("labels.npy", like.shape[1:], like.dtype)
            if [crc(file.mapped()) for file in self.files] != self.journal.sums:
                raise StoreError(f"{folder}: the rows are not those that were written (checksum).")
        except BaseException:
            self.close()
            raise

    def append(self, features: Rows, labels: Array) -> None:
        """Add the rows of the next samples."""
        was = self.journal
        sums = []
        for file, rows, value in zip(self.files, (features, labels), was.sums, strict=True):
            rows = np.ascontiguousarray(rows, file.dtype)
            file.append(rows)
            sums.append(zlib.crc32(as_bytes(rows), value))
        # All at once, so that the journal is right whatever ends this function.
        self.journal = replace(was, samples=was.samples + len(features), sums=sums)

    def mapped(self) -> tuple[Rows, Array]:
        """Map the features and labels there are."""
        features, labels = (file.mapped() for file in self.files)
        return features, labels

    def checkpoint(self) -> None:
        """Make what was added so far survive the end of the process or of the power."""
        for file in self.files:
            file.flush()
        self._write_journal()

    def finish(self, in_memory: bool) -> tuple[Rows, Array]:
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
