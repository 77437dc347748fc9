"""Tables and a figure of the saved results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

DRAWS = 1000
KEYS = ("recall@1", "recall@10", "MRR")
COUNTS = ("1", "2", "4", "8")
OURS, OTHER, THIRD = "#0072b2", "#d55e00", "#555555"


def tables(results: Path) -> str:
    """Format all tables in Markdown."""
    saved = json.loads(results.read_text(encoding="utf-8"))
    parts = {"right": _right, "methods": _methods, "facts": _by_count, "surrogates": _surrogates,
             "removal": _removal, "faithfulness": _faithfulness, "growth": _growth}  # fmt: skip
    return "\n\n".join(make(saved) for name, make in parts.items() if name in saved and "methods" in saved)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean of some values and its standard deviation by bootstrap."""
    array = np.array(values, np.float64)
    draws = np.random.default_rng(0).integers(0, len(array), (DRAWS, len(array)))
    return float(array.mean()), float(array[draws].mean(1).std())


def _cell(values: Sequence[float], form: str = ".2f") -> str:
    if not len(values):
        return "–"
    mean, error = spread(values)
    return f"{mean:{form}} ± {error:.2f}"


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def _right(saved: Any) -> str:
    right = saved["right"]
    counts = list(right["tuned"])
    return _rows(
        ["documents that state it", *counts],
        [
            [name, *("{} of {}".format(*right[name][each]) for each in counts)]
            for name in ("untuned", "tuned")
        ],
    )


def _groups(saved: Any) -> tuple[list[int], list[int]]:
    """Places of answers to facts that documents agree on, and of others."""
    disagree = ["/" in fact["stated by"] for fact in saved["facts"]]
    return [i for i, no in enumerate(disagree) if not no], [i for i, no in enumerate(disagree) if no]


def _methods(saved: Any) -> str:
    agree, disagree = _groups(saved)
    head = ["method", *(f"agree ({len(agree)}): {key}" if not i else key for i, key in enumerate(KEYS))]
    head += [*(f"disagree ({len(disagree)}): {key}" if not i else key for i, key in enumerate(KEYS))]
    rows = []
    for name, found in saved["methods"].items():
        cells = [_cell([found[i][key] for i in some]) for some in (agree, disagree) for key in KEYS]
        other = [found[i]["other first"] for i in disagree]
        rows.append([name, *cells, _cell(other)])
    return _rows([*head, "the other side first"], rows)


def _by_count(saved: Any) -> str:
    groups = {
        count: [i for i, fact in enumerate(saved["facts"]) if fact["stated by"] == count] for count in COUNTS
    }
    rows = [
        [name, *(_cell([found[i]["recall@1"] for i in some]) for some in groups.values())]
        for name, found in saved["methods"].items()
    ]
    return _rows(["recall@1", *(f"{count} ({len(some)})" for count, some in groups.items())], rows)


def _surrogates(saved: Any) -> str:
    rows = [
        [name, f"{one['C']:.2g}", f"{one['κ']:.3g}", f"{one['support']:,} of {one['positions']:,}",
         f"{one['gap']:.0e}", f"{one['agreement']:.1%}", f"{one['CPU seconds']:.0f}"]
        for name, one in saved["surrogates"].items()
    ]  # fmt: skip
    head = ["surrogate", "C", "κ", "support vectors", "gap", "agreement", "CPU seconds"]
    return _rows(head, rows)


def _removal(saved: Any) -> str:
    rows = []
    for name, one in saved["removal"].items():
        cells = [f(one[what][key]) for what in ("chosen", "others") for key, f in
                 (("still", _cell), ("change", lambda v: _cell(v, "+.2f")))]  # fmt: skip
        named = f"{one['of the facts']} of {one['they have']}"
        rows.append([name, str(one["documents"]), named, *cells])
    n, others = (len(next(iter(saved["removal"].values()))[what]["still"]) for what in ("chosen", "others"))
    head = ["left out: first of", "documents", "that state the facts", f"still answered ({n} facts)"]
    return _rows([*head, "log p", f"other facts ({others})", "log p"], rows)


def _faithfulness(saved: Any) -> str:
    rows = []
    for name, both in saved["faithfulness"].items():
        for where, bands in both.items():
            cells = ["–" if share is None else f"{share:.1%} of {n:,}" for n, share in bands.values()]
            rows.append([name, where, *cells])
    bands = list(next(iter(saved["faithfulness"].values()))["corpus"])
    return _rows(["surrogate", "on", *bands], rows)


def _growth(saved: Any) -> str:
    rows = [
        [f"{one['positions']:,}", f"{one['tokens']:,}", f"{one['seconds']:.0f}",
         f"{one['bytes'] / 1e6:,.0f} MB",
         f"{one['inputs'] / 1e6:,.0f} MB", f"{one['gap']:.1e}", f"{one['support'] / one['positions']:.0%}"]
        for one in saved["growth"]
    ]  # fmt: skip
    head = ["positions", "tokens that occur", "CPU seconds", "peak", "features", "gap", "support vectors"]
    return _rows(head, rows)


def draw(results: Path, path: Path) -> None:
    """Draw whether the first document is the fact's, by method, and what leaving documents out does."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    saved = json.loads(results.read_text(encoding="utf-8"))
    panels = [_named, _left_out] if "removal" in saved else [_named]
    figure, axes = plt.subplots(1, len(panels), figsize=(1 + 4.5 * len(panels), 4.8), squeeze=False)
    for panel, axis in zip(panels, axes[0], strict=True):
        panel(axis, saved)
        axis.set_xlim(-0.02, 1.04)
        axis.grid(True, axis="x", color="#dddddd", linewidth=0.5)
        axis.tick_params(labelsize=8)
        axis.legend(fontsize=7.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=2)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _named(axis: Any, saved: Any) -> None:
    names = list(saved["methods"])[::-1]
    looks = ((OURS, "o", "documents agree", 0.13), (OTHER, "D", "they disagree", -0.13))
    for (colour, marker, label, shift), some in zip(looks, _groups(saved), strict=True):
        values = [[saved["methods"][name][i]["recall@1"] for i in some] for name in names]
        _points(axis, values, shift, color=colour, fmt=marker, label=f"{label} ({len(some)} answers)")
    axis.set_yticks(range(len(names)), names)
    axis.set_title("The first document says what was answered (recall@1)", fontsize=9)


def _left_out(axis: Any, saved: Any) -> None:
    ways = list(saved["removal"])[::-1]
    looks = ((OURS, "o", "chosen", "the facts", 0.13), (THIRD, "s", "others", "other facts", -0.13))
    for colour, marker, what, label, shift in looks:
        values = [saved["removal"][name][what]["still"] for name in ways]
        _points(axis, values, shift, color=colour, fmt=marker, label=f"{label} ({len(values[0])})")
    axis.set_yticks(range(len(ways)), ways)
    axis.set_title("Still answered, tuned without what a method names", fontsize=9)


def _points(axis: Any, values: Sequence[Sequence[float]], shift: float, **look: Any) -> None:
    """Draw means with their standard deviations, one below the other."""
    means, errors = zip(*map(spread, values), strict=True)
    axis.errorbar(means, np.arange(len(means)) + shift, xerr=errors, markersize=5, elinewidth=1, **look)
