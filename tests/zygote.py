"""A process that has imported everything and forks jobs to be killed, since importing takes seconds.

Reads one JSON job a line: {"start": name, "cache": folder, "out": file, ...} answers the child's pid,
{"wait": pid} its status. A child writes what it found to ``out``.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import whence
from whence.features import extract, extraction
from whence.svm import solve

N, D, K, BATCH = 403, 24, 3, 7


class Items(Dataset[tuple[Tensor, int]]):
    """A lazy set with a few samples that cannot be read."""

    bad = (0, 99, *range(105, 112), 402)  # first, last, and a whole batch among them

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.targets = rng.integers(0, K, N)
        self.x = torch.tensor(np.eye(K, 8)[self.targets] + rng.normal(size=(N, 8)), dtype=torch.float32)

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index in self.bad:
            raise OSError("broken image")
        return self.x[index], int(self.targets[index])


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, D), nn.ReLU(), nn.Linear(D, K))


def extraction_job(cache: str) -> dict[str, Any]:
    bank = extract(model(), Items(), cache_dir=cache, batch_size=BATCH, on_error="skip", show_progress=False)
    return {"note": bank.note, "skipped": bank.skipped.tolist()}


def fit_job(cache: str, save: str) -> dict[str, Any]:
    explainer = whence.DualDA(C=0.02, batch_size=BATCH, n_threads=1, show_progress=False)
    explainer.fit(model(), Items(), cache_dir=cache, on_error="skip").save(save)
    return explainer.origins_


JOBS = {"extract": extraction_job, "fit": fit_job}


def child(job: dict[str, Any]) -> None:
    name, out, limit = job.pop("start"), Path(job.pop("out")), job.pop("file_size", None)
    if limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        found = JOBS[name](**job)
    except whence.WhenceError as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    out.write_text(json.dumps(found))


def main() -> None:
    torch.set_num_threads(1)
    extraction.CHECKPOINT_SECONDS = 0  # a mark after every batch: more different places to be killed in
    solve(np.eye(3, dtype=np.float32), [0, 1, 2], C=1.0, n_threads=1)  # compiles
    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            answer = os.waitpid(job["wait"], 0)[1]
        else:
            answer = os.fork()
            if answer == 0:
                code = 1
                try:
                    child(job)
                    code = 0
                finally:
                    os._exit(code)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
