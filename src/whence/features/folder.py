"""A bank's folder on disk, whose entry in the cache says how far its rows are sound."""

from __future__ import annotations

import io
import os
import zlib
from dataclasses import asdict, dataclass

import numpy as np

from whence.core import contents
from whence.core.arrays import Array
from whence.core.cache import Slot
from whence.errors import StoreError
from whence.features.direct import Written, joined
from whence.features.rows import InFile, Rows, as_bytes, crc, full_disk


@dataclass(frozen=True)
class Progress:
    """How far a bank is sound: samples that are done, and the running CRC-32 of their features and labels."""

    samples: int = 0
    sums: tuple[int, int] = (0, 0)


class Folder:
    """A bank's folder: features.npy and labels.npy, whose rows the entry vouches for once they are safe.

    Opening it checks these rows, byte by byte, and drops what lies behind them.

    Parameters
    ----------
    slot
        Of the bank; its entry is begun.
    features, labels
        No rows, but of the shape and dtype of those to come.

    Raises
    ------
    StoreError
        When the files are not what the entry says.
    """

    def __init__(self, slot: Slot, features: Rows, labels: Array) -> None:
        entry = slot.entry
        if entry is None:
            raise StoreError(f"{slot.path} does not say what it is for.")
        self.slot, self.complete = slot, entry.complete
        self.progress = contents.manifest(Progress, entry.progress)
        self.files: list[InFile] = []
        try:
            with full_disk(slot.path):
                self._open("features.npy", features)
                self._open("labels.npy", labels)
            self._check(*self.mapped())
        except BaseException:
            self.close()
            raise

    def append(self, features: Rows | Written, labels: Array) -> None:
        """Add the rows of the next samples, whose features may be in the file already."""
        was, sums = self.progress, []
        for file, rows, value in zip(self.files, (features, labels), was.sums, strict=True):
            if isinstance(rows, Written):
                file.count += rows.n
                sums.append(joined(value, rows.crc, rows.n * file.row_bytes))
                continue
            rows = np.ascontiguousarray(rows, file.dtype)
            file.append(rows)
            sums.append(zlib.crc32(as_bytes(rows), value))
        # All at once, so that it is right whatever ends this function.
        self.progress = Progress(was.samples + len(labels), (sums[0], sums[1]))

    def mapped(self) -> tuple[Rows, Array]:
        """Map the features and labels there are."""
        features, labels = (file.mapped() for file in self.files)
        return features, labels

    def checkpoint(self) -> None:
        """Make what was added so far survive the end of the process or of the power."""
        for file in self.files:
            file.flush()
        self.slot.note(progress=asdict(self.progress))

    def finish(self, in_memory: bool) -> tuple[Rows, Array]:
        """Mark the bank complete, and give its labels and features: read and checked, or mapped."""
        if not self.complete:
            self.checkpoint()
            for file in self.files:
                file.whole()
            self.slot.note(complete=True)
        if not in_memory:
            return self.files[0].mapped(), self.files[1].loaded()
        try:
            features, labels = (file.loaded() for file in self.files)
        except OSError as error:
            raise StoreError(f"{self.slot.path}: the rows cannot be read ({error}).") from error
        self._check(features, labels)
        features.flags.writeable = False
        return features, labels

    def close(self) -> None:
        """Close the files; maps of them stay."""
        for file in self.files:
            file.file.close()

    def _open(self, name: str, like: Array) -> None:
        path = self.slot.path / name
        rows = self.progress.samples
        if rows and not path.is_file():
            raise StoreError(f"{path} is missing.")
        # By its path, so that a map of it tells other machines where it is.
        file = InFile(io.FileIO(path, "r+", opener=_opened), like.shape[1:], like.dtype, rows)
        self.files.append(file)
        size = path.stat().st_size
        expected = file.start + rows * file.row_bytes
        if rows < 0 or size < expected or (self.complete and size != expected):
            raise StoreError(f"{path} has {size:,} bytes where {expected:,} were written.")
        if self.complete and not file.has_header():
            raise StoreError(f"{path} has another header than was written.")

    def _check(self, features: Rows, labels: Array) -> None:
        if (crc(features), crc(labels)) != self.progress.sums:
            raise StoreError(f"{self.slot.path}: the rows are not those that were written (checksum).")


def _opened(path: str, flags: int) -> int:
    """Open a file, or make it."""
    return os.open(path, flags | os.O_CREAT, 0o666)
