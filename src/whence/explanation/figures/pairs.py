"""The figure of an explanation: the test sample centred, proponents to its right, opponents to its left."""

from __future__ import annotations

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
HEADING = 2.4
LINE, LINES = 0.135, 4


def draw(explanation: Explanation) -> Figure:
    """Draw one explanation, by what its samples are."""
    kind = _Overview if explanation.sample.tokens is None else Texts
    return kind(explanation).canvas.figure


class _Overview:
    """Images or values: a column per pair, the training sample with its map above the pair's test map."""

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
        self._test_sample()
        self._side(why.proponents, 1, BLUE, f"▲ {why.words.side[0]}")
        self._side(why.opponents, -1, ORANGE, f"▼ {why.words.side[1]}")
        if why.pairs:
            self._row_names()
        balance(self.canvas, why, self.left, self.middle, right, bottom + 0.35)
        end = legend(self.canvas, why, MARGIN, right, bottom + 0.95)
        self.canvas.set_height(end + 0.06)

    def _room(self, pairs: tuple[Contribution, ...]) -> float:
        """Return the width of a side: that of its pairs, or of its heading."""
        return max(len(pairs) * self.step, HEADING)

    def _test_sample(self) -> None:
        """Draw the test sample, the logit's map on it, and what the model says."""
        canvas, why, x = self.canvas, self.why, self.middle - LARGE / 2
        heading = canvas.fit(f"test sample: {why.input}" if why.input else "test sample", 1.6, 8, "bold")
        canvas.text(self.middle, TOP - 0.12, heading, size=8, weight="bold", ha="center")
        if why.sample.values is not None and a_bar(why.sample) > 1:
            canvas.text(self.middle, TOP - 0.36, f"a bar: {a_bar(why.sample):,} values", size=6, ha="center")
        canvas.sample(x, TOP, LARGE, why.sample, INK)
        y = TOP + LARGE + 0.12
        canvas.lines(self.middle, y, verdict(why), LINE, room=LARGE + 0.1, size=7, ha="center")
        y = self.rows[2] + TILE - LARGE
        canvas.relevance(x, y, LARGE, why.sample, why.logit_map, self.full["logit"])
        canvas.key(x, self.rows[2] + TILE + 0.04, LARGE, self.full["logit"])
        canvas.text(self.middle, y - 0.07, f"relevance of the {why.words.output}", size=6, ha="center")

    def _side(self, pairs: tuple[Contribution, ...], way: int, colour: str, heading: str) -> None:
        """Draw the pairs of one sign away from the middle, the strongest first."""
        canvas, why = self.canvas, self.why
        start = self.middle + way * (LARGE / 2 + 0.08 + GAP)
        room = self._room(pairs) - GAP
        align = "left" if way > 0 else "right"
        title = f"{heading} “"
        name = canvas.fit(
            why.class_names[why.target], room - canvas.measure(title + "”", 8, "bold"), 8, "bold"
        )
        canvas.text(start, TOP - 0.36, f"{title}{name}”", size=8, weight="bold", color=colour, ha=align)
        if not pairs:
            canvas.text(start, TOP + 0.12, "none", color=GREY, ha=align)
            return
        canvas.wedge(start, start + way * (len(pairs) * self.step - GAP), TOP - 0.14, 0.1, colour)
        for j, pair in enumerate(pairs):
            self._pair(start + way * j * self.step - (TILE if way < 0 else 0), pair, colour)

    def _pair(self, x: float, pair: Contribution, colour: str) -> None:
        canvas, why = self.canvas, self.why
        canvas.relevance(x, self.rows[0], TILE, pair.sample, pair.train_map, self.full["train"])
        canvas.sample(x, self.rows[1], TILE, pair.sample, colour)
        below = self.rows[1] + TILE + 0.1
        caption(canvas, why, pair, x + TILE / 2, below, self.step - 0.02, ha="center")
        canvas.relevance(x, self.rows[2], TILE, why.sample, pair.test_map, self.full["test"])

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
