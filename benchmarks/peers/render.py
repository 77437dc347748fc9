"""The table and the figure, from saved results alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peers.cells import SIZES, read, scaled
from benchmarks.peers.contract import NAMES, Row, package
from benchmarks.peers.scene import SCENES

OURS, THEIRS = "#0072b2", "#d55e00"  # of the Okabe–Ito palette
NOTHING = 2e4  # bytes where methods that keep nothing are drawn
BASE = "DualDA, sparse"


class Line(NamedTuple):
    """A row of the table on one scene, brought to the whole of it."""

    name: str
    ours: bool
    cell: dict[str, Any]
    error: str | None

    @property
    def total(self) -> float:
        """Seconds of caching and explaining."""
        return float(self.cell["caching"] + (self.cell["explaining"] or 0.0))

    @property
    def attributes(self) -> bool:
        """Whether tests were explained."""
        return self.error is None and self.cell["explaining"] is not None


def lines(results: Path, scene: str) -> list[Line]:
    """Return the rows of a scene, in the packages' order."""
    return [_line(found, row, cell) for found, row, cell in _cells(results, scene)]


def _cells(results: Path, scene: str) -> Iterator[tuple[str, Row, dict[str, Any]]]:
    known = read(results)
    for file in NAMES:
        found = package(file)
        for row in found.rows:
            key = f"{scene}/{file}/{row.label}"
            if "measured" in known.get(key, {}) or "error" in known.get(key, {}).get("small", {}):
                cell = {**known[key], "scene": scene}
                yield found.name, row, cell


def _line(name: str, row: Row, cell: dict[str, Any]) -> Line:
    best = cell.get("measured", cell["small"])
    label = f"{name}: {row.label}"
    if "error" in best:
        return Line(label, name == "whence", {}, best["error"])
    whole = {**scaled(best, cell["small"], row, *SIZES[cell["scene"]]), "agreement": cell.get("agreement")}
    return Line(label, name == "whence", whole, None)


def seconds(value: float, whole: bool = True) -> str:
    """Write a time in its unit; ≈ marks one that was scaled."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{'' if whole else '≈ '}{value / size:.1f} {unit}"
    return f"{'' if whole else '≈ '}{value:.{0 if value >= 20 else 1 if value >= 2 else 2}f} s"


def times(ratio: float) -> str:
    """Write a ratio to two or three digits."""
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


def megabytes(value: float | None, whole: bool = True) -> str:
    """Write a size in MB; — where nothing is kept."""
    if value is None:
        return "—"
    return f"{'' if whole else '≈ '}{value / 1e6:,.{0 if value >= 2e7 else 1 if value >= 5e5 else 2}f} MB"


def table(results: Path, scene: str) -> str:
    """Return a Markdown table of a scene."""
    found = lines(results, scene)
    base = next(line for line in found if line.name == f"whence: {BASE}")
    head = "| | caching | cache | explaining | total | total to DualDA's | peak memory | agreement |"
    rows = [head, "|---|---|---|---|---|---|---|---|"]
    for line in found:
        if line.error is not None:
            rows.append(f"| {line.name} | {line.error} | | | | | | |")
            continue
        cell, whole = line.cell, line.cell["whole"]
        near = "" if cell["agreement"] is None else "{:.2f}, {:.2f}".format(*cell["agreement"])
        cells = ["—"] * 3
        if line.attributes:
            cells = [
                seconds(cell["explaining"], whole),
                seconds(line.total, whole),
                times(line.total / base.total),
            ]
        caching, kept = seconds(cell["caching"], whole), megabytes(cell["bytes"], whole)
        peak = megabytes(cell["peak"]) if whole else f"> {megabytes(cell['peak'])}"
        rows.append("| " + " | ".join([line.name, caching, kept, *cells, peak, near]) + " |")
    return "\n".join(rows)


def measured(results: Path) -> list[str]:
    """Return the scenes on which whence was measured."""
    known = read(results)
    return [
        scene for scene in SCENES if "caching" in known.get(f"{scene}/whence/{BASE}", {}).get("measured", {})
    ]


def points(results: Path, scene: str) -> dict[str, tuple[bool, float, float | None, bool]]:
    """Return total time and cache of what ran on a scene: whose it is, and whether it ran whole."""
    return {
        line.name: (line.ours, line.total, line.cell["bytes"], line.cell["whole"])
        for line in lines(results, scene)
        if line.attributes
    }


def means(results: Path) -> dict[str, tuple[bool, float, float | None, bool]]:
    """Return the geometric means over scenes of total time and cache, of rows that ran on all of them."""
    every = [points(results, scene) for scene in measured(results)]
    found = {}
    for name in every[0]:
        if not all(name in scene for scene in every):
            continue
        ours, totals, sizes, whole = zip(*(scene[name] for scene in every), strict=True)
        kept = None if None in sizes else float(np.exp(np.mean(np.log(sizes))))
        found[name] = ours[0], float(np.exp(np.mean(np.log(totals)))), kept, all(whole)
    return found


def figure(results: Path, out: Path) -> None:
    """Draw total time against the size of the cache, for each scene and in the mean."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    pyplot.rcParams["svg.hashsalt"] = "whence"
    drawing, grid = pyplot.subplots(2, 2, figsize=(11.5, 7.6), sharex=True)
    panels = {SCENES[scene].split(",")[0]: points(results, scene) for scene in measured(results)}
    panels["Geometric means of what ran on all"] = means(results)
    numbers = {name: k + 1 for k, name in enumerate(dict.fromkeys(n for p in panels.values() for n in p))}
    for axes, (title, found) in zip(grid.flat, panels.items(), strict=False):
        for name, (ours, total, kept, whole) in found.items():
            colour = OURS if ours else THEIRS
            place = (NOTHING if kept is None else kept) / 1e6, total
            axes.scatter(
                *place,
                color=colour,
                facecolor=colour if whole else "white",
                marker="o" if ours else "s",
                s=150,
                zorder=3,
            )
            ink = "white" if whole else colour
            axes.annotate(
                str(numbers[name]), place, ha="center", va="center", fontsize=7.5, color=ink, zorder=4
            )
        axes.set(xscale="log", yscale="log", ylabel="caching and explaining, s")
        axes.set_title(title, fontsize=10, loc="left")
        axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(0.1)
    for axes in grid[1]:
        axes.set_xlabel("cache, MB")
    named = [
        Line2D([], [], color=OURS if name.startswith("whence") else THEIRS, lw=0, label=f"{k}  {name}")
        for name, k in numbers.items()
    ]
    legend = drawing.legend(
        handles=named,
        loc="center right",
        frameon=False,
        fontsize=8.5,
        handlelength=0,
        handletextpad=0,
        labelcolor="linecolor",
        title="whence in blue, others in orange;\nhollow: part of it was extrapolated;\nlower left is better",
        title_fontsize=8.5,
        alignment="left",
    )
    legend.get_title().set_color("#333333")
    drawing.tight_layout(rect=(0, 0, 0.74, 1))
    drawing.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None, dpi=140)
    pyplot.close(drawing)
