"""Attribution against the one matrix product it needs at least."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse import csr_array

from whence import DualDA
from whence.features import FeatureBank

TESTS, SUPPORT, WIDTH, CLASSES = 2_000, 20_000, 512, 10


def best_of(call: Callable[[], object], repeats: int = 7) -> float:
    """Seconds of the fastest of some calls."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def fitted(seed: int = 0) -> tuple[DualDA, torch.Tensor, csr_array]:
    """An explainer whose 20,000 training samples are all support vectors, by overlapping classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, SUPPORT)
    features = (
        rng.normal(size=(SUPPORT, WIDTH)).astype(np.float32) + 0.1 * rng.normal(size=(CLASSES, WIDTH))[y]
    )
    explainer = DualDA(C=1e-6, tol=1e-4, show_progress=False)
    explainer.fit(features=FeatureBank.of(features.astype(np.float32), y))
    tests = torch.from_numpy(rng.normal(size=(TESTS, WIDTH)).astype(np.float32))
    return explainer, tests, explainer.lam_


def run() -> None:
    explainer, tests, lam = fitted()
    support = len(explainer.support_)
    vectors = torch.randn(support, WIDTH)
    gemm = best_of(lambda: tests @ vectors.T)
    print(
        f"\n{TESTS:,} tests × {support:,} support vectors × {WIDTH}, {lam.nnz / support:.1f} classes each, "
        f"{torch.get_num_threads()} threads; one matrix product takes {gemm:.3f} s.\n"
    )
    print("| call | ratio to the product |\n|---|---|")
    calls = {
        "attribute_features, dense": lambda: explainer.attribute(features=tests),
        "attribute_features, sparse": lambda: explainer.attribute(features=tests, sparse=True),
        "top_k_features, k = 5": lambda: explainer.top_k(features=tests, k=5),
    }
    for name, call in calls.items():
        print(f"| {name} | {best_of(call) / gemm:.2f}× |", flush=True)
