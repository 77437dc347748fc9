"""The table of dattri's benchmark: whence's methods next to the figures that dattri published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PUBLISHED = {
    "IF with CG, published": {"lr": 0.80, "mlp": 0.26},
    "TRAK-1, published": {"lr": 0.42, "mlp": 0.11},
    "TRAK-10, published": {"lr": 0.64, "mlp": 0.33},
    "TRAK-50, published": {"lr": 0.68, "mlp": 0.45},
}
"""Read off the bar chart of LDS in Deng et al., "dattri: A Library for Efficient Data Attribution" (2024).
Their settings are the best of a grid on the retrainings that judge them."""


def table(results: Mapping[str, Any]) -> str:
    """Return the table in Markdown, the best of the MLP first."""
    kinds = ("lr", "mlp")
    found = {kind: results.get(kind, {}) for kind in kinds}
    labels = list(dict.fromkeys([*found["lr"], *found["mlp"]]))
    figures = {
        **{label: [_cells(found[kind].get(label)) for kind in kinds] for label in labels},
        **{label: [(f"{row[kind]:.2f}", "–") for kind in kinds] for label, row in PUBLISHED.items()},
    }
    lines = ["| | LR | CPU-s | MLP | CPU-s |", "|---|---|---|---|---|"]
    order = sorted(figures, key=lambda label: -_value(label, found))
    lines += [
        f"| {label} | {' | '.join(cell for pair in figures[label] for cell in pair)} |" for label in order
    ]
    removed = results.get("lr leave-one-out")
    if removed:
        lines += ["", "| leave-one-out, LR | Pearson |", "|---|---|"]
        pairs = sorted(removed.items(), key=lambda pair: -pair[1])
        lines += [f"| {label} | {value:.3f} |" for label, value in pairs]
    return "\n".join(lines)


def _cells(record: Mapping[str, Any] | None) -> tuple[str, str]:
    if record is None:
        return "–", "–"
    return f"{record['LDS']:.3f} ± {record['error']:.3f}", f"{record['cpu_seconds']:.0f}"


def _value(label: str, found: Mapping[str, Mapping[str, Any]]) -> float:
    if label in PUBLISHED:
        return PUBLISHED[label]["mlp"]
    known = found["mlp"].get(label) or found["lr"].get(label)
    return float(known["LDS"])
