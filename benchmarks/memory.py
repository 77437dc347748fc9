"""Memory: what solving needs beyond the features, and what an explainer keeps of them."""

from __future__ import annotations

import multiprocessing
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.solver import SHAPES, features
from whence import DualDA
from whence.features import FeatureBank
from whence.svm import solve


def status(name: str) -> int:
    """A value of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def _measure(pipe, stored_features: Path, y: np.ndarray, C: float) -> None:
    X = np.load(stored_features)  # and not made here: what making them frees would hide what solving takes
    for warm in (1e-3, 10.0):
        solve(X[:500], y[:500], C=warm, n_classes=int(y.max()) + 1, tol=1e-7)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = status("VmRSS")
    solve(X, y, C=C, tol=1e-3)
    peak = status("VmHWM") - before
    explainer = DualDA(C=C, tol=1e-3, show_progress=False).fit(features=FeatureBank.of(X, y))
    with tempfile.TemporaryDirectory() as folder:
        explainer.save(Path(folder) / "x.whence")
        stored = (Path(folder) / "x.whence").stat().st_size
    lam = explainer.lam_
    pipe.send((X.nbytes, peak, lam.shape[0] * lam.shape[1] * 8, stored, len(explainer.support_) / len(X)))


def run(data: Path, cache: Path) -> None:
    print(
        "\nPeak memory of a solution beyond the features, and the size of the saved explainer, which keeps "
        "the support vectors' features.\n"
    )
    print("| shape | C | features | peak beyond them | λ as dense float64 | saved | support vectors |")
    print("|---|---|---|---|---|---|---|", flush=True)
    context = multiprocessing.get_context("spawn")
    for shape in SHAPES:
        X, y = features(shape, data, cache)
        stored_features = cache / "features.npy"
        np.save(stored_features, X)
        for C in (1e-3, 1e-1):
            ours, theirs = context.Pipe()
            process = context.Process(target=_measure, args=(theirs, stored_features, y, C))
            process.start()
            size, peak, dense, stored, support = ours.recv()
            process.join()
            mb = np.array([size, peak, dense, stored]) / 1e6
            print(
                f"| {shape} | {C:g} | {mb[0]:.0f} MB | {mb[1]:.0f} MB ({peak / size:.0%}) | {mb[2]:.0f} MB "
                f"| {mb[3]:.0f} MB ({stored / size:.0%}) | {support:.0%} |",
                flush=True,
            )
