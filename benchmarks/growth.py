"""How cost grows: fits with rows, features, classes and C; attribution with support vectors; maps with pairs.

``python -m benchmarks growth`` measures all curves, ``growth --curve rows`` one of them; each point in a
process of its own, on one thread. Points are kept in a JSON file, what is there is not measured again, and
the figure is drawn from it. CPU seconds; memory is the peak of what the process holds for itself beyond
its inputs, without pages of a map.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.classes import Cell, Peak, write
from benchmarks.data import fashion_features
from whence import DualDA, sample
from whence.engine import limited
from whence.features import FeatureBank
from whence.svm import solve

KAPPA, TOL, TESTS = 1e4, 1e-4, 1_000

CURVES: dict[str, tuple[float, ...]] = {
    "rows": (20_000, 100_000, 500_000, 2_000_000, 10_000_000),
    "features": (64, 256, 1_024, 4_096),
    "classes": (10, 100, 1_000, 10_000, 50_000),
    "C": (1e-9, 1e-7, 1e-5, 1e-3, 1e-1, 1e0, 1e1, 1e2),
    "support": (1_000, 4_000, 16_000, 64_000, 256_000),
    "pairs": (2, 8, 32, 128, 512),
}
OURS, OTHER, LIMIT, LEAST = "#0072b2", "#56b4e9", "#555555", "#999999"
_FIT = ((OURS, "o"), (LIMIT, "s"))
LOOKS = dict.fromkeys(("rows", "features", "classes", "C", "pairs"), _FIT)
LOOKS["support"] = ((OURS, "o"), (OTHER, "^"), (LIMIT, "s"), (LEAST, "v"))
TITLES = {
    "rows": "Fit: rows (× 64 features, 10 classes, from a map)",
    "features": "Fit: features (20,000 rows, 10 classes)",
    "classes": "Fit: classes (50,000 rows × 128 features)",
    "C": "Fit: C (Fashion-MNIST, 60,000 × 128 × 10)",
    "support": f"Attribution of {TESTS:,} tests: support vectors (× 256)",
    "pairs": "Maps of one test: pairs (small CNN, 28×28)",
}


@dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes
    ----------
    at : rows, features, classes, C, support vectors or pairs
    seconds : CPU time, by what was measured
    bytes : peak beyond the inputs
    inputs : bytes of the features
    note : what else is to be known, such as the gap that was reached
    """

    at: float
    seconds: dict[str, float]
    bytes: int
    inputs: int
    note: str


