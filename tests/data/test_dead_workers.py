"""A process that reads and dies: an error that names the samples, whatever the main thread was doing."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, get_worker_info

from whence.errors import WorkerError
from whence.features import extract

N, BATCH, DEADLY = 64, 4, 21


@dataclass
class Deadly(Dataset[Any]):
    """One sample ends the process that reads it."""

    signal: int | None

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        if i == DEADLY and get_worker_info() is not None:
            if self.signal is None:
                os._exit(3)
            os.kill(os.getpid(), self.signal)
        return torch.arange(4.0) + i, i % 2


class Slow(nn.Module):
    """The process dies while the model runs."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.head, self.seconds = nn.Linear(4, 2), seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        out: torch.Tensor = self.head(x)
        return out


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize(("end", "seconds"), [(signal.SIGKILL, 0.0), (signal.SIGKILL, 0.05), (None, 0.05)])
def test_a_dead_worker_is_named_with_its_samples(end: int | None, seconds: float, num_workers: int) -> None:
    with pytest.raises(WorkerError, match=r"died while samples \d+ to \d+ were being read") as raised:
        extract(Slow(seconds), Deadly(end), num_workers=num_workers, batch_size=BATCH, show_progress=False)
    words = str(raised.value).split("samples ")[1].split()
    first, last = int(words[0]), int(words[2])
    assert first <= DEADLY <= last
    assert last - first < 2 * num_workers * BATCH
    assert "num_workers=0" in str(raised.value)
