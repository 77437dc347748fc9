"""The figure of a text's explanation: tokens marked by relevance, on the training and on the test text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from whence.core.arrays import Mask
from whence.explanation.evidence import Contribution
from whence.explanation.figures.canvas import Canvas
from whence.explanation.figures.parts import balance, caption, legend, verdict
from whence.explanation.record import Explanation
from whence.pages.samples import Array, Sample
from whence.pages.style import BLUE, GREY, ORANGE, drawn, marker, signed, unwritten
from whence.pages.texts import headline, readable

WIDTH, MARGIN, NAMES, GUTTER = 7.6, 0.12, 1.0, 0.2
COLUMN = (WIDTH - 2 * MARGIN - NAMES - GUTTER) / 2
SIZE, LINE = 6.5, 0.145
LINES_OF_TEST, LINES_OF_PAIR = 8, 5
KEY = 0.9
# Words do not fill a line to its end.
FILLED = 0.9
# Tokens that are kept to either side of a relevant one.
AROUND = 4
# A gap of so few tokens is shown: the sign for it would take as much room.
SHORT = 3
GAP = " …"
# Relevance on tokens that are not part of the text is reported from this share of all relevance.
REPORTED = 0.1


class Texts:
    """The test text with the logit's map, then a row per pair: training text, test text."""

    def __init__(self, why: Explanation) -> None:
        self.why, self.canvas = why, Canvas(WIDTH, 1)
        self.full = why.full
        y = self._test_text()
        y = self._side(y, why.proponents, BLUE, f"▲ {why.words.side[0]}")
        y = self._side(y, why.opponents, ORANGE, f"▼ {why.words.side[1]}")
        balance(self.canvas, why, MARGIN, WIDTH / 2, WIDTH - MARGIN, y + 0.06)
        y = legend(self.canvas, why, MARGIN, WIDTH - MARGIN, y + 0.73)
        self.canvas.set_height(y + 0.06)

    def _test_text(self) -> float:
        """Write the test text and what the model says of it; return the y below."""
        canvas, why, y = self.canvas, self.why, 0.2
        title = canvas.fit(f"test text: {why.input}" if why.input else "test text", 2, 8, "bold") + "   "
        canvas.text(MARGIN, y, title, size=8, weight="bold")
        x = MARGIN + canvas.measure(title, 8, "bold")
        for text, style in verdict(why):
            fitted = canvas.fit(text, 2.4, SIZE, style.get("weight", "normal")) + "   "
            canvas.text(x, y, fitted, size=SIZE, **style)
            x += canvas.measure(fitted, SIZE, style.get("weight", "normal"))
        y += 0.22
        full = self.full["logit"]
        canvas.text(MARGIN, y, f"relevance of the surrogate’s {why.words.output} on it", size=6, color=GREY)
        canvas.key(WIDTH - MARGIN - KEY, y - 0.07, KEY, full, marker)
        width = WIDTH - 2 * MARGIN
        return self._marked(MARGIN, y + 0.22, width, why.sample, why.logit_map, full, LINES_OF_TEST) + 0.18

    def _side(self, y: float, pairs: tuple[Contribution, ...], colour: str, heading: str) -> float:
        """Write the pairs of one sign, the strongest first; return the y below."""
        canvas, why = self.canvas, self.why
        canvas.rectangle(MARGIN, y - 0.12, WIDTH - 2 * MARGIN, 0.008, colour)
        title = f"{heading} {why.claimed[colour == ORANGE]}"
        canvas.text(MARGIN, y, title, WIDTH - 2 * MARGIN, size=8, weight="bold", color=colour)
        if not pairs:
            canvas.text(MARGIN, y + 0.2, "none", color=GREY)
            return y + 0.5
        y += 0.21
        first, second = MARGIN + NAMES, MARGIN + NAMES + COLUMN + GUTTER
        for x, text, full in (
            (first, "relevance on the training text", self.full["train"]),
            (second, "relevance on the test text", self.full["test"]),
        ):
            canvas.text(x, y, text, size=6, color=GREY)
            canvas.key(x + COLUMN - KEY, y - 0.07, KEY, full, marker)
        y += 0.24
        for pair in pairs:
            y = self._pair(y, pair)
        return y + 0.1

    def _pair(self, y: float, pair: Contribution) -> float:
        why = self.why
        end = caption(self.canvas, why, pair, MARGIN, y, NAMES - 0.08, ha="left") + 0.085
        x = MARGIN + NAMES
        for sample, relevance, full in (
            (pair.sample, pair.train_map, self.full["train"]),
            (why.sample, pair.test_map, self.full["test"]),
        ):
            end = max(end, self._marked(x, y, COLUMN, sample, relevance, full, LINES_OF_PAIR))
            x = x + COLUMN + GUTTER
        return end + 0.1

    def _marked(
        self, x: float, y: float, width: float, sample: Sample, relevance: Array, full: float, n: int
    ) -> float:
        """Write some n lines of a text, its tokens marked by relevance; return the y below."""
        canvas, tokens, outside = self.canvas, sample.tokens, unwritten(sample, relevance)
        assert tokens is not None
        relevance = drawn(sample, relevance)
        widths = np.array([canvas.measure(readable(token), SIZE) for token in tokens], dtype=np.float32)
        shown = passages(tokens, relevance, widths, n * width * FILLED, canvas.measure(GAP, SIZE))
        colours = marker(relevance, full)
        for line in lines(tokens, shown, width, lambda text: canvas.measure(text, SIZE)):
            for token in line:
                if token.place >= 0 and relevance[token.place] and token.text.strip():
                    canvas.rectangle(x + token.x, y - 0.062, token.width, 0.125, colours[token.place])
                canvas.word(x + token.x, y + 0.035, token.text, SIZE)
            y += LINE
        written = [bool(token) for token in tokens]
        left_out = sum(written) - sum(written[i] for run in shown for i in run)
        notes = [f"… {left_out:,} of {sum(written):,} tokens left out"] if left_out else []
        if abs(outside) > REPORTED * np.abs(relevance).sum():
            notes.append(f"{signed(outside)} on the model’s own tokens")
        if notes:
            canvas.text(x, y - 0.01, "; ".join(notes), size=5, color=GREY)
            y += 0.1
        return y


