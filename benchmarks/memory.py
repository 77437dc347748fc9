"""Memory: what solving needs beyond the features, and what an explainer keeps of them."""

from __future__ import annotations

import multiprocessing
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.solver import SHAPES, features
from whence import DualDA
from whence.svm import solve


def status(name: str) -> int:
    """A value of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def _measure(pipe, shape: str, C: float, data: Path, cache: Path) -> None:
    X, y = features(shape, data, cache)
    for warm in (1e-3, 10.0):
        solve(X[:500], y[:500], C=warm, n_classes=int(y.max()) + 1, tol=1e-7)
    Path("/proc/self/clear_refs").write_text("5")  # start the peak anew
    before = status("VmRSS")
    explainer = DualDA(C=C, tol=1e-3, show_progress=False).fit_features(X, y)
    peak = status("VmHWM") - before
    with tempfile.TemporaryDirectory() as folder:
        explainer.save(Path(folder) / "x.whence")
        stored = (Path(folder) / "x.whence").stat().st_size
    lam = explainer.lam_
    pipe.send((X.nbytes, peak, lam.shape[0] * lam.shape[1] * 8, stored, len(explainer.support_) / len(X)))


def run(data: Path, cache: Path) -> None:
    print(
        "\nPeak memory of a fit beyond the features, support vectors' features kept by it included, and the "
        "size of the saved explainer.\n"
    )
    print("| shape | C | features | peak beyond them | λ as dense float64 | saved | support vectors |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for shape in SHAPES:
        for C in (1e-3, 1e-1):
            ours, theirs = multiprocessing.get_context("spawn").Pipe()
            process = multiprocessing.get_context("spawn").Process(
                target=_measure, args=(theirs, shape, C, data, cache)
            )
            process.start()
            size, peak, dense, stored, support = ours.recv()
            process.join()
            mb = np.array([size, peak, dense, stored]) / 1e6
            print(
                f"| {shape} | {C:g} | {mb[0]:.0f} MB | {mb[1]:.0f} MB ({peak / size:.0%}) | {mb[2]:.0f} MB "
                f"| {mb[3]:.0f} MB ({stored / size:.0%}) | {support:.0%} |",
                flush=True,
            )
