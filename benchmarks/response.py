"""What effects cost compared with the products that no solver avoids, as plain GEMMs on the same core.

The bound of attributing B tests, of N samples with D features and K classes, and n = (K − 1)·D weights:

- the Hessian: K (K − 1)/2 symmetric products FᵀF
- its factor: n³/3 operations at the speed of a GEMM
- one residual per test: two products of B·K vectors with the samples, in float32
- four triangular solves per test: two products of B vectors with an n × n matrix
- the scores: a product of B·K vectors with the samples

Solved directly in float64, W of up to 3,000 weights needs no residual, two triangular solves, and products in
float64. Costs are CPU-seconds of one thread, the memory is the factor's. κ = 10,000.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.data import read_idx, synthetic_features
from whence import Effects
from whence.engine import limited
from whence.features import FeatureBank

SHAPES = ((60_000, 128), (20_000, 1_500), (60_000, 800))
CLASSES, TESTS, DIRECT = 10, 500, 3_000


def run(data: Path, shapes: tuple[tuple[int, int], ...] = SHAPES) -> None:
    print(f"\nCPU-s of one thread: fitting, attributing {TESTS} tests, and the bound by GEMMs.\n")
    print("| features | fit | attribute | bound | ratio | factor, MB | peak of memory, MB |")
    print("|---|---|---|---|---|---|---|")
    with limited(1):
        _row("MNIST's pixels, ", *_pixels(data))
        for n, d in shapes:
            _row("", *synthetic_features(n + TESTS, d, CLASSES))


def _pixels(data: Path) -> tuple[np.ndarray, np.ndarray]:
    folder = data / "mnist"
    images = read_idx(folder / "train-images-idx3-ubyte.gz")[: 5_000 + TESTS]
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz")[: 5_000 + TESTS].astype(np.int64)
    return (images.reshape(len(images), -1).astype(np.float32) / 255 - 0.1307) / 0.3081, labels


def _row(name: str, features: np.ndarray, labels: np.ndarray) -> None:
    f, tests = features[:-TESTS], torch.from_numpy(features[-TESTS:])
    marks = [time.process_time()]
    effects = Effects(n_threads=1, show_progress=False).fit(features=FeatureBank.of(f, labels[:-TESTS]))
    marks.append(time.process_time())
    effects.attribute(features=tests)
    marks.append(time.process_time())
    fit, attribute = np.diff(marks)
    n = (CLASSES - 1) * (f.shape[1] + 1)
    direct = n <= DIRECT
    least = _bound(*f.shape, n, np.float64 if direct else np.float32, 0 if direct else 1)
    megabytes = n * n * (8 if direct else 4) / 1e6
    shape = f"{name}{len(f):,} × {f.shape[1]:,}"
    print(
        f"| {shape} | {fit:.1f} | {attribute:.1f} | {least:.1f} | {attribute / least:.1f} | {megabytes:.0f} "
        f"| {_peak():.0f} |",
        flush=True,
    )


def _bound(N: int, d: int, n: int, dtype: type, residuals: int) -> float:
    """Return the CPU-seconds of the products, by timing a part of each."""
    D, rng = d + 1, np.random.default_rng(0)
    rows = rng.normal(size=(4_096, D)).astype(dtype)
    square = rng.normal(size=(2_000, 2_000)).astype(dtype)
    right, many = (rng.normal(size=shape).astype(dtype) for shape in ((2_000, TESTS), (TESTS * CLASSES, D)))
    narrow, vectors = rows[:1_024].astype(np.float32), many.astype(np.float32)
    parts = N / len(narrow)
    hessian = CLASSES * (CLASSES - 1) / 2 * N / len(rows) * _timed(lambda: rows.T @ rows)
    factor = n**3 / 3 / (2 * 2_000**3) * _timed(lambda: square @ square)
    solves = (1 + residuals) * (n / 2_000) ** 2 * _timed(lambda: square @ right)
    scores = parts * _timed(lambda: vectors @ narrow.T)
    return hessian + factor + solves + (1 + 2 * residuals) * scores


def _timed(product: Callable[[], np.ndarray]) -> float:
    """Return the least CPU-seconds of three runs."""
    best = np.inf
    for _ in range(4):
        start = time.process_time()
        product()
        best = min(best, time.process_time() - start)
    return best


def _peak() -> float:
    """Return the largest memory of the process so far, in MB."""
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
