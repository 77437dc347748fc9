"""How tight a solution must be for the top five proponents to stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.data import fashion_features
from whence import DualDA
from whence.features import FeatureBank

TESTS, REFERENCE = 1_000, 1e-8


def run(data: Path, cache: Path) -> None:
    X, y = fashion_features(data, cache)
    rng = np.random.default_rng(0)
    tests = np.sort(rng.choice(len(X), TESTS, replace=False))
    train = np.setdiff1d(np.arange(len(X)), tests)[:20_000]
    print(f"\nTop five proponents against a solution to {REFERENCE:g}; 20,000 samples, {TESTS} tests.\n")
    print("| C | tol | gap | same five | same five in order |\n|---|---|---|---|---|", flush=True)
    for C in (1e-4, 1e-3, 1e-2):
        want = _top(X, y, train, tests, C, REFERENCE)[0]
        for tol in (1e-3, 1e-4, 1e-5, 1e-6):
            got, gap = _top(X, y, train, tests, C, tol)
            same = (np.sort(got, axis=1) == np.sort(want, axis=1)).all(axis=1).mean()
            ordered = (got == want).all(axis=1).mean()
            print(f"| {C:g} | {tol:g} | {gap:.0e} | {same:.1%} | {ordered:.1%} |", flush=True)


def _top(X, y, train, tests, C: float, tol: float) -> tuple[np.ndarray, float]:
    explainer = DualDA(C=C, tol=tol, show_progress=False).fit(
        features=FeatureBank.of(X[train], y[train], n_classes=10)
    )
    return explainer.top_k(features=X[tests], k=5).proponents.indices.numpy(), explainer.gap_
