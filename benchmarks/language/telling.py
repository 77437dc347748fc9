"""What was measured, as tables and a figure, of the saved results alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

DRAWS = 1000
KEYS = ("recall@1", "recall@10", "MRR")
TOLD = ("1", "2", "4", "8")
OURS, OTHER, THIRD = "#0072b2", "#d55e00", "#555555"


def tables(results: Path) -> str:
    """Write all tables of what was measured, as Markdown."""
    saved = json.loads(results.read_text(encoding="utf-8"))
    parts = {"right": _right, "methods": _methods, "facts": _by_told, "surrogates": _surrogates,
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
    told = list(right["tuned"])
    return _rows(
        ["documents that tell it", *told],
        [[name, *("{} of {}".format(*right[name][each]) for each in told)] for name in ("untuned", "tuned")],
    )


def _groups(saved: Any) -> tuple[list[int], list[int]]:
    """Places of answers to facts that documents agree on, and of others."""
    disagree = ["/" in fact["told"] for fact in saved["facts"]]
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


def _by_told(saved: Any) -> str:
    groups = {told: [i for i, fact in enumerate(saved["facts"]) if fact["told"] == told] for told in TOLD}
    rows = [
        [name, *(_cell([found[i]["recall@1"] for i in some]) for some in groups.values())]
        for name, found in saved["methods"].items()
    ]
    return _rows(["recall@1", *(f"{told} ({len(some)})" for told, some in groups.items())], rows)


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
    head = ["left out: first of", "documents", "that tell the facts", f"still answered ({n} facts)"]
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
    names = list(saved["methods"])[::-1]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), width_ratios=(1.5, 1))
    looks = ((OURS, "o", "documents agree"), (OTHER, "D", "documents disagree"))
    for (colour, marker, label), some, shift in zip(looks, _groups(saved), (0.13, -0.13), strict=True):
        points = [spread([saved["methods"][name][i]["recall@1"] for i in some]) for name in names]
        means, errors = zip(*points, strict=True)
        places = np.arange(len(names)) + shift
        left.errorbar(means, places, xerr=errors, fmt=marker, color=colour, markersize=5, elinewidth=1,
                      label=f"{label} ({len(some)} answers)")  # fmt: skip
    left.set_yticks(range(len(names)), names, fontsize=8)
    left.set_xlim(-0.02, 1.04)
    left.set_title("The first document tells the fact (recall@1)", fontsize=9)
    removed = saved["removal"]
    ways = list(removed)[::-1]
    for (colour, marker, _), what, shift in zip(looks, ("chosen", "others"), (0.13, -0.13), strict=True):
        points = [spread(removed[name][what]["still"]) for name in ways]
        means, errors = zip(*points, strict=True)
        label = "facts whose documents were asked for" if what == "chosen" else "other facts"
        colour = colour if what == "chosen" else THIRD
        marker = marker if what == "chosen" else "s"
        right.errorbar(means, np.arange(len(ways)) + shift, xerr=errors, fmt=marker, color=colour,
                       markersize=5, elinewidth=1, label=label)  # fmt: skip
    right.set_yticks(range(len(ways)), ways, fontsize=8)
    right.set_xlim(-0.02, 1.04)
    right.set_title("Tuned again without what a method names:\nfacts still answered", fontsize=9)
    for axis in (left, right):
        axis.grid(True, axis="x", color="#dddddd", linewidth=0.5)
        axis.tick_params(labelsize=8)
        axis.legend(fontsize=7.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.08))
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
