"""A bank's folder in a cache: its rows on disk, how far they are sound, and its place, which files name."""

from __future__ import annotations

import io
import os
from dataclasses import asdict, dataclass
from typing import ClassVar, Self

import numpy as np

from whence.core import contents
from whence.core.arrays import Array
from whence.core.cache import Cache, Slot, read_entry
from whence.errors import StoreError
from whence.features.bank import FeatureBank, checksum
from whence.features.rows import InFile, Rows, RunningHash, full_disk, hashed

KIND = "bank"
NO_INPUTS = np.empty((0, 16), np.uint8)
_FILES = ("features.npy", "labels.npy", "inputs.npy")


@dataclass(frozen=True)
class BankProgress:
    """How far a bank is sound: samples that are done, and digests of their features, labels and inputs."""

    samples: int = 0
    sums: tuple[str, str, str] | None = None  # before the first checkpoint


class Folder:
    """A bank's folder: features.npy, labels.npy and inputs.npy, whose rows the entry vouches for.

    Opening it checks these rows, byte by byte, and drops what lies behind them. Of inputs there is a digest
    (16,) of the batch that each sample was read in, to compare with.

    The slot's entry is begun. ``features`` and ``labels`` have no rows, but the shape and dtype of those to
    come. Files that are not what the entry says raise StoreError.
    """

    def __init__(self, slot: Slot, features: Rows, labels: Array) -> None:
        like = (features, labels, NO_INPUTS)
        entry = slot.entry
        if entry is None:
            raise StoreError(f"{slot.path} does not say what it is for.")
        self.slot, self.complete = slot, entry.complete
        saved = contents.manifest(BankProgress, entry.progress)
        self.files: list[InFile] = []
        try:
            with full_disk(slot.path):
                for name, rows in zip(_FILES, like, strict=True):
                    self._open(name, rows, saved.samples)
            hashes = [RunningHash(file.tail, file.dtype) for file in self.files]
            for file, running in zip(self.files, hashes, strict=True):
                running.add(file.mapped())
            self._done = saved.samples, hashes
            if saved not in (self.progress, BankProgress()):
                raise self._altered()
        except BaseException:
            self.close()
            raise

    def append(self, *rows: Array) -> None:
        """Add the features, labels and digests of the inputs of the next samples."""
        samples, hashes = self._done[0] + len(rows[0]), []
        for file, running, part in zip(self.files, self._done[1], rows, strict=True):
            part = np.ascontiguousarray(part, file.dtype)
            file.append(part)
            hashes.append(running.copy())
            hashes[-1].add(part)
        self._done = samples, hashes  # all at once, so that it is right whatever ends this function

    def mapped(self) -> tuple[Rows, Array, Array]:
        """Map the features, labels and digests of inputs there are."""
        features, labels, inputs = (file.mapped() for file in self.files)
        return features, labels, inputs

    @property
    def progress(self) -> BankProgress:
        """How far the files are sound."""
        samples, hashes = self._done
        features, labels, inputs = (running.value for running in hashes)
        return BankProgress(samples, (features, labels, inputs))

    @property
    def checksum(self) -> str:
        """The digests of features and labels as one word."""
        features, labels, _ = (running.value for running in self._done[1])
        return checksum(features, labels)

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
            features, labels = (file.loaded() for file in self.files[:2])
        except OSError as error:
            raise StoreError(f"{self.slot.path}: the rows cannot be read ({error}).") from error
        if checksum(hashed(features), hashed(labels)) != self.checksum:
            raise self._altered()
        features.flags.writeable = False
        return features, labels

    def close(self) -> None:
        """Close the files; maps of them stay."""
        for file in self.files:
            file.file.close()

    def _open(self, name: str, like: Array, rows: int) -> None:
        path = self.slot.path / name
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

    def _altered(self) -> StoreError:
        return StoreError(f"{self.slot.path}: the rows are not those that were written (checksum).")


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
                if folder.checksum != self.checksum:
                    raise StoreError(
                        f"The bank {path} has other rows than those that were fitted (checksum). Fit again."
                    )
                return folder.mapped()[0]
            finally:
                folder.close()
