"""What the machine has: memory, disk and libraries with threads."""

from __future__ import annotations

import os
import shutil
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any


def free_memory() -> int | None:
    """Bytes of memory that can be had without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return None
    try:
        # A container may have less than its machine.
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        return min(free, limit - int((group / "memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):
        return free


def free_disk(folder: Path) -> int:
    """Bytes free on the disk of a folder, or of its nearest parent that exists."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def in_words(size: float) -> str:
    """Print a number of bytes.

    Examples
    --------
    >>> in_words(2_048_000_000)
    '2.05 GB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def thread_pools() -> Any:
    """Return the ``ThreadpoolController`` of the libraries loaded now.

    To look for them takes 2 ms, so it is done again only where modules were imported.
    """
    return _thread_pools(len(sys.modules))


@lru_cache(maxsize=1)
def _thread_pools(modules: int) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
