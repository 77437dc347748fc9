"""The tables of dattri's benchmark: whence's methods next to the figures that dattri published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.dattri import flips

IMAGES = Path("docs/images")
KINDS = ("lr", "mlp")
PUBLISHED = {
    "IF with CG, published": {"lr": 0.80, "mlp": 0.26},
    "TRAK-1, published": {"lr": 0.42, "mlp": 0.11},
    "TRAK-10, published": {"lr": 0.64, "mlp": 0.33},
    "TRAK-50, published": {"lr": 0.68, "mlp": 0.45},
}
"""Read off the bar chart of LDS in Deng et al., "dattri: A Library for Efficient Data Attribution" (2024).
Their settings are the best of a grid on the retrainings that judge them."""
Records = Mapping[str, Any]


def tables(results: Records) -> dict[str, str]:
    """Return the tables of what is known in Markdown, by name."""
    found = {
        "lds": lds_table(results),
        "leave-one-out": _two(
            results, "leave-one-out", "Pearson, leave-one-out", lambda value: f"{value:.3f}"
        ),
        "removal": _two(results, "removal", "QLD", _removal),
        "flips": _two(results, "flips", "Brier score, of contested; coverage of 90 %", _flips),
    }
    return {name: text for name, text in found.items() if text}


def lds_table(results: Records) -> str:
    """Return LDS and CPU-seconds, the best of the MLP first."""
    found = {kind: results.get(kind, {}) for kind in KINDS}
    figures = {
        **{label: [_cells(found[kind].get(label)) for kind in KINDS] for label in _labels(found)},
        **{label: [(f"{row[kind]:.2f}", "–") for kind in KINDS] for label, row in PUBLISHED.items()},
    }
    order = sorted(figures, key=lambda label: -_value(label, found))
    rows = [
        f"| {label} | {' | '.join(cell for pair in figures[label] for cell in pair)} |" for label in order
    ]
    return "\n".join(["| LDS | LR | CPU-s | MLP | CPU-s |", "|---|---|---|---|---|", *rows])


def figures(results: Records) -> None:
    """Draw the reliability diagrams that are known."""
    for kind in KINDS:
        if f"{kind} flips" in results:
            flips.figure(results[f"{kind} flips"], IMAGES / f"flips_{kind}.svg")


def _two(results: Records, part: str, head: str, cell: Callable[[Any], str]) -> str:
    """Return a table of one part of the results, or nothing where none is known."""
    found = {kind: results.get(f"{kind} {part}", {}) for kind in KINDS}
    labels = _labels(found)
    rows = [
        f"| {label} | "
        + " | ".join(cell(found[kind][label]) if label in found[kind] else "–" for kind in KINDS)
        + " |"
        for label in labels
    ]
    return "\n".join([f"| {head} | LR | MLP |", "|---|---|---|", *rows]) if rows else ""


def _labels(found: Mapping[str, Records]) -> list[str]:
    return list(dict.fromkeys(label for kind in KINDS for label in found[kind]))


def _removal(record: Records) -> str:
    return f"{record['mean']:.3f} ({record['low']:.3f} … {record['high']:.3f})"


def _flips(record: Records) -> str:
    hard = "–" if record["contested"] is None else f"{record['contested']['brier']:.4f}"
    return f"{record['all']['brier']:.4f}, {hard}; {record['coverage']:.3f}"


def _cells(record: Records | None) -> tuple[str, str]:
    if record is None:
        return "–", "–"
    return f"{record['LDS']:.3f} ± {record['error']:.3f}", f"{record['cpu_seconds']:.1f}"


def _value(label: str, found: Mapping[str, Records]) -> float:
    if label in PUBLISHED:
        return PUBLISHED[label]["mlp"]
    known = found["mlp"].get(label) or found["lr"].get(label)
    return float(known["LDS"])
