"""The tables and the figure of docs/research/relabel.md, from saved results alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from benchmarks.relabel.orders import ORDERS
from benchmarks.relabel.scenes import SCENES

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, IMAGE = DOCS / "research" / "relabel.md", DOCS / "images" / "relabel.svg"
OURS = "whence"
JUDGED = (0.05, 0.1)  # budgets at which differences in wrong labels found are judged


class Curves(NamedTuple):
    """What was measured on a data set.

    Attributes
    ----------
    budgets : (B + 1,), from 0 on
    accuracy : per order (seeds, B + 1)
    found : per order (seeds, B + 1), shares of the wrong labels
    precision, seconds : per order (seeds,), average precision, and CPU-seconds to compute the order
    ceiling : (seeds,) accuracy with true labels
    fitted : (seeds,) share of the wrong labels that the network predicts
    training : (seeds,) CPU-seconds of one training
    """

    budgets: np.ndarray
    accuracy: dict[str, np.ndarray]
    found: dict[str, np.ndarray]
    precision: dict[str, np.ndarray]
    seconds: dict[str, np.ndarray]
    ceiling: np.ndarray
    fitted: np.ndarray
    training: np.ndarray

    def gain(self, order: str) -> np.ndarray:
        """Return accuracy above that of budget 0, (seeds, B + 1)."""
        accuracy = self.accuracy[order]
        difference: np.ndarray = accuracy - accuracy[:, :1]
        return difference

    def mean_gain(self, order: str) -> np.ndarray:
        """Return the area under the gain by trapezoids, divided by the largest budget, (seeds,)."""
        mean: np.ndarray = np.trapezoid(self.gain(order), self.budgets, axis=1) / self.budgets[-1]
        return mean

    def needed(self, order: str) -> float | None:
        """Return the smallest budget from which on all gains count, or None."""
        better = [interval(gain)[0] > 0 for gain in self.gain(order)[:, 1:].T]
        places = [i for i in range(len(better)) if all(better[i:])]
        return float(self.budgets[1 + places[0]]) if places else None


def curves(results: dict[str, Any], name: str) -> Curves:
    """Read what was measured on a data set."""
    seeds = list(results["cells"][name].values())

    def per_order(read: Callable[[dict[str, Any], dict[str, Any]], Any]) -> dict[str, np.ndarray]:
        return {key: np.array([read(seed, seed["orders"][key]) for seed in seeds], float) for key in ORDERS}

    return Curves(
        budgets=np.array([0.0, *results["budgets"]]),
        accuracy=per_order(lambda seed, order: [seed["accuracy"]["given"], *order["accuracy"]]),
        found=per_order(lambda seed, order: np.array([0, *order["found"]]) / seed["wrong"]),
        precision=per_order(lambda seed, order: order["precision"]),
        seconds=per_order(lambda seed, order: order["seconds"]),
        ceiling=np.array([seed["accuracy"]["true"] for seed in seeds]),
        fitted=np.array([seed["fitted"] for seed in seeds]),
        training=np.array([seed["seconds"] / seed["trainings"] for seed in seeds]),
    )


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the mean of values (n,), by Student's t.

    >>> [round(end, 3) for end in interval(np.array([1.0, 2.0, 3.0]))]
    [-0.484, 4.484]
    """
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean() - half), float(values.mean() + half)


def judged(differences: np.ndarray) -> str:
    """Write a mean difference in points with its interval, and whether it counts."""
    (low, high), word = interval(differences), verdict(differences)
    shown = word if word == "tie" else f"**{word}**"
    return f"{_signed(differences.mean())} ({_signed(low)} to {_signed(high)}), {shown}"


def verdict(differences: np.ndarray) -> str:
    """Say whether a mean difference counts: "better", "worse" or "tie"."""
    low, high = interval(differences)
    return "better" if low > 0 else "worse" if high < 0 else "tie"


def _signed(value: float) -> str:
    return f"{100 * value:+.2f}".replace("-", "−")


