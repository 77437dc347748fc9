"""What a figure was measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version


def describe() -> str:
    """One line: cores, memory, Python and the versions that matter."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    packages = ("whence", "scikit-learn", "numpy", "numba", "torch")
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {pages / 2**30:.0f} GiB, "
        f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in packages)
    )
