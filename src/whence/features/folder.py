"""A bank's folder in a cache: its rows on disk, how far they are sound, and its place, which files name."""

from __future__ import annotations

import io
import os
import zlib
from dataclasses import asdict, dataclass
from typing import ClassVar, Self

import numpy as np

from whence.core import contents
from whence.core.arrays import Array
from whence.core.cache import Cache, Slot, read_entry
from whence.errors import StoreError
from whence.features.bank import FeatureBank, checksum
from whence.features.rows import InFile, Rows, as_bytes, crc, full_disk

KIND = "bank"


@dataclass(frozen=True)
class BankProgress:
    """How far a bank is sound: samples that are done, and the running CRC-32 of their features and labels."""

    samples: int = 0
    sums: tuple[int, int] = (0, 0)


class Folder:
    """A bank's folder: features.npy and labels.npy, whose rows the entry vouches for once they are safe.

    Opening it checks these rows, byte by byte, and drops what lies behind them.

    The slot's entry is begun. ``features`` and ``labels`` have no rows, but the shape and dtype of those to
    come. Files that are not what the entry says raise StoreError.
    """

    def __init__(self, slot: Slot, features: Rows, labels: Array) -> None:
        entry = slot.entry
        if entry is None:
            raise StoreError(f"{slot.path} does not say what it is for.")
        self.slot, self.complete = slot, entry.complete
        self.progress = contents.manifest(BankProgress, entry.progress)
        self.files: list[InFile] = []
        try:
            with full_disk(slot.path):
                self._open("features.npy", features)
                self._open("labels.npy", labels)
            self._check(*self.mapped())
        except BaseException:
            self.close()
            raise

    def append(self, features: Rows, labels: Array) -> None:
        """Add the rows of the next samples."""
        was, sums = self.progress, []
        for file, rows, value in zip(self.files, (features, labels), was.sums, strict=True):
            rows = np.ascontiguousarray(rows, file.dtype)
            file.append(rows)
            sums.append(zlib.crc32(as_bytes(rows), value))
        # All at once, so that it is right whatever ends this function.
        self.progress = BankProgress(was.samples + len(labels), (sums[0], sums[1]))

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
        # Opened by its path, so that a map of it shows other machines where it is; made where it is missing.
        raw = io.FileIO(path, "r+", opener=lambda path, flags: os.open(path, flags | os.O_CREAT, 0o666))
        file = InFile(raw, like.shape[1:], like.dtype, rows)
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


@dataclass(frozen=True)
class BankPlace:
    """A bank by its name in a cache and the checksum of its rows."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # of a file that has another field

    name: str  # of its folder, made of the fingerprint of everything that the features depend on
    checksum: str  # of features and labels

    @classmethod
    def of(cls, bank: FeatureBank) -> Self | None:
        """Return where a bank lies, None where it is in no cache."""
        if not bank.checksum:
            return None
        return cls(Cache(".").slot(KIND, bank.parts).path.name, bank.checksum)

    def open(self, cache_dir: str | os.PathLike[str] | None) -> Rows:
        """Map the features (N, d) read-only, once all rows were compared with their checksum, or raise."""
        if cache_dir is None:
            raise StoreError(
                f"The support vectors' features are not in the file: it names the bank {self.name} of a "
                "cache. Pass 'cache_dir', the folder that the fit was given; commands take it from the "
                "configuration next to the file, with --trust."
            )
        if os.path.basename(self.name) != self.name:
            raise contents.refused(f"the bank's name must be that of a folder, and is {self.name!r}")
        cache = Cache(cache_dir)
        path = cache.folder / self.name
        entry = read_entry(path)
        if entry is None or entry.kind != KIND or not entry.complete:
            state = "is not there" if entry is None else "is not whole"
            raise StoreError(
                f"The file names the bank {self.name}, which {state} in '{cache.folder}'. Name the cache_dir "
                "of the fit; where the bank was removed, fit again."
            )
        slot = Slot(cache, KIND, entry.parts, path)
        try:
            like = [np.load(path / file, mmap_mode="r")[:0] for file in ("features.npy", "labels.npy")]
        except (OSError, ValueError) as error:
            raise StoreError(f"The bank {path} cannot be read ({error}). Fit again.") from error
        with slot.locked():
            folder = Folder(slot, *like)
            try:
                if checksum(folder.progress.sums) != self.checksum:
                    raise StoreError(
                        f"The bank {path} has other rows than those that were fitted (checksum). Fit again."
                    )
                return folder.mapped()[0]
            finally:
                folder.close()
