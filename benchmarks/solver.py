"""The solver against scikit-learn's LinearSVC, at an equal gap of the returned weights.

Both sides are judged by one function: how far the primal value of the weights they return lies above the dual
value of a tight solution, in float64. Every cell is written to a JSON file as soon as it is measured, so that
a table can be made in stages: cells of LinearSVC found there are not measured again.
"""

from __future__ import annotations

import json
import multiprocessing
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning as SklearnWarning
from sklearn.svm import LinearSVC

from benchmarks.data import fashion_features, synthetic_features
from benchmarks.machine import describe
from whence.errors import ConvergenceWarning
from whence.svm import solve

SHAPES = {"60,000×128×10": None, "50,000×512×10": (50_000, 512, 10), "30,000×2,048×50": (30_000, 2_048, 50),
          "120,000×1,024×4": (120_000, 1_024, 4)}  # fmt: skip
CS = (1e-5, 1e-3, 1e-1, 10.0)
GAP = 1e-3  # the peer is stopped at the first of its tolerances that reaches this gap
TIGHT = 1e-5  # of the solution that gives the dual value, or what it reaches in the seconds below
TIGHT_SECONDS = 120.0
PEER_TOLERANCES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)


def features(shape: str, data: Path, cache: Path) -> tuple[np.ndarray, np.ndarray]:
    size = SHAPES[shape]
    return fashion_features(data, cache) if size is None else synthetic_features(*size)


def primal(X: np.ndarray, y: np.ndarray, W: np.ndarray, C: float) -> float:
    """The primal objective, written without the package, in float64; the last column of W is the bias."""
    loss = 0.0
    for start in range(0, len(X), 4096):
        part = slice(start, start + 4096)
        scores = X[part].astype(np.float64) @ W[:, :-1].T + W[:, -1]
        each = np.arange(len(scores))
        margins = 1.0 + scores - scores[each, y[part]][:, None]
        margins[each, y[part]] = 0.0
        loss += margins.max(axis=1).sum()
    return 0.5 * float((W**2).sum()) + C * loss


def gap(X: np.ndarray, y: np.ndarray, W: np.ndarray, C: float, dual: float) -> float:
    """The relative gap of some weights, whoever found them, over a dual value."""
    value = primal(X, y, W, C)
    return (value - dual) / value


def _fit(pipe, X: np.ndarray, y: np.ndarray, C: float, tol: float) -> None:
    warnings.simplefilter("ignore", SklearnWarning)
    model = LinearSVC(multi_class="crammer_singer", fit_intercept=False, C=C, tol=tol, random_state=0)
    start = time.perf_counter()
    model.fit(X, y)
    pipe.send((time.perf_counter() - start, model.coef_))


def fit_peer(X: np.ndarray, y: np.ndarray, C: float, tol: float, limit: float):
    """Seconds and weights of one fit of LinearSVC in a process of its own; None past the limit."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_fit, args=(theirs, X, y, C, tol))
    process.start()
    found = ours.recv() if ours.poll(limit) else None
    if found is None:
        process.kill()
    process.join()
    return found


def repeats(seconds: float | None) -> int:
    """How often both are timed, the fastest counting, from the peer's first time."""
    return 3 if seconds is not None and seconds < 10 else 1


def measure_peer(X: np.ndarray, y: np.ndarray, C: float, limit: float, dual: float) -> dict:
    """LinearSVC at its first tolerance that reaches GAP; no seconds where it did not within the limit.

    The limit is for all tolerances together. A smaller tolerance takes longer, so that the longest fit that
    did not reach GAP, whole or not, is a lower bound.
    """
    with_bias = np.hstack([X, np.ones((len(X), 1), X.dtype)])
    reached, longest = 1.0, 0.0
    for tol in PEER_TOLERANCES:
        fitted = fit_peer(with_bias, y, C, tol, limit)
        if fitted is None:
            longest = max(longest, limit)
            break
        seconds, W = fitted
        reached = gap(X, y, W, C, dual)
        if reached <= GAP:
            more = [fit_peer(with_bias, y, C, tol, limit) for _ in range(repeats(seconds) - 1)]
            times = [seconds, *(again[0] for again in more if again)]
            return {"seconds": min(times), "gap": reached, "tol": tol}
        longest, limit = max(longest, seconds), limit - seconds
        print(f"LinearSVC at tol = {tol:g}: {seconds:.1f} s, gap {reached:.1e}", flush=True)
        if limit <= 0:
            break
    return {"seconds": None, "gap": reached, "tol": None, "longest": longest}


