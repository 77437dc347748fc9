"""Every attribution method on MNIST: time, memory, and how near approximations come to what they are for."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import nn

from benchmarks.data import read_idx
from benchmarks.memory import status
from whence import methods

TRAIN, TESTS, EPOCHS = 10_000, 200, 5


class Row(NamedTuple):
    """A method with options, and the row whose scores it approximates."""

    name: str
    options: dict[str, Any]
    reference: str | None = None

    @property
    def label(self) -> str:
        """The name with its options."""
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])


EXACT, DUAL = Row("influence", {}), Row("dualda", {"C": 1e-3})
ROWS = [
    EXACT,
    Row("arnoldi", {}, EXACT.label),
    Row("arnoldi", {"dimension": 400, "projections": 400}, EXACT.label),
    Row("ekfac", {"params": "last", "damping": 1e-3}, EXACT.label),
    DUAL,
    Row("hingerp", {}, DUAL.label),
]
SLOW = [
    Row("ekfac", {}),
    Row("ekfac", {"labels": "sampled"}, "ekfac"),
    Row("lissa", {}, EXACT.label),
    Row("arnoldi", {"params": "all", "n_samples": 1000}),
]


def network() -> nn.Module:
    """A network of 22,642 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(288, 56), nn.ReLU(), nn.Linear(56, 10),
    )  # fmt: skip


def images(folder: Path, part: str, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first ``n`` images of MNIST (n, 1, 28, 28) and their labels."""
    x, y = (
        read_idx(folder / "mnist" / f"{part}-{kind}-ubyte.gz")[:n] for kind in ("images-idx3", "labels-idx1")
    )
    return torch.from_numpy(x.astype(np.float32) / 255.0).unsqueeze(1), torch.from_numpy(y.astype(np.int64))


def checkpoints(folder: Path, cache: Path) -> list[dict[str, torch.Tensor]]:
    """The weights after every epoch of one training, which is done once."""
    stored = cache / "mnist-methods.pt"
    if not stored.exists():
        torch.manual_seed(0)
        model, kept = network(), []
        x, y = images(folder, "train", TRAIN)
        optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
        for _ in range(EPOCHS):
            for rows in torch.randperm(TRAIN).split(64):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimiser.step()
            kept.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        cache.mkdir(parents=True, exist_ok=True)
        torch.save(kept, stored)
    return torch.load(stored, weights_only=True)


def _measure(pipe: Any, row: Row, folder: Path, cache: Path, scores: Path) -> None:
    torch.set_num_threads(1)
    points = checkpoints(folder, cache)
    model = network()
    model.load_state_dict(points[-1])
    x, y = images(folder, "train", TRAIN)
    tests, truth = images(folder, "t10k", TESTS)
    with torch.no_grad():
        accuracy = (model(tests).argmax(1) == truth).float().mean().item()
    method = methods.get(row.name)
    explainer = method(**row.options, show_progress=False)
    extra = {"checkpoints": points} if method.capabilities.needs_checkpoints else {}
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = status("VmRSS")
    start = time.process_time()
    explainer.fit(model, (x, y), **extra)
    middle = time.process_time()
    found = explainer.attribute(tests)
    seconds = middle - start, time.process_time() - middle
    peak = status("VmHWM") - before
    np.save(scores, found.numpy())
    pipe.send((*seconds, explainer.cache_bytes_, peak, accuracy))


def agreement(ours: Path, theirs: Path) -> str:
    """Pearson over all scores, and the mean Spearman of the tests."""
    a, b = np.load(ours).astype(np.float64), np.load(theirs).astype(np.float64)
    ranks = np.mean([spearmanr(u, v)[0] for u, v in zip(a, b, strict=True)])
    return f"{np.corrcoef(a.ravel(), b.ravel())[0, 1]:.3f} / {ranks:.3f}"


def run(folder: Path, cache: Path) -> None:
    named = {row.label for row in ROWS + SLOW}
    rows = ROWS + [Row(name, {}) for name in methods.names() if name not in named] + SLOW
    context = multiprocessing.get_context("spawn")
    checkpoints(folder, cache)
    size = sum(p.numel() for p in network().parameters())
    print(
        f"\nMNIST: {TRAIN:,} training images, {TESTS} tests, a network of {size:,} parameters, a process "
        "with one thread for each method. Times are of the processor, peak memory is above what model and "
        "data take, agreement is Pearson over all scores / mean Spearman of the tests.\n"
    )
    print("| method | caching | cache | explaining | peak memory | agreement |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        files = {row.label: Path(temporary) / f"{i}.npy" for i, row in enumerate(rows)}
        for row in rows:
            ours, theirs = context.Pipe()
            process = context.Process(target=_measure, args=(theirs, row, folder, cache, files[row.label]))
            process.start()
            theirs.close()  # so that a process that dies ends the wait
            fit, explain, stored, peak, accuracy = ours.recv()
            process.join()
            near = ""
            if row.reference is not None:
                near = f"{agreement(files[row.label], files[row.reference])} to {row.reference}"
            print(
                f"| {row.label} | {fit:.2f} s | {stored / 1e6:.1f} MB | {explain:.2f} s "
                f"| {peak / 1e6:.0f} MB | {near} |",
                flush=True,
            )
    print(f"\nThe network classifies {accuracy:.1%} of the tests rightly.")
