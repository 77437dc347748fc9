"""Small SVG charts, coloured by the page's styles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from whence_studies.report.labels import Box, Point, along, place_labels

# Not by matplotlib: for the 128 charts of the protocol "quick" it needs 4.1 s of CPU instead of 0.3 s, and
# 330 KB instead of 220 KB. Its SVG would also need changes for a content policy without inline styles, and
# for colours that follow the page's.
_LEFT, _RIGHT, _TOP, _BOTTOM = 38, 10, 24, 36
_LETTER = 6.4  # upper estimate of the width of an 11 px letter
_UPPER = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Line:
    """A curve: its points, its CSS class, a name that is written next to it, and points to mark."""

    points: Sequence[tuple[float, float]]
    style: str = "line"
    name: str = ""
    marked: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Axis:
    """An axis from ``low`` to ``high``, linear or logarithmic, with marks and a title."""

    low: float
    high: float
    marks: Sequence[float]
    log: bool = False
    title: str = ""

    def place(self, value: float) -> float:
        """Return the position of a value, from 0 to 1."""
        low, high, v = (
            (math.log10(max(x, 1e-300)) for x in (self.low, self.high, value))
            if self.log
            else (self.low, self.high, value)
        )
        return (v - low) / (high - low) if high > low else 0.5

    def written(self, mark: float) -> str:
        """Format a mark; a logarithmic axis has powers of ten."""
        power = round(math.log10(mark)) if self.log else 0
        if self.log and not 0 <= power <= 3 and math.isclose(mark, 10.0**power):
            return f"10{power}".replace(str(power), str(power).translate(_UPPER))
        return number(mark)


def linear(values: Sequence[float], title: str = "", zero: bool = False) -> Axis:
    """Make a linear axis that covers the values, with round marks."""
    low, high = min([*values, 0.0] if zero else values), max(values)
    span = high - low or abs(high) or 1.0
    step = 10 ** math.floor(math.log10(span))
    step = next(s * step for s in (0.1, 0.2, 0.5, 1, 2) if span / (s * step) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    marks = [round(k * step, 12) for k in range(first, max(last, first + 1) + 1)]
    return Axis(marks[0], marks[-1], marks, title=title)


def powers(values: Sequence[float], title: str = "") -> Axis:
    """Make a logarithmic axis that covers the values, with marks at powers of ten."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    step = max(1, math.ceil((high - low) / 5))
    marks = [10.0**k for k in range(low, high + 1, step)]
    return Axis(10.0**low, 10.0**high, marks, log=True, title=title)


def line_chart(
    lines: Sequence[Line], x: Axis, y: Axis, text: str, width: int = 260, height: int = 178
) -> Markup:
    """Draw curves; ``text`` describes them for screen readers."""
    frame = _Frame(x, y, width, height)
    drawn, names = list[str](), list[str]()
    for line in (line for line in lines if line.points):
        places = [frame.at(*point) for point in line.points]
        points = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
        drawn.append(f'<polyline class="{line.style}" points="{points}"/>')
        drawn += [_marker("dot dual", *frame.at(*point), 3.5) for point in line.marked]
        if line.name:
            others = [[frame.at(*point) for point in other.points] for other in lines if other is not line]
            names.append(_name(line.name, places, others, frame))
    return frame.svg(text, [*drawn, *names])


def _name(name: str, line: Sequence[Point], others: Sequence[Sequence[Point]], frame: _Frame) -> str:
    """Write a level's name near one of its ends, as near as other lines leave room."""
    width, down = 0.9 * _LETTER * len(name), line[0][1]
    starts = (frame.width - frame.right - width - 2, _LEFT + 3)
    tops = [top for k in range(4) for top in (down - 14 - 11 * k, down + 3 + 11 * k)]
    boxes = [Box(left, top, left + width, top + 12) for top in tops for left in starts]
    inside = [box for box in boxes if box.top >= _TOP - 2 and box.bottom <= frame.height - _BOTTOM]
    passed = [place for other in others for ends in pairwise(other) for place in along(*ends, 8)]

    def room(box: Box) -> float:
        return min((math.dist(place, box.nearest(place)) for place in passed), default=math.inf)

    box = next((box for box in inside if room(box) > 3), max(inside or boxes, key=room))
    return f'<text class="name" x="{box.left:.1f}" y="{box.top + 10:.1f}">{escape(name)}</text>'


@dataclass(frozen=True)
class Dot:
    """A row of a dot chart: its label, value, optional interval, and CSS class."""

    label: str
    value: float
    interval: tuple[float, float] | None
    style: str