def measure_ours(X: np.ndarray, y: np.ndarray, C: float, peer: dict, dual: float) -> dict:
    """The fastest of some runs to the peer's gap, or to GAP where it has none."""
    tol = peer["gap"] if peer["seconds"] else GAP
    runs = [solve(X, y, C=C, tol=tol) for _ in range(repeats(peer["seconds"]))]
    best = min(runs, key=lambda run: run.seconds)
    return {
        "seconds": best.seconds,
        "gap": gap(X, y, best.weight, C, dual),
        "certified": best.gap,
        "rounds": best.n_iter,
    }


def measure(shape: str, X: np.ndarray, y: np.ndarray, C: float, limit: float, cell: dict) -> dict:
    """A cell with what it lacks: the tight solution, the peer and whence."""
    cell = {"shape": shape, "C": C, "machine": describe(), **cell}
    if "dual" not in cell:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            tight = solve(X, y, C=C, tol=TIGHT, max_seconds=TIGHT_SECONDS)
        cell |= {"dual": tight.dual, "tight_seconds": tight.seconds, "tight_gap": tight.gap}
    if "peer" not in cell:
        cell["peer"] = measure_peer(X, y, C, limit, cell["dual"])
    if "whence" not in cell:
        cell["whence"] = measure_ours(X, y, C, cell["peer"], cell["dual"])
    return cell


def run(data: Path, cache: Path, limit: float, results: Path, shapes: list[str], again: bool) -> None:
    cells = json.loads(results.read_text()) if results.exists() else {}
    if again:
        for cell in cells.values():
            cell.pop("whence", None)
    for shape in shapes or SHAPES:
        wanted = {C: f"{shape} C={C:g}" for C in CS}
        if all("whence" in cells.get(key, {}) for key in wanted.values()):
            continue
        X, y = features(shape, data, cache)
        for C in (1e-3, 10.0):  # compile every kernel before any clock runs
            solve(X[:500], y[:500], C=C, n_classes=int(y.max()) + 1, tol=1e-7)
        for C, key in wanted.items():
            cells[key] = measure(shape, X, y, C, limit, cells.get(key, {}))
            results.parent.mkdir(parents=True, exist_ok=True)
            results.write_text(json.dumps(cells, indent=1, ensure_ascii=False))
            print(f"{key}: measured", flush=True)
    show(cells)


def show(cells: dict) -> None:
    """Print the table of all cells in the file."""
    print("\n| shape | C | LinearSVC | its gap | whence | gap | ratio | whence to 1e-5 |")
    print("|---|---|---|---|---|---|---|---|")
    ratios = []
    for cell in cells.values():
        if "whence" not in cell:
            continue
        peer, ours = cell["peer"], cell["whence"]
        mark = "" if peer["seconds"] else "> "
        seconds = peer["seconds"] or peer["longest"]
        ratios.append(seconds / ours["seconds"])
        print(
            f"| {cell['shape']} | {cell['C']:g} | {mark}{seconds:.2f} s | {peer['gap']:.0e} "
            f"| {ours['seconds']:.2f} s | {ours['gap']:.0e} | {mark}{ratios[-1]:.1f}× "
            f"| {cell['tight_seconds']:.1f} s ({cell['tight_gap']:.0e}) |"
        )
    if ratios:
        mean = float(np.exp(np.log(ratios).mean()))
        print(f"\nGeometric mean {mean:.1f}×, smallest {min(ratios):.1f}×.", flush=True)
