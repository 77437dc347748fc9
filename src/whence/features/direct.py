"""Rows that other processes write to their place in a bank's file, where they see the same storage."""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from whence.features.rows import InFile, Rows, as_bytes

_LEAST = 1 << 20  # bytes of a batch that are worth a file that is opened and synchronised
_SIGN = ".shared-"
_POLYNOMIAL = 0xEDB88320  # of CRC-32, its lowest power in the highest bit


class Written(NamedTuple):
    """Rows that are in the file already.

    Attributes
    ----------
    n : rows
    crc : CRC-32 of their bytes
    """

    n: int
    crc: int


@dataclass(frozen=True)
class Target:
    """Where rows go: the file, and a sign beside it by which a process knows that it sees the same storage.

    Attributes
    ----------
    path : of the file, the same on every machine
    start, row_bytes : where its rows begin, and how long they are
    sign : of this extraction alone: another storage may have a file at the same path
    """

    path: Path
    start: int
    row_bytes: int
    sign: Path

    @classmethod
    @contextmanager
    def of(cls, file: InFile) -> Iterator[Target]:
        """Return the place of a bank's rows; the sign is there as long as they are written."""
        path = Path(os.path.abspath(file.file.name))
        for old in path.parent.glob(f"{_SIGN}*"):  # of one that was killed
            old.unlink(missing_ok=True)
        sign = path.parent / f"{_SIGN}{secrets.token_hex(8)}"
        sign.touch()
        try:
            yield cls(path, file.start, file.row_bytes, sign)
        finally:
            sign.unlink(missing_ok=True)

    def write(self, first: int, rows: Rows) -> Rows | Written:
        """Write rows from the place of the first on, and tell so; give them back where they must be sent."""
        if rows.nbytes < _LEAST or not self.sign.exists():
            return rows
        data = as_bytes(rows)
        with open(self.path, "r+b") as file:
            file.seek(self.start + first * self.row_bytes)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return Written(len(rows), zlib.crc32(data))


def joined(first: int, second: int, size: int) -> int:
    """CRC-32 of two pieces of data, one after the other, by those of each and the second's size in bytes.

    Examples
    --------
    >>> joined(zlib.crc32(b"whence "), zlib.crc32(b"this?"), 5) == zlib.crc32(b"whence this?")
    True
    """
    return _product(_power(8 * size), first) ^ second


@lru_cache(maxsize=16)
def _power(n: int) -> int:
    """xⁿ modulo the polynomial."""
    found, factor = 1 << 31, 1 << 30
    while n:
        if n & 1:
            found = _product(factor, found)
        factor, n = _product(factor, factor), n >> 1
    return found


def _product(a: int, b: int) -> int:
    """a·b modulo the polynomial, of polynomials over two elements whose lowest power is the highest bit."""
    found = 0
    for place in range(31, -1, -1):
        if a >> place & 1:
            found ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return found
