"""Small charts as SVG, coloured by the page's styles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_LEFT, _RIGHT, _TOP, _BOTTOM = 38, 8, 8, 22


@dataclass(frozen=True)
class Line:
    """A curve: its points, and the class of its style."""

    points: Sequence[tuple[float, float]]
    style: str = "line"


@dataclass(frozen=True)
class Axis:
    """An axis from ``low`` to ``high``, logarithmic where ``log`` is set, with marks."""

    low: float
    high: float
    marks: Sequence[float]
    log: bool = False

    def place(self, value: float) -> float:
        """Give the place of a value, from 0 to 1."""
        low, high, v = (
            (math.log10(max(x, 1e-300)) for x in (self.low, self.high, value))
            if self.log
            else (self.low, self.high, value)
        )
        return (v - low) / (high - low) if high > low else 0.5


def linear(values: Sequence[float], zero: bool = False) -> Axis:
    """Make a linear axis that holds the values, with round marks."""
    low, high = min([*values, 0.0] if zero else values), max(values)
    span = high - low or abs(high) or 1.0
    step = 10 ** math.floor(math.log10(span))
    step = next(s * step for s in (0.1, 0.2, 0.5, 1, 2) if span / (s * step) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    marks = [round(k * step, 12) for k in range(first, max(last, first + 1) + 1)]
    return Axis(marks[0], marks[-1], marks)


def powers(values: Sequence[float]) -> Axis:
    """Make a logarithmic axis that holds the values, marked at powers of ten."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    step = max(1, math.ceil((high - low) / 5))
    return Axis(10.0**low, 10.0**high, [10.0**k for k in range(low, high + 1, step)], log=True)


def line_chart(
    lines: Sequence[Line], x: Axis, y: Axis, text: str, width: int = 240, height: int = 150
) -> Markup:
    """Draw curves; ``text`` says what they are to those who cannot see them."""
    frame = _Frame(x, y, width, height)
    drawn = []
    for line in lines:
        points = " ".join("{:.1f},{:.1f}".format(*frame.at(*point)) for point in line.points)
        drawn.append(f'<polyline class="{line.style}" points="{points}"/>')
    return frame.svg(text, drawn)


@dataclass(frozen=True)
class Dot:
    """A row of a chart of dots: its label, value, interval where there is one, and the class of its style."""

    label: str
    value: float
    interval: tuple[float, float] | None
    style: str


def dot_chart(rows: Sequence[Dot], x: Axis, text: str, chance: float | None) -> Markup:
    """Draw one dot a row, and the line of chance where there is one."""
    label, line, width = 168, 17, 420
    height = line * len(rows) + _BOTTOM + 4
    span = width - label - 58

    def at(value: float) -> float:
        return label + span * min(max(x.place(value), 0), 1)

    drawn = [_gridline(at(mark), 0, height - _BOTTOM, mark) for mark in x.marks]
    if chance is not None:
        place = f'x1="{at(chance):.1f}" x2="{at(chance):.1f}"'
        drawn.append(f'<line class="chance" {place} y1="0" y2="{height - _BOTTOM}"/>')
    for i, row in enumerate(rows):
        y = line * (i + 0.5) + 2
        if row.interval is not None:
            low, high = at(row.interval[0]), at(row.interval[1])
            drawn.append(f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>')
        drawn += [
            f'<text class="end" x="{label - 8}" y="{y + 4}">{escape(row.label)}</text>',
            f'<circle class="{row.style}" cx="{at(row.value):.1f}" cy="{y}" r="4.5"/>',
            f'<text x="{width - 46}" y="{y + 4}">{number(row.value)}</text>',
        ]
    return _svg(width, height, text, drawn)


def scatter_chart(points: Sequence[tuple[str, float, float, str]], x: Axis, y: Axis, text: str) -> Markup:
    """Draw labelled points: name, x, y and style; labels stand where they overlap nothing."""
    frame = _Frame(x, y, 640, 380, right=170)
    dots = [frame.at(a, b) for _, a, b, _ in points]
    taken = [(left - 5, top - 5, left + 5, top + 5) for left, top in dots]
    drawn: list[str] = []
    for (name, _, _, style), (left, top) in zip(points, dots, strict=True):
        drawn.append(f'<circle class="{style}" cx="{left:.1f}" cy="{top:.1f}" r="5"/>')
        start, low, box = _free(left, top, 6.2 * len(name), taken)
        taken.append(box)
        drawn.append(f'<text x="{start:.1f}" y="{low:.1f}">{escape(name)}</text>')
    return frame.svg(text, drawn)


_Box = tuple[float, float, float, float]


def _free(left: float, top: float, width: float, taken: Sequence[_Box]) -> tuple[float, float, _Box]:
    """Find a place for a label near a point that overlaps nothing: beside it, else further up or down."""
    found = []
    for dy in (0, 12, -12, 24, -24, 36, -36, 48, -48, 60):
        for start in (left + 9, left - 9 - width):
            low = top + 4 + dy
            box = (start, low - 10, start + width, low + 3)
            found.append((start, low, box))
            apart = (box[2] < b[0] or b[2] < box[0] or box[3] < b[1] or b[3] < box[1] for b in taken)
            if start > _LEFT and all(apart):
                return found[-1]
    return found[0]  # too crowded: beside its point


def number(value: float) -> str:
    """Write a number with three digits that count, and a proper minus."""
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e-0", "e−").replace("e+0", "e").replace("-", "−")
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


class _Frame:
    """The area of a chart, with its axes."""

    def __init__(self, x: Axis, y: Axis, width: int, height: int, right: int = _RIGHT) -> None:
        self.x, self.y, self.width, self.height, self.right = x, y, width, height, right

    def at(self, a: float, b: float) -> tuple[float, float]:
        """Place of a point, in the chart's units."""
        across = _LEFT + (self.width - _LEFT - self.right) * self.x.place(a)
        down = self.height - _BOTTOM - (self.height - _TOP - _BOTTOM) * self.y.place(b)
        return across, down

    def svg(self, text: str, drawn: Sequence[str]) -> Markup:
        bottom = self.height - _BOTTOM
        grid = [_gridline(self.at(mark, self.y.low)[0], _TOP, bottom, mark) for mark in self.x.marks]
        for mark in self.y.marks:
            down = self.at(self.x.low, mark)[1]
            end = self.width - self.right
            grid.append(
                f'<line class="grid" x1="{_LEFT}" x2="{end}" y1="{down:.1f}" y2="{down:.1f}"/>'
                f'<text class="end mark" x="{_LEFT - 5}" y="{down + 4:.1f}">{number(mark)}</text>'
            )
        return _svg(self.width, self.height, text, [*grid, *drawn])


def _gridline(at: float, top: float, bottom: float, mark: float) -> str:
    return (
        f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{bottom}"/>'
        f'<text class="middle mark" x="{at:.1f}" y="{bottom + 15}">{number(mark)}</text>'
    )


def _svg(width: int, height: int, text: str, drawn: Sequence[str]) -> Markup:
    box = f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(text)}"'
    return Markup(f'<svg class="figure" {box}>{"".join(drawn)}</svg>')
