"""``whence lds``: judge files of scores by a bank of retrained networks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whence.app.terminal import say
from whence.errors import InvalidInputError
from whence.interop import RetrainingBank, open_bank
from whence.interop.banks import scores_for
from whence.metrics import compare_lds


def run(bank: Path, files: Sequence[Path], *, level: float, draws: int, seed: int, as_json: bool) -> None:
    """Print what is compared, and the LDS of each file with its standard error and interval."""
    truth = open_bank(bank)
    if len(set(files)) < len(files):
        raise InvalidInputError(f"'SCORES' must be different files. Got {', '.join(map(str, files))}.")
    stored = {str(path): scores_for(truth, path) for path in files}
    scores = {name: one.scores for name, one in stored.items()}
    found = compare_lds(scores, *truth.by_subset(), level=level, draws=draws, seed=seed)
    about = [f"{name}: {one.about.get('method', 'a matrix of scores')}" for name, one in stored.items()]
    if as_json:
        ceiling = None if found.reliability is None else found.reliability.ceiling
        facts = {"bank": str(bank), **describe(truth), "level": level, "ceiling": ceiling}
        say(json.dumps({**facts, "scores": found.columns()}, indent=2))
        return
    facts = describe(truth)
    lines = [
        f"{bank}: {truth.n_models:,} networks on {facts['subsets']:,} subsets of {truth.n_train:,} samples",
        f"output: {truth.output or 'not named'}, of {truth.n_tests:,} tests",
        *([f"source: {truth.source}"] if truth.source else []),
        *about,
        "",
        str(found),
        "",
        "LDS: mean over tests of Spearman's ρ between summed scores and outputs.",
        f"Error and interval: {draws:,} bootstrap draws of the subsets.",
    ]
    if found.reliability is not None:
        lines.append(f"Ceiling by the training seeds: {found.reliability.ceiling:.3f}.")
    say("\n".join(lines))


def describe(bank: RetrainingBank) -> dict[str, Any]:
    """Return the facts of a bank as plain values."""
    return {
        "models": bank.n_models,
        "subsets": len(bank.by_subset()[0]),
        "training samples": bank.n_train,
        "tests": bank.n_tests,
        "output": bank.output,
        "source": bank.source,
    }