def dot_chart(rows: Sequence[Dot], x: Axis, text: str, chance: float | None) -> Markup:
    """Draw one dot per row, and the line of chance if there is one."""
    line, span = 17, 196
    label = max(168, 8 + math.ceil(_LETTER * max((len(row.label) for row in rows), default=0)))
    bottom, width = line * len(rows) + 4, label + span + 72

    def at(value: float) -> float:
        return label + span * min(max(x.place(value), 0), 1)

    drawn = [_gridline(at(mark), 0, bottom, x.written(mark)) for mark in x.marks]
    drawn.append(
        f'<text class="middle title" x="{label + span / 2}" y="{bottom + 30}">{escape(x.title)}</text>'
    )
    if chance is not None:
        place = f'x1="{at(chance):.1f}" x2="{at(chance):.1f}"'
        drawn.append(f'<line class="line chance" {place} y1="0" y2="{bottom}"/>')
    for i, row in enumerate(rows):
        y = line * (i + 0.5) + 2
        if row.interval is not None:
            low, high = at(row.interval[0]), at(row.interval[1])
            drawn.append(f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>')
        drawn += [
            f'<text class="end" x="{label - 8}" y="{y + 4}">{escape(row.label)}</text>',
            _marker(row.style, at(row.value), y, 4.5),
            f'<text x="{width - 60}" y="{y + 4}">{number(row.value)}</text>',
        ]
    return _svg(width, bottom + _BOTTOM, text, drawn)


def scatter_chart(points: Sequence[tuple[str, float, float, str]], x: Axis, y: Axis, text: str) -> Markup:
    """Draw labelled points: name, x, y and style; leader lines connect points to distant labels."""
    frame = _Frame(x, y, 720, 440, right=120)
    dots = [frame.at(a, b) for _, a, b, _ in points]
    area = Box(_LEFT + 2, _TOP, frame.width, frame.height - _BOTTOM)
    boxes = place_labels(dots, [_LETTER * len(name) for name, *_ in points], area)
    leaders, marks, names = list[str](), list[str](), list[str]()
    for (name, _, _, style), dot, box in zip(points, dots, boxes, strict=True):
        end = box.nearest(dot)
        if math.dist(dot, end) > 10 or abs(end[1] - dot[1]) > 2:
            leaders.append(_segment("leader", dot, end))
        marks.append(_marker(style, *dot, 5))
        # Text that is narrower than its box is aligned to the side of the point.
        left = box.right < dot[0]
        place = f'class="end" x="{box.right - 2:.1f}"' if left else f'x="{box.left + 2:.1f}"'
        names.append(f'<text {place} y="{box.top + 10.5:.1f}">{escape(name)}</text>')
    return frame.svg(text, [*leaders, *marks, *names])


def legend(entries: Sequence[tuple[str, str]]) -> Markup:
    """List styles of lines and dots with their meaning."""
    items = []
    for style, text in entries:
        drawn = _segment(style, (1, 6), (25, 6)) if style.startswith("line") else _marker(style, 13, 6, 4.5)
        sample = f'<svg class="figure" viewBox="0 0 26 12" aria-hidden="true">{drawn}</svg>'
        items.append(f"<li>{sample} {escape(text)}</li>")
    return Markup(f'<ul class="entries">{"".join(items)}</ul>')


def number(value: float) -> str:
    """Format a number with three significant digits and a proper minus."""
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e-0", "e−").replace("e+0", "e").replace("-", "−")
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


class _Frame:
    """The area of a chart, with its axes."""

    def __init__(self, x: Axis, y: Axis, width: int, height: int, right: int = _RIGHT) -> None:
        self.x, self.y, self.width, self.height, self.right = x, y, width, height, right

    def at(self, a: float, b: float) -> Point:
        """Return the position of a point, in the chart's units."""
        across = _LEFT + (self.width - _LEFT - self.right) * self.x.place(a)
        down = self.height - _BOTTOM - (self.height - _TOP - _BOTTOM) * self.y.place(b)
        return across, down

    def svg(self, text: str, drawn: Sequence[str]) -> Markup:
        bottom, end = self.height - _BOTTOM, self.width - self.right
        grid = [
            _gridline(self.at(mark, self.y.low)[0], _TOP, bottom, self.x.written(mark))
            for mark in self.x.marks
        ]
        for mark in self.y.marks:
            down = self.at(self.x.low, mark)[1]
            grid.append(
                f'<line class="grid" x1="{_LEFT}" x2="{end}" y1="{down:.1f}" y2="{down:.1f}"/>'
                f'<text class="end mark" x="{_LEFT - 5}" y="{down + 4:.1f}">{self.y.written(mark)}</text>'
            )
        titles = [
            f'<text class="title" x="2" y="11">{escape(self.y.title)}</text>',
            f'<text class="end title" x="{end}" y="{self.height - 5}">{escape(self.x.title)}</text>',
        ]
        return _svg(self.width, self.height, text, [*grid, *titles, *drawn])


def _gridline(at: float, top: float, bottom: float, mark: str) -> str:
    return (
        f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{bottom}"/>'
        f'<text class="middle mark" x="{at:.1f}" y="{bottom + 16}">{mark}</text>'
    )


def _segment(style: str, a: Point, b: Point) -> str:
    return f'<line class="{style}" x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}"/>'


def _marker(style: str, x: float, y: float, size: float) -> str:
    """Draw a marker: a circle for DualDA and random, a square for others, so that colour is not needed."""
    if style == "dot":
        side = 1.7 * size
        place = f'x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side:.1f}" height="{side:.1f}"'
        return f'<rect class="{style}" {place}/>'
    return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"/>'


def _svg(width: int, height: int, text: str, drawn: Sequence[str]) -> Markup:
    box = f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(text)}"'
    return Markup(f'<svg class="figure" {box}>{"".join(drawn)}</svg>')
