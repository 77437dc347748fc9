"""Apply the rule of docs/research/metric.md to runs of the protocols ``metric-*``, and print its tables.

python -m tools.metric_choice FOLDER [FOLDER …]     # each with a results.parquet
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

METRICS = {
    "raw": "raw",
    "unit": "unit length",
    "centred": "centred",
    "{'centre': True, 'unit': True}": "centred, unit length",
    "{'centre': True, 'shrinkage': 10.0, 'unit': True}": "whitened, s = 10",
    "{'centre': True, 'shrinkage': 1.0, 'unit': True}": "whitened, s = 1",
    "{'centre': True, 'shrinkage': 0.1, 'unit': True}": "whitened, s = 0.1",
}
"""Candidates by their text in a method's key."""
BY_RULE, LOW, RELATIVE = "rule", "low", "relative"
Rows = dict[tuple[str, str, str], float]
COLUMNS = {
    "agreement": ("surrogate", BY_RULE, "test_agreement"),
    "distinct": ("specificity", RELATIVE, "distinct"),
    "most frequent": ("specificity", RELATIVE, "most_frequent"),
    "near": ("specificity", RELATIVE, "near"),
    "cancel": ("specificity", RELATIVE, "cancel"),
    "distinct, τ": ("specificity", BY_RULE, "distinct"),
    "cancel, τ": ("specificity", BY_RULE, "cancel"),
    "subclass": ("identical_subclass", BY_RULE, "score"),
    "marks": ("shortcut", LOW, "score"),
    "wrong labels": ("mislabeling", BY_RULE, "score"),
    "by margin": ("mislabeling", BY_RULE, "by_margin"),
    "LDS": ("lds", BY_RULE, "score"),
    "support vectors": ("surrogate", BY_RULE, "support_vectors"),
}
CRITERIA = {"distinct": 0.05, "subclass": 0.02, "marks": 0.05, "wrong labels": 0.02, "LDS": 0.02}
"""The criteria after agreement, in the order of the rule, with their tolerances."""


def read(folder: Path) -> Rows:
    """Read the single numbers of a run: by metric of the evaluation, method and quantity."""
    table = pq.read_table(folder / "results.parquet").to_pylist()
    return {
        (row["metric"], row["method"], row["quantity"]): row["value"]
        for row in table
        if row["x"] is None and row["value"] is not None
    }


DEFAULT = "dualda(metric={'centre': True, 'shrinkage': 10.0, 'unit': True})"
METHODS = {
    "**DualDA**": DEFAULT,
    "DualDA (paper)": "dualda(metric=raw)",
    "Effects, last layer": "effects(layers=last)",
    "EK-FAC": "ekfac",
    "TracIn": "tracin",
    "TRAK": "trak",
    "Influence, exact last layer": "influence",
    "Representer Points": "representer",
    "GradDot": "graddot",
    "GradCos": "gradcos",
    "Similarity, dot": "similarity",
    "Similarity, cosine": "similarity(metric=cosine)",
    "Random": "random",
}
"""Rows of the table of methods by their keys; of DualDA the scores τ follow those relative to the mean."""
OF_METHODS = {
    "distinct": ("specificity", "distinct"),
    "most frequent": ("specificity", "most_frequent"),
    "near": ("specificity", "near"),
    "cancel": ("specificity", "cancel"),
    "subclass": ("identical_subclass", "score"),
    "wrong labels": ("mislabeling", "score"),
    "LDS": ("lds", "score"),
}


def values(rows: Rows, column: str) -> np.ndarray:
    """Return a column (metric,) of a run, NaN where it was not measured."""
    metric, setting, quantity = COLUMNS[column]
    keys = {method for _, method, _ in rows}
    column_values = []
    for option in METRICS:
        key = f"dualda(metric={option})" + (", relative to the mean" if setting == RELATIVE else "")
        if setting == LOW:
            fixed = [k for k in keys if k.startswith("dualda(C=") and k.endswith(f", metric={option})")]
            key = min(fixed, key=lambda k: float(k.split("=")[1].split(",")[0]), default="")
        column_values.append(rows.get((metric, key, quantity), np.nan))
    return np.array(column_values)


def choose(runs: list[Rows]) -> list[str]:
    """Return what the rule says, a line per step."""
    agreement = np.array([values(rows, "agreement") for rows in runs])
    loss = agreement[:, :1] - agreement
    left = (loss.mean(axis=0) <= 0.005) & (loss.max(axis=0) <= 0.02)
    lines = [
        "agreement: " + ", ".join(name for name, stays in zip(METRICS.values(), left, strict=True) if stays)
    ]
    for column, tolerance in CRITERIA.items():
        mean = np.nanmean([values(rows, column) for rows in runs], axis=0)
        left &= mean >= mean[left].max() - tolerance
        lines.append(
            f"{column}: "
            + ", ".join(name for name, stays in zip(METRICS.values(), left, strict=True) if stays)
        )
    return lines


def table(rows: Rows) -> str:
    """Return the columns of a run as a table in Markdown."""
    lines = ["| metric | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    columns = [values(rows, column) for column in COLUMNS]
    for i, name in enumerate(METRICS.values()):
        lines.append(f"| {name} | " + " | ".join(f"{column[i]:.3g}" for column in columns) + " |")
    return "\n".join(lines)


def methods_table(rows: Rows) -> str:
    """Return what was measured of all methods as a table in Markdown."""
    lines = ["| method | " + " | ".join(OF_METHODS) + " |", "|---" * (len(OF_METHODS) + 1) + "|"]
    for name, method in METHODS.items():
        scores = {f"{name}, τ": method, name: method}
        if method.startswith("dualda"):
            scores[name] = f"{method}, relative to the mean"
        else:
            del scores[f"{name}, τ"]
        for label, key in sorted(scores.items()):
            cells = (rows.get((metric, key, q), np.nan) for metric, q in OF_METHODS.values())
            lines.append(f"| {label} | " + " | ".join(f"{v:.3g}" if v == v else "" for v in cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    runs = {name: read(Path(name)) for name in sys.argv[1:]}
    for name, rows in runs.items():
        print(f"\n{name}\n\n{table(rows)}\n\n{methods_table(rows)}")
    print("\n" + "\n".join(choose(list(runs.values()))))
