"""The figure of an explanation: the test sample centred, proponents to its right, opponents to its left."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from whence.explanation.evidence import Contribution
from whence.explanation.figures.canvas import Canvas
from whence.explanation.figures.parts import balance, caption, legend, verdict
from whence.explanation.figures.text import Texts
from whence.explanation.record import Explanation
from whence.pages.style import BLUE, GREY, INK, ORANGE, a_bar

MARGIN, NAMES, GAP = 0.12, 0.78, 0.09
TILE, LARGE = 0.78, 1.15
TOP = 0.52
CAPTION = 0.62
HEADING, CONTRAST = 2.4, 3.6
LINE, LINES = 0.135, 4
FEATURES = 7  # of a table's row


def draw(explanation: Explanation) -> Figure:
    """Draw one explanation, by what its samples are."""
    kind = _Overview if explanation.sample.tokens is None else Texts
    return kind(explanation).canvas.figure


def _features(why: Explanation) -> list[int]:
    """Choose the features of a table to show: the most relevant of the shown maps, in their own order."""
    if why.sample.names is None:
        return []
    maps = [map_ for pair in why.pairs for map_ in (pair.test_map, pair.train_map)]
    largest = np.max([np.abs(map_) / (np.abs(map_).max() or 1) for map_ in (why.logit_map, *maps)], axis=0)
    return sorted(np.argsort(-largest, kind="stable")[:FEATURES].tolist())


class _Overview:
    """Images, values or rows of a table: a column per pair, the training sample above the pair's test map."""

    def __init__(self, why: Explanation) -> None:
        self.why = why
        self.step = TILE + GAP
        against, in_favour = (self._room(side) for side in (why.opponents, why.proponents))
        self.left = MARGIN + NAMES
        self.middle = self.left + against + 0.08 + LARGE / 2
        right = self.middle + LARGE / 2 + 0.08 + in_favour
        more = LINE * max(0, len(verdict(why)) - LINES)  # what the model says must end above its map
        self.rows = (TOP, TOP + TILE + 0.05, TOP + 2 * TILE + 0.05 + CAPTION + more)
        bottom = self.rows[2] + TILE
        self.canvas = Canvas(right + MARGIN, bottom + 1.62)
        self.full = why.full
        self.features = _features(why)
        self._test_sample()
        self._side(why.proponents, 1, BLUE, f"▲ {why.words.side[0]}")
        self._side(why.opponents, -1, ORANGE, f"▼ {why.words.side[1]}")
        if why.pairs:
            self._row_names()
        balance(self.canvas, why, self.left, self.middle, right, bottom + 0.35)
        end = legend(self.canvas, why, MARGIN, right, bottom + 1.02)
        self.canvas.set_height(end + 0.06)

    def _room(self, pairs: tuple[Contribution, ...]) -> float:
        """Return the width of a side: that of its pairs, or of its heading."""
        return max(len(pairs) * self.step, HEADING if self.why.against is None else CONTRAST)

    def _test_sample(self) -> None:
        """Draw the test sample, the logit's map on it, and what the model says."""
        canvas, why, x = self.canvas, self.why, self.middle - LARGE / 2
        heading = canvas.fit(f"test sample: {why.input}" if why.input else "test sample", 1.6, 8, "bold")
        canvas.text(self.middle, TOP - 0.12, heading, size=8, weight="bold", ha="center")
        if why.sample.names is not None:
            n = len(why.sample.names)
            if n > FEATURES:
                note = f"the {FEATURES} most relevant of {n:,} features"
                canvas.text(self.middle, TOP - 0.36, note, size=6, ha="center")
        elif why.sample.values is not None and a_bar(why.sample) > 1:
            canvas.text(self.middle, TOP - 0.36, f"a bar: {a_bar(why.sample):,} values", size=6, ha="center")
        canvas.sample(x, TOP, LARGE, why.sample, INK, self.features)
        y = TOP + LARGE + 0.12
        canvas.lines(self.middle, y, verdict(why), LINE, room=LARGE + 0.1, size=7, ha="center")
        y = self.rows[2] + TILE - LARGE
        canvas.relevance(x, y, LARGE, why.sample, why.logit_map, self.full["logit"], self.features)
        canvas.key(x, self.rows[2] + TILE + 0.04, LARGE, self.full["logit"])
        canvas.text(self.middle, y - 0.07, f"relevance of the {why.words.output}", size=6, ha="center")

    def _side(self, pairs: tuple[Contribution, ...], way: int, colour: str, heading: str) -> None:
        """Draw the pairs of one sign away from the middle, the strongest first."""
        canvas, why = self.canvas, self.why
        start = self.middle + way * (LARGE / 2 + 0.08 + GAP)
        room = self._room(pairs) - GAP
        align = "left" if way > 0 else "right"
        if why.against is None:
            rest = room - canvas.measure(f"{heading} “”", 8, "bold")
            title = f"{heading} “{canvas.fit(why.class_names[why.target], rest, 8, 'bold')}”"
        else:
            title = canvas.fit(f"{heading} {why.claimed[way < 0]}", room, 8, "bold")
        canvas.text(start, TOP - 0.36, title, size=8, weight="bold", color=colour, ha=align)
        if not pairs:
            canvas.text(start, TOP + 0.12, "none", color=GREY, ha=align)
            return
        canvas.wedge(start, start + way * (len(pairs) * self.step - GAP), TOP - 0.14, 0.1, colour)
        for j, pair in enumerate(pairs):
            self._pair(start + way * j * self.step - (TILE if way < 0 else 0), pair, colour)

    def _pair(self, x: float, pair: Contribution, colour: str) -> None:
        canvas, why = self.canvas, self.why
        full, features = self.full, self.features
        canvas.relevance(x, self.rows[0], TILE, pair.sample, pair.train_map, full["train"], features)
        canvas.sample(x, self.rows[1], TILE, pair.sample, colour, self.features)
        below = self.rows[1] + TILE + 0.1
        caption(canvas, why, pair, x + TILE / 2, below, self.step - 0.02, ha="center")
        canvas.relevance(x, self.rows[2], TILE, why.sample, pair.test_map, self.full["test"], self.features)

    def _row_names(self) -> None:
        """Name the rows on the left, with the colour scale of each that has one."""
        for y, lines, full in (
            (self.rows[0], ("relevance on", "the training", "sample"), self.full["train"]),
            (self.rows[1], ("training", "sample"), None),
            (self.rows[2], ("relevance on", "the test", "sample"), self.full["test"]),
        ):
            for i, text in enumerate(lines):
                self.canvas.text(MARGIN, y + 0.08 + 0.115 * i, text, size=6, color=INK)
            if full is not None:
                self.canvas.key(MARGIN, y + 0.5, NAMES - 0.16, full)
