"""Draw which packages import which to ``docs/images/imports.svg``. Run: ``python -m tools.import_graph``.

Packages stand in the order in which they may import: an arc leads from a package down to one that it imports,
the wider the more modules do so. An arc to the left, in red, would be an import against the direction. All
packages import ``errors``, to which no arcs are drawn.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path as Outline

HOME = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HOME), str(HOME / "src")]

from tests.test_imports import FILES, LEVEL, ROOMS, ROOT, imported, room_of  # noqa: E402
from tools.lines import packages  # noqa: E402

# In the middle between black and white, so that they are seen on a light and on a dark page.
INK, WRONG, BOX = "#7a8594", "#d64550", "#3f6ea8"
COLOURS = ["#4c8bd0", "#2a9d8f", "#c98a1b", "#b5609f", "#7a78d8", "#5f9e3f", "#cc6a4a"]


def imports() -> Counter[tuple[str, str]]:
    """Count for each pair of packages the modules of the first that import from the second."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in FILES:
        package = path.relative_to(ROOT).parts[0].removesuffix(".py")
        others = {room_of(name) or "" for name in imported(path)} - {package, "errors"}
        counts.update((package, other) for other in others if other in LEVEL)
    return counts


def draw(out: Path) -> None:
    """Draw the packages, those that import most at the top, and an arc per pair."""
    names = [name for level in reversed(ROOMS) for name in sorted(level) if name != "__main__"]
    heights = {name: len(names) - place for place, name in enumerate(names)}
    sizes = {name: sum(size.code for size in files.values()) for name, files in packages(ROOT).items()}
    figure, axes = plt.subplots(figsize=(8.4, 0.5 * len(names)))
    for (package, other), count in sorted(imports().items(), key=lambda pair: -pair[1]):
        if package in heights and other in heights:
            draw_arc(axes, heights[package], heights[other], count, COLOURS[heights[package] % len(COLOURS)])
    for name, y in heights.items():
        box = FancyBboxPatch(
            (-1.15, y - 0.27), 1.1, 0.54, "round,pad=0.02,rounding_size=0.12", fc=BOX, ec="none"
        )
        axes.add_patch(box)
        axes.text(-0.6, y, name, color="white", ha="center", va="center", fontsize=10, fontweight="bold")
        axes.text(-1.3, y, f"{sizes[name]:,} lines", color=INK, ha="right", va="center", fontsize=8.5)
    axes.set_xlim(-2.4, 0.3 + 0.21 * len(names))
    axes.set_ylim(0.4, len(names) + 0.6)
    axes.axis("off")
    figure.savefig(out, transparent=True, bbox_inches="tight", pad_inches=0.05, metadata={"Date": None})
    plt.close(figure)


def draw_arc(axes: plt.Axes, start: float, end: float, count: int, colour: str) -> None:
    """Draw one arc: to the right where it leads down, to the left in red where it leads up."""
    down = start > end
    x, side = (0.0, 1.0) if down else (-1.2, -1.0)
    far = x + side * 0.28 * abs(start - end)
    outline = Outline(
        [(x, start - 0.08), (far, start - 0.08), (far, end + 0.08), (x, end + 0.08)], [1, 4, 4, 4]
    )
    width = 0.5 + 0.35 * count**0.7
    axes.add_patch(PathPatch(outline, fc="none", ec=colour if down else WRONG, lw=width, alpha=0.75))
    axes.plot(x + 0.03 * side, end + 0.08, "<" if down else ">", color=colour if down else WRONG, ms=4)


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "whence"  # the same imports draw the same file
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HOME / "docs" / "images" / "imports.svg")
