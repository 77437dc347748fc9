"""The truth: networks retrained on halves, as banks of whence's open format. A run that was stopped resumes.

``full`` and ``members`` keep the weights of networks whose scores are judged: one trained on all 5,000
samples, and some trained on random halves of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from benchmarks.dattri import protocol
from benchmarks.dattri.protocol import Data, Draw
from whence.attribution.score_files import labels_digest
from whence.interop import RetrainingBank, read_bank, write_bank

N_MEMBERS = 10
DRAWS = {"dattri": protocol.TRUTH, "dev": protocol.DEVELOPMENT}


def run(kind: str, folder: Path, name: str = "dattri") -> RetrainingBank:
    """Train what is missing of the networks of a draw, and return its bank."""
    draw = DRAWS[name]
    data = protocol.load(draw)
    full(kind, data, folder, name)
    members(kind, data, folder, name)
    return bank(kind, data, folder, name)


def bank(kind: str, data: Data, folder: Path, name: str) -> RetrainingBank:
    """Retrain on every half that the bank lacks; it is written after each."""
    draw, path = DRAWS[name], folder / f"{name}-{kind}.parquet"
    known = read_bank(path) if path.exists() else None
    rows, outputs = protocol.halves(draw), [] if known is None else list(known.outputs)
    for i in tqdm(range(len(outputs), len(rows)), desc=path.stem):
        model = protocol.train_on(kind, data, rows[i], draw.seed + i)
        outputs.append(protocol.outputs(model, data.test, data.test_labels))
        write_bank(path, made(kind, data, rows[: i + 1], outputs, draw))
    return made(kind, data, rows, outputs, draw)


def leave_one_out(kind: str, folder: Path, n: int) -> RetrainingBank:
    """Retrain without each of ``n`` samples, in the order of the data and unshuffled, as dattri does."""
    data, path = protocol.load(), folder / f"loo-{kind}.parquet"
    left_out = np.random.default_rng(0).permutation(len(data.train))[:n]
    rows = [np.delete(np.arange(len(data.train)), i) for i in left_out]
    outputs = list(read_bank(path).outputs) if path.exists() else []
    for i in tqdm(range(len(outputs), n), desc=path.stem):
        model = protocol.train_on(kind, data, rows[i], seed=0, shuffle=False)
        outputs.append(protocol.outputs(model, data.test, data.test_labels))
        if len(outputs) % 20 == 0 or len(outputs) == n:
            write_bank(path, made(kind, data, rows[: i + 1], outputs, protocol.TRUTH))
    return made(kind, data, rows, outputs, protocol.TRUTH)


def made(
    kind: str, data: Data, rows: list[np.ndarray], outputs: Iterable[np.ndarray], draw: Draw
) -> RetrainingBank:
    """Return the bank of some networks."""
    return RetrainingBank(
        subsets=masks(rows, len(data.train)),
        outputs=np.array(list(outputs)),
        seeds=draw.seed + np.arange(len(rows)),
        output=protocol.OUTPUT,
        targets=data.test_labels.numpy(),
        training_labels=labels_digest(data.train_labels.numpy()),
        source=(
            f"dattri's MNIST protocol, {kind.upper()}, retrained by whence: training images "
            f"{draw.first_train} to {draw.first_train + draw.n_train - 1}, test images {draw.first_test} to "
            f"{draw.first_test + draw.n_test - 1}"
        ),
    )


def full(kind: str, data: Data, folder: Path, name: str) -> nn.Sequential:
    """Return the network trained on all samples, trained once."""
    path = folder / f"{name}-{kind}-full.pt"
    model = protocol.make_model(kind)
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(protocol.train_full(kind, data, DRAWS[name].seed).state_dict(), path)
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval()


def members(kind: str, data: Data, folder: Path, name: str) -> list[nn.Sequential]:
    """Return networks trained on random halves that no truth has, trained once."""
    path = folder / f"{name}-{kind}-members.pt"
    seeds = [DRAWS[name].seed + protocol.MEMBER_SEED + i for i in range(N_MEMBERS)]
    if not path.exists():
        n = len(data.train)
        rows = [protocol.subset(seed, n, n // 2) for seed in seeds]
        pairs = tqdm(list(zip(rows, seeds, strict=True)), desc=path.stem)
        states = [protocol.train_on(kind, data, half, seed).state_dict() for half, seed in pairs]
        kept = {"masks": torch.from_numpy(masks(rows, n)), "seeds": seeds, "state_dicts": states}
        torch.save(kept, path)
    models = []
    for state in torch.load(path, weights_only=True)["state_dicts"]:
        models.append(protocol.make_model(kind).eval())
        models[-1].load_state_dict(state)
    return models


def masks(rows: list[np.ndarray], n: int) -> np.ndarray:
    """Return which samples each half has, (m, n)."""
    used = np.zeros((len(rows), n), np.bool_)
    for mask, half in zip(used, rows, strict=True):
        mask[half] = True
    return used
