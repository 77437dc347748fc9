"""Solutions on subsets of one training set: ``Subsets`` against ``solve`` on the same rows, at one gap.

Both run on one thread and take turns; a ratio is that of the median CPU times per subset. What comes
before the first subset, the solutions on all samples and the Gram matrix, has a column of its own, in plain
solves.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks.data import fashion_features, read_idx
from whence.svm import Subsets, solve

SHAPES = ((1_000, 64), (1_000, 2_000), (5_000, 128), (60_000, 128))
KAPPAS = (500, 2_000, 8_000)
TOL = 1e-3
PLAIN, OURS = {1_000: 8, 5_000: 6, 60_000: 3}, 4  # plain solves per cell, and ours for each of them


def features(n: int, d: int, data: Path, cache: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features of a trained network where it has as many; else random ReLU features of the pixels."""
    labels = read_idx(data / "fashion-mnist" / "train-labels-idx1-ubyte.gz").astype(np.int64)[:n]
    if d == 128:
        X = fashion_features(data, cache)[0][:n]
    else:
        images = read_idx(data / "fashion-mnist" / "train-images-idx3-ubyte.gz")[:n]
        pixels = images.reshape(n, -1).astype(np.float32) / 255.0
        mix = np.random.default_rng(0).normal(size=(pixels.shape[1], d)).astype(np.float32)
        X = np.maximum((pixels - pixels.mean(axis=0)) @ mix, 0.0)
    return np.ascontiguousarray(X / np.sqrt((X.astype(np.float64) ** 2).sum(axis=1).mean())), labels


def masks(kind: str, n: int, m: int) -> np.ndarray:
    """Random halves, or all samples but one."""
    rng = np.random.default_rng(0)
    if kind == "halves":
        return rng.random((m, n)) < 0.5
    left = np.ones((m, n), bool)
    left[np.arange(m), rng.choice(n, m, replace=False)] = False
    return left


def measure(X: np.ndarray, y: np.ndarray, C: float, kind: str) -> tuple[float, float, float]:
    """Median seconds of a plain solve and of ours, and the seconds that come before the first of ours."""
    wanted = PLAIN[len(X)]
    chosen = masks(kind, len(X), wanted * OURS + 1)
    started = time.process_time()
    subsets = Subsets(X, y, n_classes=10, C=C, tol=TOL)
    subsets.solve(chosen[-1])
    before = time.process_time() - started
    plain, ours = [], []
    for k in range(wanted):
        for members in chosen[k * OURS : (k + 1) * OURS]:
            started = time.process_time()
            gap = subsets.solve(members).gap
            ours.append(time.process_time() - started)
            assert gap <= TOL
        started = time.process_time()
        solve(X[members], y[members], n_classes=10, C=C, tol=TOL, n_threads=1)
        plain.append(time.process_time() - started)
    return float(np.median(plain)), float(np.median(ours)), before


def run(data: Path, cache: Path) -> None:
    print("\n| shape | subsets | κ | plain solve | Subsets | ratio | before, in plain solves |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for n, d in SHAPES:
        X, y = features(n, d, data, cache)
        for kind in ("halves", "all but one"):
            measure(X, y, KAPPAS[0] / n, kind)  # compiles every kernel before any clock runs
            for kappa in KAPPAS:
                plain, ours, before = measure(X, y, kappa / n, kind)
                print(
                    f"| {n:,}×{d:,}×10 | {kind} | {kappa:,} | {1e3 * plain:.1f} ms | {1e3 * ours:.1f} ms "
                    f"| {plain / ours:.1f}× | {before / plain:.0f} |",
                    flush=True,
                )
