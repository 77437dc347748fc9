"""The machine's memory and disk, and whether its CPU supports bfloat16.

Imports nothing but the standard library, so that it can run before torch is imported.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

BATCH_SIZE = 64
"""Samples per forward pass by default; more activations do not fit a CPU's cache."""

REMEDY = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Products that torch delegates to oneDNN, followed by one in float32, which also fails on faulty CPUs.
_PROBE = """
import torch
x = torch.ones(64, 64, dtype=torch.bfloat16)
assert (x @ x == 64).all()
assert (torch.nn.functional.linear(x, x) == 64).all()
image = torch.ones(2, 16, 8, 8, dtype=torch.bfloat16)
assert (torch.nn.functional.conv2d(image, torch.ones(16, 16, 1, 1, dtype=torch.bfloat16)) == 16).all()
y = torch.ones(64, 64)
assert (y @ y == 64).all()
"""


@functools.cache
def bfloat16_works() -> bool:
    """Return whether torch can multiply in bfloat16, in a child process: some virtual CPUs crash on it."""
    quiet = subprocess.DEVNULL
    probe = subprocess.run([sys.executable, "-c", _PROBE], stdout=quiet, stderr=quiet, timeout=300)
    return probe.returncode == 0


def free_memory() -> int | None:
    """Return the bytes of memory available without swapping; None if the system does not say."""
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
    """Return the free bytes on the disk of a folder, or of its nearest existing parent."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def thread_pools() -> Any:
    """Return the ``ThreadpoolController`` of the loaded libraries.

    The search takes 2 ms, so it is repeated only after imports of modules.
    """
    return _thread_pools(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _thread_pools(modules: int) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