class Placed(NamedTuple):
    """A token on a line: where it begins, its width, its text, its place among the tokens (−1 for a gap)."""

    x: float
    width: float
    text: str
    place: int


def passages(tokens: Sequence[str], relevance: Array, widths: Array, room: float, gap: float) -> list[range]:
    """Choose the passages to show: around the most relevant tokens, until the room is used up.

    Parameters
    ----------
    tokens, relevance, widths : each token, its relevance and its width
    room, gap : the width that all passages may have together, and that of the sign for a gap
    """
    n = len(tokens)
    if widths.sum() <= room:
        return [range(n)]
    begins = np.array([i == 0 or readable(token).startswith((" ", "↵")) for i, token in enumerate(tokens)])
    kept = np.zeros(n, dtype=bool)
    for i in np.argsort(-np.abs(relevance), kind="stable").tolist():
        start, stop = max(0, i - AROUND), min(n, i + AROUND + 1)
        while not begins[start]:
            start -= 1
        while stop < n and not begins[stop]:
            stop += 1
        wider = kept.copy()
        wider[start:stop] = True
        for run in _runs(~wider):
            wider[run.start : run.stop] |= len(run) <= SHORT
        if kept.any() and widths[wider].sum() + gap * len(_runs(~wider)) > room:
            break
        kept = wider
    return _runs(kept)


def lines(
    tokens: Sequence[str], shown: Sequence[range], width: float, measure: Callable[[str], float]
) -> list[list[Placed]]:
    """Break passages into lines: below the headline, and between words that are no longer than a line."""
    rows: list[list[Placed]] = [[]]
    x, head = 0.0, headline(tokens)
    for word in _words(tokens, shown):
        after = head and word[0][0] == head  # the first word below the headline
        if rows[-1] and (after or x + sum(measure(text) for _, text in word) > width):
            rows, x = [*rows, []], 0.0
        for index, text in word:
            size = measure(text)
            lead = measure(" ") if text.startswith(" ") else 0.0
            if x and x + size > width:
                rows, x = [*rows, []], 0.0
            x += lead if rows[-1] else 0.0
            rows[-1].append(Placed(x, size - lead, text[1:] if lead else text, index))
            x += size - lead
    return rows


def _words(tokens: Sequence[str], shown: Sequence[range]) -> list[list[tuple[int, str]]]:
    """Group the tokens of passages into words, with a sign for each gap."""
    words: list[list[tuple[int, str]]] = []
    end = 0
    for run in shown:
        if run.start > end:
            words.append([(-1, GAP)])
        for i in run:
            text = readable(tokens[i])
            if text.startswith(" ") or i == run.start or not words:
                words.append([])
            words[-1].append((i, text))
        end = run.stop
    if end < len(tokens):
        words.append([(-1, GAP)])
    return words


def _runs(mask: Mask) -> list[range]:
    """Return the stretches where a mask holds."""
    steps = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [range(a, b) for a, b in zip(steps[::2].tolist(), steps[1::2].tolist(), strict=True)]
