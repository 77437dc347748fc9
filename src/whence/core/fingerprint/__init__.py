"""Fingerprints: of values, of code, and of what models and data sets are made of. No pickle."""

from whence.core.fingerprint.anatomy import anatomy, blueprint, comparable, notes, structure, without
from whence.core.fingerprint.code import source
from whence.core.fingerprint.digest import Digest

__all__ = ["Digest", "anatomy", "blueprint", "comparable", "notes", "source", "structure", "without"]
