"""What effects cost as the training set and the number of halves grow, and how near first order is.

Penultimate features of a CNN trained on Fashion-MNIST (60,000 × 128, see ``benchmarks.data``), κ = 1,000.
Costs are CPU-seconds of one thread, and in units of one solve of the whole training set to the same gap. The
second table compares first order with solving again without each sample, exactly.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from whence.svm.linearised import constraints_of

from benchmarks.data import fashion_features
from whence import DualDA, Effects
from whence.attributors.effects.effects import KAPPA
from whence.engine import limited
from whence.features import FeatureBank
from whence.svm import Subsets, solve
from whence.svm.inputs import length

SIZES, HALVES, TESTS = (1_000, 5_000, 20_000, 60_000), (8, 16, 32, 64), 200


def run(data: Path, cache: Path) -> None:
    features, labels = fashion_features(data, cache)
    order = np.random.default_rng(0).permutation(len(labels))
    tests, order = torch.from_numpy(features[order[:TESTS]]), order[TESTS:]
    with limited(1):
        costs(features, labels, order, tests)
        leaving_one_out(features[order[:1_000]], labels[order[:1_000]], tests)


def costs(features: np.ndarray, labels: np.ndarray, order: np.ndarray, tests: torch.Tensor) -> None:
    """Print what fitting and attributing cost, over N and over M."""
    print(f"\nCPU-s of one thread; {TESTS} tests, all training samples.\n")
    print(
        "| N | halves | one solve of all | fit | per half, in solves of all | attribute | reliability | MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for n, m in [*((n, 16) for n in SIZES), *((5_000, m) for m in HALVES if m != 16)]:
        rows = np.sort(order[:n])
        f, y = np.ascontiguousarray(features[rows]), labels[rows]
        C = KAPPA / float((f.astype(np.float64) ** 2).sum())
        start = time.process_time()
        solve(f, y, n_classes=10, C=C, bias=length(f), tol=1e-4, n_threads=1)
        whole = time.process_time() - start
        start = time.process_time()
        effects = Effects(C=C, solves=m, n_threads=1, show_progress=False).fit(features=FeatureBank.of(f, y))
        fitting = time.process_time() - start
        start = time.process_time()
        effects.attribute_features(tests)
        told = time.process_time() - start
        reliability = "–" if effects.reliability_ is None else f"{effects.reliability_:.3f}"
        print(
            f"| {n:,} | {m} | {whole:.2f} | {fitting:.1f} | {fitting / m / whole:.2f} | {told:.1f} "
            f"| {reliability} | {effects.cache_bytes_ / 1e6:.0f} |",
            flush=True,
        )


def leaving_one_out(f: np.ndarray, y: np.ndarray, tests: torch.Tensor) -> None:
    """Print how near first order, and τ, are to solving again without each sample."""
    print(f"\nLeaving out one of {len(y):,} samples, on the class that {TESTS} tests are given.\n")
    print("| κ | support vectors | active set holds | Pearson, first order | … where it holds | Pearson, τ |")
    print("|---|---|---|---|---|---|")
    for kappa in (100.0, 1_000.0, 10_000.0):
        C = kappa / float((f.astype(np.float64) ** 2).sum())
        bank = FeatureBank.of(f, y)
        options = {"C": C, "tol": 1e-8, "n_threads": 1, "show_progress": False}
        effects = Effects(method="first_order", **options).fit(features=bank)
        tau = DualDA(**options).fit(features=bank)
        target = tau.predict_features(tests)
        subsets = Subsets(f, y, n_classes=10, C=C, bias=effects.constant_, tol=1e-8, start=effects.lam_)
        at, ones = np.arange(TESTS), np.c_[tests.numpy(), np.ones(TESTS)]
        whole = (ones @ effects.coef_.T)[at, target]
        before = _active(constraints_of(effects.lam_, y, C), effects.lam_, y, C)
        exact, holds = [], []
        for i in effects.support_:
            members = np.ones(len(y), dtype=bool)
            members[i] = False
            found = subsets.solve(members)
            exact.append(whole - (ones @ found.weight.T)[at, target])
            after = _active(constraints_of(found.lam, y, C), found.lam, y, C)
            holds.append({s for s in before if s[0] != i} == after)
        truth, kept = np.array(exact).T, np.array(holds)
        pairs = [s.attribute_features(tests, target).numpy()[:, effects.support_] for s in (effects, tau)]
        first, plain = (np.corrcoef(truth.ravel(), p.ravel())[0, 1] for p in pairs)
        where = np.corrcoef(truth[:, kept].ravel(), pairs[0][:, kept].ravel())[0, 1] if kept.any() else np.nan
        print(
            f"| {kappa:,.0f} | {len(effects.support_)} | {kept.mean():.0%} | {first:.3f} | {where:.4f} "
            f"| {plain:.3f} |",
            flush=True,
        )


def _active(held, lam, y, C) -> set[tuple[int, ...]]:
    """Give what is active: pairs of classes that are held, and samples at their bound with their rival."""
    bound = np.flatnonzero(lam[np.arange(len(y)), y] >= C * (1 - 1e-6))
    return {*zip(*(part.tolist() for part in held), strict=True), *((int(i), -1) for i in bound)}
