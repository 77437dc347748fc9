"""A training set of which 1 % changes: ``DualDA.update`` against a fit of the changed set, at the same C.

50,000 images of Fashion-MNIST, 1 % of them with a wrong label, and a small network with 512 features. A third
of the change is samples that leave, a third samples that come, a third wrong labels that are put right. CPU
seconds on one thread; a fit is the forward pass of all samples and the solver from nothing, an update the
forward pass of those that come and the solver from the old solution. Both reach a certified gap of 1e-6.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.data import read_idx
from whence import DualDA
from whence.features import FeatureBank, extract

N, CHANGED, WIDTH = 50_000, 500, 512
CS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10),
    )  # fmt: skip


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for rows in torch.randperm(len(x)).split(128):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()


def clocked(make: object) -> tuple[float, object]:
    started = time.process_time()
    found = make()  # type: ignore[operator]
    return time.process_time() - started, found


def run(data: Path) -> None:
    folder = data / "fashion-mnist"
    images = read_idx(folder / "train-images-idx3-ubyte.gz")[: N + CHANGED // 3]
    x = torch.from_numpy(images.astype(np.float32) / 255.0).unsqueeze(1)
    truth = read_idx(folder / "train-labels-idx1-ubyte.gz").astype(np.int64)[: len(x)]
    rng = np.random.default_rng(0)
    wrong = rng.choice(N, N // 100, replace=False)
    y = truth.copy()
    y[wrong] = (truth[wrong] + rng.integers(1, 10, len(wrong))) % 10
    model = network()
    train(model, x[:N], torch.from_numpy(y[:N]))
    whole, bank = clocked(lambda: extract(model, (x[:N], y[:N]), show_progress=False))
    few, added = clocked(lambda: extract(model, (x[N:], y[N:]), show_progress=False))
    assert isinstance(bank, FeatureBank)
    assert isinstance(added, FeatureBank)
    print(f"Forward pass: {whole:.1f} s for {N:,} samples, {few:.2f} s for {len(x) - N}.\n")
    gone = rng.choice(N, CHANGED // 3, replace=False)
    corrected = np.setdiff1d(wrong, gone)[: CHANGED // 3]
    labels = y.copy()
    labels[corrected] = truth[corrected]
    labels[gone] = -1
    features = np.concatenate([bank.features, added.features])
    left = labels >= 0
    relabel = {int(i): int(truth[i]) for i in corrected}
    changed = FeatureBank.of(features[left], labels[left], head=bank.head)
    print(
        "| C | support | W moved | re-solved | from the old solution | ratio | whole fit | update | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for C in CS:
        options = {"C": C, "n_threads": 1, "show_progress": False}
        explainer = DualDA(**options).fit(features=FeatureBank.of(bank.features, y[:N], head=bank.head))
        before = explainer.coef_
        resolved, fresh = clocked(lambda o=options: DualDA(**o).fit(features=changed))
        more = FeatureBank.of(added.features, y[N:])
        again, _ = clocked(
            lambda e=explainer, m=more: e.update(
                add=m, remove=gone.tolist(), relabel=relabel, features=bank.features
            )
        )
        assert isinstance(fresh, DualDA)
        assert max(fresh.gap_, explainer.gap_) <= 1e-6
        moved = np.linalg.norm(explainer.coef_ - before) / np.linalg.norm(before)
        print(
            f"| {C:g} | {len(explainer.support_) / N:.1%} | {moved:.1%} | {resolved:.2f} s | {again:.2f} s "
            f"| {resolved / again:.1f}× | {whole + resolved:.1f} s | {few + again:.1f} s "
            f"| {(whole + resolved) / (few + again):.1f}× |",
            flush=True,
        )
