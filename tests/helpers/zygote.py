"""A process that has imported everything and forks jobs to be killed, since importing takes seconds.

Reads one JSON job per line: {"start": name, "cache": folder, "out": file, ...} answers the child's pid,
{"wait": pid} its status. A child writes what it found to ``out``.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from tqdm import tqdm

import whence
from whence.app import fit as fitting
from whence.core import files, store
from whence.features import extract
from whence.features import job as extracting
from whence.project import Configuration
from whence.surrogate import shards
from whence.surrogate import solving as surrogate_solving

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


def fit_job(cache: str, save: str, C: Any = 0.02) -> dict[str, Any]:
    explainer = whence.DualDA(C=C, batch_size=BATCH, n_threads=1, show_progress=False)
    explainer.fit(model(), Items(), cache_dir=cache, on_error="skip").save(save)
    return explainer.origins_


def command_job(cache: str, save: str, stage: str) -> dict[str, Any]:
    """What ``whence fit`` does, with C chosen, and a note in a file of what it is doing."""
    note_stages(stage)
    configuration = Configuration(
        model="tests.helpers.zygote:model",
        data="tests.helpers.zygote:Items",
        options={"batch_size": BATCH, "n_threads": 1, "tol": 1e-9},
        reading={"cache_dir": cache, "on_error": "skip"},
    )
    with redirect_stdout(io.StringIO()) as printed:
        fitting.run(configuration, Path(save), "copy")
    lines = printed.getvalue().splitlines()
    return {"said": [line for line in lines if line.startswith(("Features", "Solution"))]}


def note_stages(path: str) -> None:
    """Write to a file what this process is doing: solving, saving, or reading, which stands for the rest."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(file, b"reading", 0)

    @contextmanager
    def doing(what: bytes) -> Iterator[None]:
        before = os.pread(file, 7, 0)
        os.pwrite(file, what, 0)
        try:
            yield
        finally:
            os.pwrite(file, before, 0)

    def solving(function: Any) -> Any:
        def noted(*args: Any, **options: Any) -> Any:
            with doing(b"solving"):
                return function(*args, **options)

        return noted

    @contextmanager
    def saving(path: Any) -> Iterator[Any]:
        kept = "bank-" not in str(path)  # solutions, the explainer and its configuration
        with doing(b"saving ") if kept else nullcontext(), files.replacing(path) as opened:
            yield opened

    shards.solve, surrogate_solving.choose_C = solving(shards.solve), solving(surrogate_solving.choose_C)
    store.replacing = saving


JOBS = {"extract": extraction_job, "fit": fit_job, "command": command_job}


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
    # tqdm's own lock is one for all processes of a family: a child killed with it would hold up all others.
    tqdm.set_lock(threading.RLock())
    tqdm.monitor_interval = 0
    warnings.simplefilter("ignore")  # the surrogate of an untrained model is not faithful
    extracting.CHECKPOINT_SECONDS = 0  # a mark after every batch: more different places to be killed in
    with tempfile.TemporaryDirectory() as folder:  # compiles, and finds out about the code, once for all
        fit_job(f"{folder}/cache", f"{folder}/x.whence", C="auto")
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
