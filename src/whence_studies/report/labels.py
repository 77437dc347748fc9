"""Placement of labels for points, so that no label covers another label, a point, or a leader line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

Point = tuple[float, float]
_LINE, _GAP = 13.0, 9.0  # height of a line of text; distance from a point to its label


class Box(NamedTuple):
    """A rectangle: its left, upper, right and lower edge."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Return whether two boxes overlap."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def holds(self, point: Point) -> bool:
        """Return whether a point is inside."""
        return self.left < point[0] < self.right and self.top < point[1] < self.bottom

    def nearest(self, point: Point) -> Point:
        """Return the box's nearest point."""
        return (min(max(point[0], self.left), self.right), min(max(point[1], self.top), self.bottom))


def place_labels(points: Sequence[Point], widths: Sequence[float], area: Box) -> list[Box]:
    """Return a box for the label of each point, as near to the point as possible.

    Points in dense regions are placed first. A label's leader is the line from its point to the box's nearest
    point; it crosses no label and no other leader, and keeps a distance from other points. If the area is too
    small for that, a label is placed where it covers nothing, else next to its point. Labels are at most as
    wide as the area.
    """
    boxes: dict[int, Box] = {}
    dots = [Box(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    crowd = [sum(math.dist(p, q) < 60 for q in points) for p in points]
    for i in sorted(range(len(points)), key=lambda i: -crowd[i]):
        leaders = [_leader(points[j], box) for j, box in boxes.items()]
        width = min(widths[i], area.right - area.left)
        choices = sorted(_choices(points[i], width, area), key=partial(_far, points[i]))
        boxes[i] = _choose(choices, points[i], list(boxes.values()), dots, leaders)
    return [boxes[i] for i in range(len(points))]


def _choose(
    choices: list[Box], point: Point, boxes: list[Box], dots: list[Box], leaders: list[list[Point]]
) -> Box:
    """Return the first box that covers nothing, preferably with a clear leader."""
    fallback = None
    for box in choices:
        covers = any(box.meets(taken) for taken in (*dots, *boxes))
        if covers or any(box.holds(place) for leader in leaders for place in leader):
            continue
        if _is_clear(point, box, boxes, dots, leaders):
            return box
        fallback = fallback or box
    return fallback or choices[0]


def _choices(point: Point, width: float, area: Box) -> Iterator[Box]:
    """Yield boxes inside the area: right, left, above and below, at increasing distances."""
    x, y = point
    aside = [step * 20.0 for step in range(11)]
    starts = [x + _GAP + d for d in aside] + [x - _GAP - width - d for d in aside]
    starts += [x - width / 2, area.left]
    starts = [left for left in starts if area.left <= left and left + width <= area.right]
    for top in (y - 7 + step * _LINE / 2 for step in range(-25, 26)):
        if area.top <= top and top + _LINE <= area.bottom:
            yield from (Box(left, top, left + width, top + _LINE) for left in starts)


def _far(point: Point, box: Box) -> float:
    """Return the cost of a box: its distance; right is preferred to left, and both to above."""
    near = box.nearest(point)
    side = 0.0 if box.left > point[0] else 1.0 if box.right < point[0] else 3.0
    return math.dist(point, near) + side + 0.3 * abs((box.top + box.bottom) / 2 - point[1])


def _leader(point: Point, box: Box) -> list[Point]:
    """Return points along the line from a point to its label."""
    end = box.nearest(point)
    return along(point, end, max(2, int(math.dist(point, end) / 3)))


def along(a: Point, b: Point, n: int) -> list[Point]:
    """Return points from a to b, in n steps."""
    return [(a[0] + k / n * (b[0] - a[0]), a[1] + k / n * (b[1] - a[1])) for k in range(n + 1)]


def _is_clear(point: Point, box: Box, boxes: list[Box], dots: list[Box], leaders: list[list[Point]]) -> bool:
    """Return whether a label's leader crosses nothing; dots that overlap the point are ignored."""
    line = _leader(point, box)
    inside = [dot for dot in dots if not dot.holds(point)]
    if any(obstacle.holds(place) for obstacle in (*boxes, *inside) for place in line):
        return False
    return not any(_cross(line[0], line[-1], other[0], other[-1]) for other in leaders)


def _cross(a: Point, b: Point, c: Point, d: Point) -> bool:
    """Return whether the segments ab and cd cross."""

    def side(p: Point, q: Point, r: Point) -> float:
        return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])

    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0
