"""Fingerprints of values, code and models. What cannot be read completely is named. No pickle."""

from whence.core.fingerprint.anatomy import (
    Description,
    blueprint,
    comparable,
    is_counter,
    settled,
    structure,
    without,
)
from whence.core.fingerprint.code import source
from whence.core.fingerprint.digest import Digest, key_of

__all__ = [
    "Description",
    "Digest",
    "blueprint",
    "comparable",
    "is_counter",
    "key_of",
    "settled",
    "source",
    "structure",
    "without",
]
