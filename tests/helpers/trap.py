"""Keeps the tests from instructions that the processor lists but cannot run."""

from __future__ import annotations

import os

from whence.core.machine import REMEDY, bfloat16_works


def avoid_trap() -> None:
    """Set the remedy where it is needed and helps. Call before torch is imported."""
    name, value = REMEDY
    if name in os.environ or bfloat16_works():
        return
    os.environ[name] = value
    bfloat16_works.cache_clear()
    if not bfloat16_works():
        del os.environ[name]