def _spread(values: np.ndarray, digits: int = 1) -> str:
    return f"{100 * values.mean():.{digits}f} ± {100 * values.std(ddof=1):.{digits}f}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _share(value: float) -> str:
    return f"{value:.0%}".replace("%", " %")


def table_accuracy(results: dict[str, Any]) -> str:
    """Write accuracy after retraining, by order and budget."""
    rows, budgets = [], [0.0, *results["budgets"]]
    for name in SCENES:
        found = curves(results, name)
        for key, title in ORDERS.items():
            cells = [_spread(column) for column in found.accuracy[key].T]
            rows.append([SCENES[name].title, title, *cells, _spread(found.ceiling)])
    return _table(["accuracy, %", "order", *map(_share, budgets), "all labels true"], rows)


def table_found(results: dict[str, Any]) -> str:
    """Write the share of wrong labels found, by order and budget, average precision and cost."""
    rows = []
    for name in SCENES:
        found = curves(results, name)
        for key, title in ORDERS.items():
            cells = [_spread(column, 0) for column in found.found[key][:, 1:].T]
            cost = f"{found.seconds[key].mean():.1f}"
            rows.append([SCENES[name].title, title, *cells, f"{found.precision[key].mean():.3f}", cost])
    head = ["wrong labels found, %", "order", *map(_share, results["budgets"])]
    return _table([*head, "average precision", "CPU-s"], rows)


def table_gains(results: dict[str, Any]) -> str:
    """Write mean gains, and the labels needed for a better model."""
    rows = []
    for name in SCENES:
        found = curves(results, name)
        for key, title in ORDERS.items():
            needed = found.needed(key)
            at = [_signed(found.gain(key)[:, list(found.budgets).index(b)].mean()) for b in JUDGED]
            budget = "more than 20 %" if needed is None else _share(needed)
            mean = found.mean_gain(key)
            spread = f"{_signed(mean.mean())} ± {100 * mean.std(ddof=1):.2f}"
            rows.append([SCENES[name].title, title, spread, *at, budget])
    head = ["gain in accuracy, points", "order", "mean gain, 0 to 20 %", "at 5 %", "at 10 %", "labels needed"]
    return _table(head, rows)


def table_differences(results: dict[str, Any]) -> str:
    """Write differences of whence to each other order, and whether they count."""
    rows = []
    for name in SCENES:
        found = curves(results, name)
        for key, title in ORDERS.items():
            if key == OURS:
                continue
            gains = judged(found.mean_gain(OURS) - found.mean_gain(key))
            places = [list(found.budgets).index(budget) for budget in JUDGED]
            shares = [judged(found.found[OURS][:, i] - found.found[key][:, i]) for i in places]
            rows.append([SCENES[name].title, title, gains, *shares])
    head = [
        "whence minus",
        "order",
        "mean gain, points",
        "wrong labels found at 5 %, points",
        "at 10 %, points",
    ]
    return _table(head, rows)


def table_raw(results: dict[str, Any]) -> str:
    """Write how whence's order on BBC News compares with others, by the metric of the explainer."""
    cells = results["cells"]["bbc-news"]
    raw = {s: cell | {"orders": cell["orders"] | {OURS: results["raw"][s]}} for s, cell in cells.items()}
    rows = []
    for title, of in {"default": cells, '`metric="raw"`': raw}.items():
        found = curves(results | {"cells": {"bbc-news": of}}, "bbc-news")
        shares = [f"{100 * found.found[OURS][:, list(found.budgets).index(b)].mean():.0f}" for b in JUDGED]
        gains = [judged(found.mean_gain(OURS) - found.mean_gain(k)) for k in ("cleanlab", "self-confidence")]
        rows.append([title, f"{found.precision[OURS].mean():.3f}", *shares, *gains])
    head = ["BBC News, whence", "average precision", "found at 5 %, %", "at 10 %, %"]
    return _table([*head, "mean gain minus cleanlab's", "minus self-confidence's"], rows)


