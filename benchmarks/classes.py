"""Many classes: time and memory of solutions whose scores would not fit, from maps of synthetic features.

Memory is the peak of what the process holds for itself while it solves, without pages of the map. W is
K × (d + 1) in float64 and, for a while, in float32 beside it: both are given, and so is what λ takes.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.memory import status
from whence.errors import ConvergenceWarning
from whence.svm import solve

# Rows, features, classes, C: what grows is K; then a vocabulary, and an eighth of ImageNet's rows.
CELLS = (
    (100_000, 256, 10, 1e-3),
    (100_000, 256, 100, 1e-3),
    (100_000, 256, 1_000, 1e-3),
    (100_000, 256, 10_000, 1e-3),
    (1_000_000, 256, 1_000, 1e-4),
    (50_000, 576, 49_152, 1e-2),
    *((160_000, 2_048, 1_000, C) for C in (1e-3, 1e-2, 1e-1, 1.0, 10.0)),
)
TOL = 1e-3
SECONDS = 3600.0


def write(path: Path, n: int, d: int, k: int, seed: int = 0) -> np.ndarray:
    """Class clusters with a decaying spectrum, block by block into a map; returns the labels."""
    rng = np.random.default_rng(seed)
    y, rank = rng.integers(0, k, n), min(d // 2, 128)
    spectrum = ((1.0 + np.arange(rank)) ** -0.6).astype(np.float32)
    means = rng.standard_normal((k, rank), np.float32) * spectrum * np.float32(0.9)
    mix = rng.standard_normal((rank, d), np.float32) / np.float32(np.sqrt(rank) / 4)
    out = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    for start in range(0, n, 8192):
        part = slice(start, min(start + 8192, n))
        noise = rng.standard_normal((part.stop - start, rank), np.float32) * spectrum
        out[part] = np.maximum((means[y[part]] + noise) @ mix, 0.0)
    out.flush()
    return y


class Peak:
    """The most memory that the process held for itself."""

    def __init__(self) -> None:
        self.before, self.bytes, self._done = status("RssAnon"), 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self.bytes = max(self.bytes, status("RssAnon") - self.before)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def _solve(pipe, path: Path, y: np.ndarray, k: int, C: float) -> None:
    X = np.load(path, mmap_mode="r")
    warnings.simplefilter("ignore", ConvergenceWarning)
    for few in (10, 200):  # compile
        solve(np.asarray(X[:2000]), y[:2000] % few, C=C, tol=1e-5, max_seconds=30.0)
    with Peak() as peak:
        start, cpu = time.perf_counter(), time.process_time()
        found = solve(X, y, n_classes=k, C=C, tol=TOL, max_seconds=SECONDS)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    support = int(np.count_nonzero(np.diff(found.lam.indptr)))
    pipe.send(
        (seconds, cpu, found.gap, found.n_iter, peak.bytes, 12 * found.lam.nnz, found.lam.nnz / support)
    )


def run() -> None:
    print(f"\nSolutions of many classes to a gap of {TOL:g}, from memory maps of float32.\n")
    print("| rows × features × classes | C | features | W | λ | peak | beyond | time (CPU) | rounds | gap |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path, last = Path(folder) / "features.npy", (0, 0, 0)
        for n, d, k, C in CELLS:
            if last != (n, d, k):
                y, last = write(path, n, d, k), (n, d, k)
            ours, theirs = context.Pipe()
            process = context.Process(target=_solve, args=(theirs, path, y, k, C))
            process.start()
            seconds, cpu, gap, rounds, peak, entries, _ = ours.recv()
            process.join()
            features, W = 4 * n * d, 12 * k * (d + 1)
            print(
                f"| {n:,} × {d:,} × {k:,} | {C:g} | {features / 1e6:.0f} MB | {W / 1e6:.0f} MB "
                f"| {entries / 1e6:.0f} MB | {peak / 1e6:.0f} MB | {(peak - W - entries) / features:.0%} "
                f"| {seconds:.1f} s ({cpu:.1f} s) | {rounds} | {gap:.0e} |",
                flush=True,
            )
