"""Fingerprints of values, code, models and data sets. No pickle."""

from whence.core.fingerprint.anatomy import anatomy, blueprint, comparable, notes, structure, without
from whence.core.fingerprint.code import source
from whence.core.fingerprint.digest import Digest

__all__ = ["Digest", "anatomy", "blueprint", "comparable", "notes", "source", "structure", "without"]
