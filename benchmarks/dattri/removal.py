"""Removal tests: the loss of tests after retraining without the samples that a row ranks highest (QLD)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.dattri import methods, protocol, scores, truth
from benchmarks.dattri.methods import ROWS
from whence.interop import read_bank
from whence.interop.banks import scores_for
from whence.metrics import removal_test

TESTS, SHARE, RANDOM, SEED = 50, 0.01, 5, 0


def run(
    labels: Sequence[str], kind: str, folder: Path, results: Path = scores.RESULTS, n_tests: int = TESTS
) -> None:
    """Retrain for the first tests of the benchmark, with one training seed throughout."""
    data, bank = protocol.load(), read_bank(folder / f"dattri-{kind}.parquet")
    tests, answers = data.test[:n_tests], data.test_labels[:n_tests]
    known: dict[bytes, np.ndarray] = {}

    def losses(used: np.ndarray) -> np.ndarray:
        name = np.packbits(used).tobytes()
        if name not in known:  # rows share the random trainings
            model = protocol.train_on(kind, data, np.flatnonzero(used), truth.DRAWS["dattri"].seed)
            known[name] = -protocol.outputs(model, tests, answers)
        return known[name]

    for label in labels:
        found = scores_for(bank, methods.compute(ROWS[label], kind, folder, "dattri")).scores[:n_tests]
        test = removal_test(found, losses, share=SHARE, n_random=RANDOM, seed=SEED)
        record = {name: round(float(getattr(test, name)), 4) for name in ("mean", "error", "low", "high")}
        scores.keep(results, f"{kind} removal", {label: {**record, "tests": n_tests, "share": SHARE}})
