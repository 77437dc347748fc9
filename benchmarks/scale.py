"""Growth: time and memory of a fit from a memory map, from 20,000 to 2,000,000 rows."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.memory import status
from whence import DualDA
from whence.features import FeatureBank

ROWS = (20_000, 200_000, 2_000_000)
WIDTH, CLASSES, KAPPA = 256, 10, 1e4


def _write(path: Path, n: int, seed: int = 0) -> np.ndarray:
    """Class clusters with a decaying spectrum, written block by block; returns the labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    spectrum = (1.0 + np.arange(WIDTH)) ** -0.6
    means = rng.normal(size=(CLASSES, WIDTH)) * spectrum
    out = np.lib.format.open_memmap(path, "w+", np.float32, (n, WIDTH))
    for start in range(0, n, 10_000):
        part = slice(start, min(start + 10_000, n))
        out[part] = np.maximum(means[y[part]] + rng.normal(size=(part.stop - start, WIDTH)) * spectrum, 0.0)
    out.flush()
    return y


def _fit(pipe, path: Path, y: np.ndarray) -> None:
    DualDA(C=1e-3, show_progress=False).fit(
        features=FeatureBank.of(np.zeros((8, WIDTH), np.float32), np.arange(8))
    )  # compile
    X = np.load(path, mmap_mode="r")
    # The same strength of the losses at every size: C·N·mean‖f‖² is what matters.
    C = KAPPA / (len(X) * float((X[:5000] ** 2).sum(axis=1).mean()))
    before = status("RssAnon")
    Path("/proc/self/clear_refs").write_text("5")
    start = time.perf_counter()
    explainer = DualDA(C=C, tol=1e-4, show_progress=False).fit(features=FeatureBank.of(X, y))
    fitted = time.perf_counter() - start
    start = time.perf_counter()
    explainer.top_k_features(np.asarray(X[:100]), 5)
    attributed = time.perf_counter() - start
    peak = status("VmHWM") - status("RssFile")
    pipe.send((fitted, attributed, peak - before, len(explainer.support_), explainer.gap_))


def run() -> None:
    print(f"\nFit from a memory map of N × {WIDTH} float32, {CLASSES} classes, and top_k of 100 tests.\n")
    print("| rows | map | fit | growth exponent | top_k | memory beyond the map | support vectors | gap |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    previous: tuple[int, float] | None = None
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        for n in ROWS:
            path = Path(folder) / "features.npy"
            y = _write(path, n)
            ours, theirs = context.Pipe()
            process = context.Process(target=_fit, args=(theirs, path, y))
            process.start()
            fitted, attributed, peak, support, gap = ours.recv()
            process.join()
            growth = (
                "–" if previous is None else f"{np.log(fitted / previous[1]) / np.log(n / previous[0]):.2f}"
            )
            previous = n, fitted
            print(
                f"| {n:,} | {path.stat().st_size / 1e6:.0f} MB | {fitted:.2f} s | {growth} "
                f"| {attributed:.2f} s | {peak / 1e6:.0f} MB | {support:,} | {gap:.0e} |",
                flush=True,
            )
