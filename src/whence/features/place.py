"""Where a bank lies in a cache, so that a file can name it instead of copying its rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from whence.core import contents
from whence.core.cache import Cache, Slot, read_entry
from whence.errors import StoreError
from whence.features.bank import FeatureBank, checksum
from whence.features.folder import Folder
from whence.features.rows import Rows

KIND = "bank"


@dataclass(frozen=True)
class BankPlace:
    """A bank by its name in a cache and the checksum of its rows.

    Attributes
    ----------
    name : of its folder, which is made of the fingerprint of everything that the features depend on
    checksum : of features and labels
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # of a file that has another field

    name: str
    checksum: str

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
                "configuration beside the file, with --trust."
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
