"""Whether the processor can do what it lists: some virtual ones name AMX and trap on it.

Imports nothing but the standard library, so that it can run before torch is imported.
"""

from __future__ import annotations

import functools
import subprocess
import sys

REMEDY = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Products that torch hands to oneDNN, and one in float32 behind them, which fails as well where they failed.
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
    """Whether torch multiplies in bfloat16 on this processor; a child process finds out and may die of it."""
    quiet = subprocess.DEVNULL
    probe = subprocess.run([sys.executable, "-c", _PROBE], stdout=quiet, stderr=quiet, timeout=300)
    return probe.returncode == 0
