"""What effects cost as the training set grows, and how near first order is to leaving samples out.

Penultimate features of a CNN trained on Fashion-MNIST (60,000 × 128, see ``benchmarks.data``), κ = 10,000.
Costs are CPU-seconds of one thread. The second table compares first order, and τ, with solving the surrogate
again without each of some samples, exactly; the third does the same for groups of copies.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.data import fashion_features, read_idx
from whence import DualDA, Effects
from whence.engine import limited
from whence.features import FeatureBank

SIZES, TESTS, LEFT_OUT = (1_000, 5_000, 20_000, 60_000), 200, 100


def run(data: Path, cache: Path) -> None:
    features, labels = fashion_features(data, cache)
    order = np.random.default_rng(0).permutation(len(labels))
    tests, order = torch.from_numpy(features[order[:TESTS]]), order[TESTS:]
    with limited(1):
        costs(features, labels, order, tests)
        leaving_one_out(features[order[:1_000]], labels[order[:1_000]], tests)
        copies(data)


def costs(features: np.ndarray, labels: np.ndarray, order: np.ndarray, tests: torch.Tensor) -> None:
    """Print what fitting and attributing cost, over N."""
    print(f"\nCPU-s of one thread; {TESTS} tests, all training samples.\n")
    print("| N | fit | first test | 200 tests | MB |\n|---|---|---|---|---|")
    for n in SIZES:
        rows = np.sort(order[:n])
        bank = FeatureBank.of(np.ascontiguousarray(features[rows]), labels[rows])
        marks = [time.process_time()]
        effects = Effects(n_threads=1, show_progress=False).fit(features=bank)
        marks.append(time.process_time())
        effects.attribute(features=tests[:1])  # also makes the preconditioner
        marks.append(time.process_time())
        effects.attribute(features=tests)
        marks.append(time.process_time())
        fitting, first, exact = np.diff(marks)
        megabytes = effects.cache_bytes_ / 1e6
        print(f"| {len(rows):,} | {fitting:.1f} | {first:.2f} | {exact:.1f} | {megabytes:.0f} |", flush=True)


def leaving_one_out(f: np.ndarray, y: np.ndarray, tests: torch.Tensor) -> None:
    """Print how near first order, and τ at the same κ, are to solving again without a sample."""
    print(f"\nLeaving out each of {LEFT_OUT} of {len(y):,} samples, on the class that {TESTS} tests get.\n")
    print("| κ | Pearson, first order | Pearson, τ |\n|---|---|---|")
    chosen = np.random.default_rng(1).permutation(len(y))[:LEFT_OUT]
    for kappa in (100.0, 1_000.0, 10_000.0, 100_000.0):
        bank = FeatureBank.of(f, y)
        C = kappa / (2.0 * float((f.astype(np.float64) ** 2).sum()))  # the constant is as long as a feature
        options = {"C": C, "tol": 1e-9, "n_threads": 1, "show_progress": False}
        effects, tau = (kind(**options).fit(features=bank) for kind in (Effects, DualDA))
        target = effects.predict(features=tests)
        exact = [
            -effects.effect_of(features=tests, target=target, remove=[int(i)], training_features=f).exact
            for i in chosen
        ]
        truth = np.array(exact).T
        found = [each.attribute(features=tests, target=target).numpy()[:, chosen] for each in (effects, tau)]
        first, plain = (np.corrcoef(truth.ravel(), scores.ravel())[0, 1] for scores in found)
        print(f"| {kappa:,.0f} | {first:.4f} | {plain:.3f} |", flush=True)


def copies(data: Path) -> None:
    """Print how near sums of effects, and corrected ones, are to solving again where samples are copies.

    1,000 images of MNIST at 14 × 14 pixels, of which 40 are there several times; 50 tests, κ = 10,000.
    """
    folder = data / "mnist"
    images = read_idx(folder / "train-images-idx3-ubyte.gz")[:1_050].astype(np.float32)
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz")[:1_000].astype(np.int64)
    f = images.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(len(images), -1) / 255
    tests, f = torch.from_numpy(f[1_000:]), f[:1_000]
    print("\nRemoving samples that have copies: relative error ‖change − exact‖/‖exact‖ over tests.\n")
    print("| removed | times in the set | sum | corrected |\n|---|---|---|---|")
    for times in (1, 2, 5, 10):
        index = np.concatenate([np.arange(1_000), np.repeat(np.arange(40), times - 1)])
        x = np.ascontiguousarray(f[index])
        effects = Effects(n_threads=1, show_progress=False).fit(features=FeatureBank.of(x, labels[index]))
        target = effects.predict(features=tests)
        groups = {
            "one of the copies": [np.flatnonzero(index == i)[:1] for i in range(10)],
            "all copies of a sample": [np.flatnonzero(index == i) for i in range(10)],
            "all copies of ten samples": [np.flatnonzero(index // 10 == i) for i in range(4)],
        }
        for name, removed in groups.items():
            found = [
                effects.effect_of(features=tests, target=target, remove=some.tolist(), training_features=x)
                for some in removed
            ]
            first, corrected, exact = (
                np.concatenate([getattr(one, what) for one in found])
                for what in ("first_order", "corrected", "exact")
            )
            errors = [np.linalg.norm(some - exact) / np.linalg.norm(exact) for some in (first, corrected)]
            print(f"| {name} | {times} | {errors[0]:.3f} | {errors[1]:.3f} |", flush=True)