def table_memorising(results: dict[str, Any]) -> str:
    """Write average precision on BBC News by length of training."""
    rows = []
    for row in results["memorising"]:
        accuracy, fitted = (f"{100 * row[key]:.1f}" for key in ("accuracy", "fitted"))
        rows.append([str(row["epochs"]), accuracy, fitted, *(f"{row[key]:.3f}" for key in PRECISIONS)])
    head = ["epochs", "accuracy, %", "wrong labels fitted, %", *PRECISIONS.values()]
    return _table(head, rows)


PRECISIONS = {
    "whence": "whence",
    "whence, metric=raw": '`metric="raw"`',
    "cross-validated": "cross-validated",
    "self-confidence": "self-confidence",
}
TABLES = {
    "gains": table_gains,
    "differences": table_differences,
    "accuracy": table_accuracy,
    "found": table_found,
    "memorising": table_memorising,
    "raw": table_raw,
}
LOOKS = {
    "whence": ("#0072b2", "o", "-"),
    "cleanlab": ("#d55e00", "s", "-"),
    "self-confidence": ("#009e73", "^", "--"),
    "random": ("#777777", "x", ":"),
}


def figure(results: dict[str, Any], path: Path) -> None:
    """Draw gains in accuracy and wrong labels found, by budget; bands are deviations over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "whence"
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    canvas, axes = plt.subplots(2, len(SCENES), figsize=(10, 5.8), sharex=True, squeeze=False)
    for place, name in enumerate(SCENES):
        found = curves(results, name)
        upper, lower = axes[:, place]
        x = 100 * found.budgets
        top = 100 * (found.ceiling - found.accuracy[OURS][:, 0]).mean()
        upper.axhline(top, color="#333333", linewidth=0.8, linestyle=(0, (6, 3)), label="all labels true")
        upper.axhline(0, color="#333333", linewidth=0.8)
        perfect = np.minimum(found.budgets / 0.1, 1) * 100
        lower.plot(x, perfect, color="#333333", linewidth=0.8, linestyle=(0, (1, 1)), label="perfect order")
        for key, (colour, marker, line) in LOOKS.items():
            for axis, values in ((upper, found.gain(key)), (lower, found.found[key])):
                mean, spread = 100 * values.mean(axis=0), 100 * values.std(axis=0, ddof=1)
                look: dict[str, Any] = {"color": colour, "linestyle": line, "marker": marker}
                axis.plot(x, mean, markersize=4, linewidth=1.4, label=ORDERS[key], **look)
                axis.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.1, linewidth=0)
        base = 100 * found.accuracy[OURS][:, 0].mean()
        against = verdict(found.mean_gain(OURS) - found.mean_gain("cleanlab"))
        title = f"{SCENES[name].title}, {base:.1f} % with wrong labels\nwhence against cleanlab: {against}"
        upper.set_title(title, fontsize=9.5)
        lower.set_xlabel("labels inspected, % of the training set", fontsize=8.5)
        lower.set_ylim(-2, 104)
    axes[0, 0].set_ylabel("accuracy gained by retraining, points", fontsize=8.5)
    axes[1, 0].set_ylabel("wrong labels found, %", fontsize=8.5)
    for axis in axes.ravel():
        axis.grid(True, color="#dddddd", linewidth=0.5)
        axis.set_axisbelow(True)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlim(0, 20.4)
        axis.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    handles = {
        label: handle
        for axis in axes[:, 0]
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    canvas.legend(
        handles.values(), handles.keys(), loc="lower center", ncols=len(handles), fontsize=8.5, frameon=False
    )
    canvas.tight_layout(rect=(0, 0.05, 1, 1))
    canvas.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(canvas)


def filled(page: str, results: dict[str, Any]) -> str:
    """Return a page with the tables of the results between its marks."""

    def fill(match: re.Match[str]) -> str:
        return f"<!-- table {match[1]} -->\n\n{TABLES[match[1]](results)}\n\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", fill, page, flags=re.S)


def publish(results: Path) -> None:
    """Print the tables, and write them and the figure where the docs have them."""
    known = json.loads(results.read_text())
    for table in TABLES.values():
        print(f"\n{table(known)}", flush=True)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), known), encoding="utf-8")
    figure(known, IMAGE)
