"""How likely predictions flip on other halves: forecasts by scores, judged on held-out networks.

A prediction flips where the true label's probability falls below one half. Forecasts are fitted to every
second network of the truth and judged on the others, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dattri import methods, scores
from benchmarks.dattri.methods import ROWS
from whence.interop import read_bank
from whence.interop.banks import scores_for
from whence.metrics import Calibration, calibration, coverage, fit_forecast, predicted_sums

LEVEL = 0.9
CONTESTED = 0.05, 0.95
SPREAD = "spread alone"


def run(labels: Sequence[str], kind: str, folder: Path, results: Path = scores.RESULTS) -> None:
    """Keep Brier score, coverage and reliability diagram of each row, and of the spread without scores."""
    bank = read_bank(folder / f"dattri-{kind}.parquet")
    margins = log_odds(bank.outputs)
    sums = {SPREAD: np.zeros_like(margins)}
    for label in labels:
        stored = scores_for(bank, methods.compute(ROWS[label], kind, folder, "dattri"))
        sums[label] = predicted_sums(stored.scores, bank.subsets)
    scores.keep(results, f"{kind} flips", judged(sums, margins))


def judged(sums: dict[str, np.ndarray], margins: np.ndarray) -> dict[str, Any]:
    """Return what is kept of each row's forecasts."""
    base = np.concatenate([probability for probability, _, _ in held_out(sums[SPREAD], margins)])
    contested = (base > CONTESTED[0]) & (base < CONTESTED[1])
    found = {}
    for label, values in sums.items():
        parts = held_out(values, margins)
        probability, flipped = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        every = calibration(probability, flipped)
        hard = facts(calibration(probability[contested], flipped[contested])) if contested.any() else None
        found[label] = {
            "all": facts(every),
            "contested": hard,
            "coverage": round(float(np.mean([part[2] for part in parts])), 4),
            "diagram": {name: np.round(column, 4).tolist() for name, column in every.columns().items()},
        }
    return found


def held_out(sums: np.ndarray, margins: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Return probabilities, outcomes and coverage on each half of the networks, fitted to the other."""
    parts = []
    for start in (0, 1):
        fit, judge = slice(start, None, 2), slice(1 - start, None, 2)
        forecast = fit_forecast(sums[fit], margins[fit])
        inside = coverage(forecast, sums[judge], margins[judge], LEVEL)
        parts.append((forecast.probability_below(sums[judge]), margins[judge] < 0, inside))
    return parts


def facts(found: Calibration) -> dict[str, float]:
    """Return the numbers of a calibration."""
    return {name: round(float(getattr(found, name)), 5) for name in ("brier", "base", "error", "n")}


def log_odds(outputs: np.ndarray) -> np.ndarray:
    """Return log p − log(1 − p) of log-probabilities."""
    logs = np.minimum(outputs, -1e-12)
    return logs - np.log(-np.expm1(logs))


def figure(kept: dict[str, Any], path: Path) -> None:
    """Draw the reliability diagram of what ``run`` kept of one kind of network."""
    import matplotlib.pyplot as plt

    drawing, axes = plt.subplots(figsize=(4.5, 4.2), layout="constrained")
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for label, record in kept.items():
        columns = record["diagram"]
        axes.plot(columns["forecast"], columns["observed"], marker="o", markersize=3, label=label)
    axes.set(xlabel="forecast probability of a flip", ylabel="how often it flipped", xlim=(0, 1), ylim=(0, 1))
    axes.legend(fontsize=8)
    drawing.savefig(path)
    plt.close(drawing)
