"""The figure of a text's explanation: tokens marked by relevance, on the training and on the test text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whence.explanation.figures.canvas import Canvas
from whence.explanation.figures.parts import balance, label, legend, verdict
from whence.explanation.passages import GAP, lines, passages
from whence.explanation.record import Contribution, Explanation
from whence.pages.samples import Array, readable
from whence.pages.style import BLUE, GREY, ORANGE, marker, percent, signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, MARGIN, NAMES, GUTTER = 7.6, 0.12, 1.0, 0.2
COLUMN = (WIDTH - 2 * MARGIN - NAMES - GUTTER) / 2
SIZE, LINE = 6.5, 0.145
LINES_OF_TEST, LINES_OF_PAIR = 8, 5
KEY = 0.9
# Words do not fill a line to its end.
FILLED = 0.9


def draw_text(explanation: Explanation) -> Figure:
    """Draw the explanation of a text."""
    return _Texts(explanation).canvas.figure


class _Texts:
    """The test text with the logit's map, then a row per pair: training text, test text."""

    def __init__(self, why: Explanation) -> None:
        self.why, self.canvas = why, Canvas(WIDTH, 1)
        self.full = why.full
        y = self._test_text()
        y = self._side(y, why.proponents, BLUE, "▲ evidence for")
        y = self._side(y, why.opponents, ORANGE, "▼ evidence against")
        balance(self.canvas, why, MARGIN, WIDTH / 2, WIDTH - MARGIN, y + 0.06)
        y = legend(self.canvas, why, MARGIN, WIDTH - MARGIN, y + 0.66)
        self.canvas.set_height(y + 0.06)

    def _test_text(self) -> float:
        """Write the test text and what the model says of it; give the y below."""
        canvas, why, y = self.canvas, self.why, 0.2
        title = "test text   "
        canvas.text(MARGIN, y, title, size=8, weight="bold")
        x = MARGIN + canvas.measure(title, 8, "bold")
        for text, style in verdict(why):
            fitted = canvas.fit(text, 2.4, SIZE, style.get("weight", "normal")) + "   "
            canvas.text(x, y, fitted, size=SIZE, **style)
            x += canvas.measure(fitted, SIZE, style.get("weight", "normal"))
        y += 0.22
        full = self.full.logit
        canvas.text(MARGIN, y, "relevance of the surrogate’s logit on it", size=6, color=GREY)
        canvas.key(WIDTH - MARGIN - KEY, y - 0.07, KEY, full, marker)
        assert why.sample.tokens is not None
        width = WIDTH - 2 * MARGIN
        return (
            self._marked(MARGIN, y + 0.22, width, why.sample.tokens, why.logit_map, full, LINES_OF_TEST)
            + 0.18
        )

    def _side(self, y: float, pairs: tuple[Contribution, ...], colour: str, heading: str) -> float:
        """Write the pairs of one sign, the strongest first; give the y below."""
        canvas, why = self.canvas, self.why
        canvas.rectangle(MARGIN, y - 0.12, WIDTH - 2 * MARGIN, 0.008, colour)
        title = canvas.fit(f"{heading} “{why.class_names[why.target]}”", WIDTH - 2 * MARGIN, 8, "bold")
        canvas.text(MARGIN, y, title, size=8, weight="bold", color=colour)
        if not pairs:
            canvas.text(MARGIN, y + 0.2, "none", color=GREY)
            return y + 0.5
        y += 0.21
        first, second = MARGIN + NAMES, MARGIN + NAMES + COLUMN + GUTTER
        for x, text, full in (
            (first, "relevance on the training text", self.full.train),
            (second, "relevance on the test text", self.full.test),
        ):
            canvas.text(x, y, text, size=6, color=GREY)
            canvas.key(x + COLUMN - KEY, y - 0.07, KEY, full, marker)
        y += 0.24
        for pair in pairs:
            y = self._pair(y, pair, colour)
        return y + 0.1

    def _pair(self, y: float, pair: Contribution, colour: str) -> float:
        canvas, why = self.canvas, self.why
        word = "for" if pair.score > 0 else "against"
        style = "normal" if pair.label == why.target else "italic"
        canvas.text(MARGIN, y, canvas.fit(label(why, pair), NAMES - 0.08), style=style)
        canvas.text(MARGIN, y + 0.135, f"τ = {signed(pair.score)}", weight="bold", color=colour)
        canvas.text(MARGIN, y + 0.26, f"{percent(pair.share)} of all {word}", size=5, color=GREY)
        canvas.text(MARGIN, y + 0.355, f"training #{pair.index}", size=5, color=GREY)
        assert pair.sample.tokens is not None
        assert why.sample.tokens is not None
        x = MARGIN + NAMES
        ends = [
            self._marked(x, y, COLUMN, pair.sample.tokens, pair.train_map, self.full.train, LINES_OF_PAIR),
            self._marked(
                x + COLUMN + GUTTER,
                y,
                COLUMN,
                why.sample.tokens,
                pair.test_map,
                self.full.test,
                LINES_OF_PAIR,
            ),
        ]
        return max(*ends, y + 0.42) + 0.1

    def _marked(
        self, x: float, y: float, width: float, tokens: tuple[str, ...], relevance: Array, full: float, n: int
    ) -> float:
        """Write some n lines of a text, its tokens marked by relevance; give the y below."""
        canvas = self.canvas
        widths = np.array([canvas.measure(readable(token), SIZE) for token in tokens], dtype=np.float32)
        shown = passages(tokens, relevance, widths, n * width * FILLED, canvas.measure(GAP, SIZE))
        colours = marker(relevance, full)
        for line in lines(tokens, shown, width, lambda text: canvas.measure(text, SIZE)):
            for token in line:
                if token.place >= 0 and relevance[token.place] and token.text.strip():
                    canvas.rectangle(x + token.x, y - 0.062, token.width, 0.125, colours[token.place])
                canvas.word(x + token.x, y + 0.035, token.text, SIZE)
            y += LINE
        left_out = len(tokens) - sum(map(len, shown))
        if left_out:
            note = f"… {left_out:,} of {len(tokens):,} tokens left out"
            canvas.text(x, y - 0.01, note, size=5, color=GREY)
            y += 0.1
        return y