def seconds_of(call: Callable[[], object], repeats: int = 1) -> float:
    """CPU seconds of the fastest of some calls."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


def fitting(n: int, d: int, k: int) -> Point:
    """Solve from a map of synthetic features at κ = 10,000; ``pass`` is one product of W with all rows."""
    with tempfile.TemporaryDirectory() as folder:
        y = write(Path(folder) / "features.npy", Cell(n, d, k, 1.0))
        X = np.load(Path(folder) / "features.npy", mmap_mode="r")
        C = KAPPA / (n * float((X[:5000] ** 2).sum(axis=1).mean()))
        solve(np.asarray(X[:2000]), y[:2000] % 200, C=C, tol=TOL)  # compile
        found = {}
        with Peak() as peak:
            took = seconds_of(lambda: found.update(it=solve(X, y, n_classes=k, C=C, tol=TOL)))
        W = np.asarray(found["it"].weight[:, :d], dtype=np.float32)
        product = seconds_of(lambda: [X[i : i + 4096] @ W.T for i in range(0, n, 4096)])
        gap, support = found["it"].gap, int(np.count_nonzero(np.diff(found["it"].lam.indptr)))
    note = f"gap {gap:.0e}, {support:,} support vectors"
    return Point(0, {"fit": took, "one pass": product}, peak.bytes, X.nbytes, note)


def of_rows(n: float, data: Path, cache: Path) -> Point:
    return fitting(int(n), 64, 10)


def of_features(d: float, data: Path, cache: Path) -> Point:
    return fitting(20_000, int(d), 10)


def of_classes(k: float, data: Path, cache: Path) -> Point:
    return fitting(50_000, 128, int(k))


def of_C(C: float, data: Path, cache: Path) -> Point:
    X, y = fashion_features(data, cache)
    solve(X[:2000], y[:2000], C=1e-3, tol=TOL)  # compile
    found = {}
    with Peak() as peak:
        took = seconds_of(lambda: found.update(it=solve(X, y, C=C, tol=TOL)))
    W = np.asarray(found["it"].weight[:, :-1], dtype=np.float32)
    support = int(np.count_nonzero(np.diff(found["it"].lam.indptr)))
    note = f"gap {found['it'].gap:.0e}, {support:,} support vectors"
    return Point(0, {"fit": took, "one pass": seconds_of(lambda: X @ W.T, 5)}, peak.bytes, X.nbytes, note)


def of_support(s: float, data: Path, cache: Path) -> Point:
    """Attribute from overlapping classes at so low a C that every sample is a support vector."""
    rng, n, d, k = np.random.default_rng(0), int(s), 256, 10
    y = rng.integers(0, k, n)
    X = rng.standard_normal((n, d), np.float32) + 0.1 * rng.standard_normal((k, d), np.float32)[y]
    explainer = DualDA(C=1e-7, tol=1e-2, show_progress=False).fit(features=FeatureBank.of(X, y))
    tests, vectors = torch.randn(TESTS, d), torch.from_numpy(X)
    rows = min(TESTS, (1 << 28) // n)  # of a product at a time
    explainer.top_k(features=tests[:2], k=5)
    explainer.attribute(features=tests[:2], sparse=True)
    with Peak() as peak:
        top = seconds_of(lambda: explainer.top_k(features=tests, k=5), 3)
    sparse = seconds_of(lambda: explainer.attribute(features=tests[:rows], sparse=True), 3) * TESTS / rows
    product = seconds_of(lambda: tests[:rows] @ vectors.T, 3) * TESTS / rows
    reading = seconds_of(lambda: vectors.sum(), 5)  # the least that one look at every vector takes
    seconds = {"top 5": top, "sparse": sparse, "one product": product, "reading the vectors": reading}
    return Point(0, seconds, peak.bytes, X.nbytes, f"{len(explainer.support_):,} support vectors")


def of_pairs(pairs: float, data: Path, cache: Path) -> Point:
    clothes, model = sample.load(), sample.SmallCNN().eval()
    train = clothes.train_images, clothes.train_labels
    explainer = DualDA(C=1e-4, tol=1e-3, show_progress=False).fit(model, train)
    x, k = clothes.test_images[:1], int(pairs) // 2
    batch = clothes.train_images[: int(pairs)].clone().requires_grad_()
    explainer.explain(x, k=1)
    with Peak() as peak:
        took = seconds_of(lambda: explainer.explain(x, k=k), 2)
    plain = seconds_of(lambda: torch.autograd.grad(model(batch).sum(), batch), 3)
    return Point(0, {"maps on both samples": took, "a plain gradient of as many": plain}, peak.bytes, 0, "")


MEASURES = {"rows": of_rows, "features": of_features, "classes": of_classes, "C": of_C}
MEASURES |= {"support": of_support, "pairs": of_pairs}


def _measured(pipe, curve: str, at: float, data: Path, cache: Path) -> None:
    torch.set_num_threads(1)
    with limited(1):
        pipe.send(MEASURES[curve](at, data, cache))


def run(data: Path, cache: Path, results: Path, curves: list[str]) -> None:
    """Measure what is missing, print a table per curve and draw the figure."""
    known = json.loads(results.read_text()) if results.exists() else {}
    context = multiprocessing.get_context("spawn")
    for curve in curves or CURVES:
        for at in CURVES[curve]:
            if str(at) in known.setdefault(curve, {}):
                continue
            ours, theirs = context.Pipe()
            process = context.Process(target=_measured, args=(theirs, curve, at, data, cache))
            process.start()
            known[curve][str(at)] = asdict(ours.recv()) | {"at": at}
            process.join()
            results.parent.mkdir(parents=True, exist_ok=True)
            results.write_text(json.dumps(known, indent=1))
            print(curve, known[curve][str(at)], flush=True)
    for curve in known:
        print(f"\n{table(curve, list(known[curve].values()))}", flush=True)


def table(curve: str, points: list[dict]) -> str:
    """Write a curve in Markdown, with the exponent of its growth from each point to the next."""
    names = list(points[0]["seconds"])
    lines = [
        f"| {curve} | {' | '.join(f'{name}, s' for name in names)} | exponent | memory beyond the inputs | |",
        f"|---|{'---|' * len(names)}---|---|---|",
    ]
    for before, point in zip([None, *points], points, strict=False):
        first, step = point["seconds"][names[0]], "–"
        if before:
            grown = np.log(first / before["seconds"][names[0]]) / np.log(point["at"] / before["at"])
            step = f"{grown:.2f}"
        size = f"{point['bytes'] / 1e6:,.0f} MB"
        if point["inputs"]:
            size += f" ({point['bytes'] / point['inputs']:.0%})"
        at = f"{point['at']:,}" if point["at"] >= 1 and curve != "C" else f"{point['at']:g}"
        cells = " | ".join(f"{point['seconds'][name]:.3g}" for name in names)
        lines.append(f"| {at} | {cells} | {step} | {size} | {point['note']} |")
    return "\n".join(lines)


def draw(results: Path, path: Path) -> None:
    """Draw all curves: time on the left axes, limits dashed, peak memory below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    known = json.loads(results.read_text())
    shown = [curve for curve in CURVES if curve in known]
    wide = 3
    figure, axes = plt.subplots(2 * -(-len(shown) // wide), wide, figsize=(10, 9.5), squeeze=False)
    for place, curve in enumerate(shown):
        points = list(known[curve].values())
        at = [point["at"] for point in points]
        row, column = divmod(place, wide)
        upper, lower = axes[2 * row, column], axes[2 * row + 1, column]
        for name, (colour, marker) in zip(points[0]["seconds"], LOOKS[curve], strict=True):
            line = "-" if colour in (OURS, OTHER) else "--"
            seconds = [point["seconds"][name] for point in points]
            upper.loglog(at, seconds, line, color=colour, marker=marker, markersize=4, label=name)
        beyond = [max(point["bytes"], 1e5) / 1e6 for point in points]
        lower.loglog(at, beyond, "o-", color="#0072b2", markersize=4, label="peak beyond the inputs")
        if all(point["inputs"] for point in points):
            size = [point["inputs"] / 1e6 for point in points]
            lower.loglog(at, size, "--", color="#555555", label="the features themselves")
        upper.set_title(TITLES[curve].replace(" (", "\n("), fontsize=9)
        lower.set_xlabel(curve.replace("support", "support vectors"), fontsize=8)
        if column == 0:
            upper.set_ylabel("CPU seconds, one thread", fontsize=8)
            lower.set_ylabel("MB", fontsize=8)
        for axis in (upper, lower):
            axis.yaxis.set_minor_formatter(NullFormatter())
            axis.grid(True, which="major", color="#dddddd", linewidth=0.5)
            axis.tick_params(labelsize=7)
            axis.legend(fontsize=6.5, frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
