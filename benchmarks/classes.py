"""Many classes: time and memory of solutions whose scores would not fit, from maps of features.

One thread. Memory is the peak of what the process holds for itself while it solves, without pages of the map.
W is counted separately: K × (d + 1) in float64 and, for a while, also in float32; where classes lack samples,
that of the others, and all of it in float64 as it is returned. So is λ, 12 bytes an entry.

Also: how the time of a pass over all samples grows with K, and LinearSVC at an equal gap.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from benchmarks import next_tokens, solver
from benchmarks.data import synthetic_features
from benchmarks.memory import status
from whence.errors import ConvergenceWarning
from whence.svm import solve
from whence.svm.crammer_singer.problem import CrammerSinger
from whence.svm.passes import Notes, Parallel, look_at_all, most_listed


class Cell(NamedTuple):
    """One shape; ``zipf`` draws classes by how often words occur, so that most have no sample or one.

    With ``real`` features are a language model's, and classes the tokens that came next.
    """

    n: int
    d: int
    k: int
    C: float
    zipf: bool = False
    real: bool = False


# What grows is K; then a vocabulary, and an eighth of ImageNet's rows.
CELLS = (
    Cell(100_000, 256, 10, 1e-3),
    Cell(100_000, 256, 100, 1e-3),
    Cell(100_000, 256, 1_000, 1e-3),
    Cell(100_000, 256, 10_000, 1e-3),
    Cell(1_000_000, 256, 1_000, 1e-4),
    Cell(50_000, 576, 49_152, 1e-2, True),
    *(Cell(160_000, 2_048, 1_000, C) for C in (1e-3, 1e-2, 1e-1, 1.0, 10.0)),
    *(Cell(next_tokens.ROWS, 576, next_tokens.VOCABULARY, C, real=True) for C in (5e-5, 5e-4, 5e-3)),
)
TOL = 1e-3
GROWTH = (10, 100, 1_000, 10_000, 50_000)  # classes of passes over ROWS × WIDTH
ROWS, WIDTH = 4_000, 256
PEERS = ((20_000, 128, 100), (20_000, 128, 1_000))  # shapes that LinearSVC solves too
PEERS_C = 1e-3


def write(path: Path, cell: Cell, seed: int = 0) -> np.ndarray:
    """Class clusters with a decaying spectrum, block by block into a map; returns the labels."""
    rng = np.random.default_rng(seed)
    n, d, k = cell.n, cell.d, cell.k
    share = 1.0 / (np.arange(k) + 2.7) if cell.zipf else np.ones(k)
    y, rank = rng.choice(k, n, p=share / share.sum()), min(d // 2, 128)
    spectrum = ((1.0 + np.arange(rank)) ** -0.6).astype(np.float32)
    means = rng.standard_normal((k, rank), np.float32) * spectrum * np.float32(0.9)
    mix = rng.standard_normal((rank, d), np.float32) / np.float32(np.sqrt(rank) / 4)
    out = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    for start in range(0, n, 8192):
        part = slice(start, min(start + 8192, n))
        noise = rng.standard_normal((part.stop - start, rank), np.float32) * spectrum
        rows = (means[y[part]] + noise) @ mix
        # What goes into a language model's last layer has either sign.
        out[part] = rows if cell.zipf else np.maximum(rows, 0.0)
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


def _solve(pipe, path: Path, y: np.ndarray, k: int, C: float, seconds: float) -> None:
    X = np.load(path, mmap_mode="r")
    warnings.simplefilter("ignore", ConvergenceWarning)
    for few in (10, 200):  # compile
        some = np.asarray(X[:2000]), y[:2000] % few
        solve(*some, C=C, tol=1e-5, max_seconds=30.0, n_threads=1)
    with Peak() as peak:
        start, cpu = time.perf_counter(), time.process_time()
        found = solve(X, y, n_classes=k, C=C, tol=TOL, max_seconds=seconds, n_threads=1)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    support = int(np.count_nonzero(np.diff(found.lam.indptr)))
    pipe.send((seconds, cpu, found.gap, found.n_iter, peak.bytes, 12 * found.lam.nnz, support))


def run(data: Path, cache: Path, cells: list[int], seconds: float) -> None:
    """Measure all, or the cells of these numbers alone, each within a limit of seconds."""
    print(f"\nSolutions of many classes to a gap of {TOL:g}, from memory maps of float32.\n")
    print(
        "| rows × features × classes | C | features | W | λ | peak | beyond | time (CPU) | rounds | support "
        "| gap |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        last = None
        for number, cell in enumerate(CELLS):
            if cells and number not in cells:
                continue
            n, d, k, C, _, real = cell
            if last != cell._replace(C=0.0):
                path, last = Path(folder) / "features.npy", cell._replace(C=0.0)
                if real:
                    path, y = next_tokens.read(data, cache)
                else:
                    y = write(path, cell)
            ours, theirs = context.Pipe()
            process = context.Process(target=_solve, args=(theirs, path, y, k, C, seconds))
            process.start()
            took, cpu, gap, rounds, peak, entries, support = ours.recv()
            process.join()
            there = min(len(np.unique(y)) + 1, k)
            features, W = 4 * n * d, 12 * there * (d + 1) + (8 * k * (d + 1) if there < k else 0)
            print(
                f"| {n:,} × {d:,} × {k:,} | {C:g} | {features / 1e6:.0f} MB | {W / 1e6:.0f} MB "
                f"| {entries / 1e6:.0f} MB | {peak / 1e6:.0f} MB | {(peak - W - entries) / features:.1%} "
                f"| {took:.1f} s ({cpu:.1f} s) | {rounds} | {support / n:.0%} | {gap:.0e} |",
                flush=True,
            )
    if not cells:
        growth()
        peers()


def growth() -> None:
    """How the time of a pass over all samples grows with K."""
    print(f"\nA pass over {ROWS:,} × {WIDTH} samples, one thread, the fastest of five.\n")
    print("| classes | float32 | exponent | float64 | exponent |\n|---|---|---|---|---|", flush=True)
    rng, before = np.random.default_rng(0), None
    X = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    with threadpool_limits(limits=1, user_api="blas"):
        for k in GROWTH:
            problem = CrammerSinger.make(X, np.arange(ROWS) % k, k, 1e-3, True)
            kept = problem.begin(csr_array((ROWS, k)))[0]
            problem.complete(kept)
            W = rng.standard_normal(problem.shape) / 16
            times = []
            for dtype in (np.float32, np.float64):
                asked = problem, W.astype(dtype), kept, 0.1, most_listed(problem), Notes.of(problem)
                times.append(
                    min(_timed(lambda asked=asked: look_at_all(*asked, Parallel())) for _ in range(5))
                )
            each = (
                ["–", "–"]
                if before is None
                else [
                    f"{np.log(now / then) / np.log(k / before[0]):.2f}"
                    for now, then in zip(times, before[1], strict=True)
                ]
            )
            print(f"| {k:,} | {times[0]:.4f} s | {each[0]} | {times[1]:.4f} s | {each[1]} |", flush=True)
            before = k, times


def _timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def peers() -> None:
    """LinearSVC at an equal gap of the returned weights."""
    cells = {}
    for n, d, k in PEERS:
        X, y = synthetic_features(n, d, k)
        solve(X[:2000], y[:2000] % 200, C=PEERS_C, tol=1e-5)  # compile
        name = f"{n:,}×{d}×{k:,}"
        cells[name] = solver.measure(name, X, y, PEERS_C, 120.0, {})
    solver.show(cells)
