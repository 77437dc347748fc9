"""Scores of the rows, judged by the bank, with and without a choice of settings on the development draw."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.dattri import methods
from benchmarks.dattri.methods import ROWS, Row
from whence.core.store import write_text
from whence.interop import read_bank
from whence.interop.banks import scores_for
from whence.metrics import compare_lds, lds

RESULTS = Path("docs/results/dattri.json")


def run(labels: Sequence[str], kind: str, folder: Path, *, tune: bool, results: Path = RESULTS) -> None:
    """Compute and judge rows, with defaults and, if asked for, with what the development draw chooses."""
    for label in tqdm(labels, desc=f"scores, {kind}"):
        row = ROWS[label]
        keep(results, kind, {label: judged(row, kind, folder)})
        if tune and row.variants:
            chosen, found = choose(row, kind, folder)
            record = {**judged(row, kind, folder, chosen), "chosen": chosen, "development": found}
            keep(results, kind, {f"{label}, tuned": record})


def judged(row: Row, kind: str, folder: Path, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a row's LDS with its interval, and its cost."""
    bank = read_bank(folder / f"dattri-{kind}.parquet")
    path = methods.compute(row, kind, folder, "dattri", extra)
    found = compare_lds({row.label: scores_for(bank, path).scores}, *bank.by_subset())
    columns = {name: values[0] for name, values in found.columns().items() if name != "method"}
    plain = {name: round(float(value), 4) for name, value in columns.items()}
    options = {**row.options, **(extra or {})}
    return {**plain, "cpu_seconds": methods.seconds(path), "options": options, "models": row.models or 1}


def choose(row: Row, kind: str, folder: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the options with the best LDS on the development draw, and the LDS of all of them."""
    bank = read_bank(folder / f"dev-{kind}.parquet")
    found = {}
    for extra in row.variants:
        scores = scores_for(bank, methods.compute(row, kind, folder, "dev", extra)).scores
        found[json.dumps(extra)] = round(float(lds(scores, bank.subsets, bank.outputs).mean()), 4)
    return json.loads(max(found, key=found.__getitem__)), found


def keep(results: Path, kind: str, rows: Mapping[str, Any]) -> None:
    """Add rows to the results."""
    known = load(results)
    known.setdefault(kind, {}).update(rows)
    write_text(results, json.dumps(known, indent=1) + "\n")


def load(results: Path = RESULTS) -> dict[str, Any]:
    """Return all results that are known."""
    return json.loads(results.read_text()) if results.exists() else {}


def leave_one_out(labels: Sequence[str], kind: str, folder: Path, results: Path = RESULTS) -> None:
    """Print and keep the Pearson correlation per test of scores with what leaving samples out does."""
    bank = read_bank(folder / f"loo-{kind}.parquet")
    removed = np.array([np.flatnonzero(~used)[0] for used in bank.subsets])
    for label in labels:
        path = methods.compute(ROWS[label], kind, folder, "dattri")
        scores = scores_for(bank, path).scores[:, removed]
        pairs = zip(scores, bank.outputs.T, strict=True)
        values = [np.corrcoef(a, -b)[0, 1] for a, b in pairs if a.std() > 0 and b.std() > 0]
        keep(results, f"{kind} leave-one-out", {label: round(float(np.mean(values)), 4)})
