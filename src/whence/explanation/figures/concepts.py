"""The figure of a pair taken apart into concepts."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from whence.explanation.concepts import ConceptExplanation, ConceptPart
from whence.explanation.figures.canvas import Canvas, Line
from whence.explanation.wording import MADE_OF
from whence.pages.samples import Array, Sample
from whence.pages.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PALE_BLUE,
    PALE_ORANGE,
    drawn,
    one_line,
    percent,
    signed,
)

TILE, GAP, LEFT, ROW = 1.0, 0.12, 0.15, 1.2
TEXT_WIDTH = 1.55
TOP = 1.7  # of the first concept: below the pair
WORDS = 5  # of a text that are written for a concept


def draw(why: ConceptExplanation) -> Figure:
    """Draw the pair, and below it a row per concept: its part, its maps and the samples that show it."""
    return _Drawing(why).canvas.figure


class _Drawing:
    def __init__(self, why: ConceptExplanation) -> None:
        self.why = why
        columns = 3 if why.test.image is not None else 1
        samples = max((len(part.samples) for part in why.parts), default=0)
        self.small = (TILE - (columns - 1) * 0.03) / columns
        rows = 3 if columns == 3 else samples
        self.across = -(-samples // rows) if rows else 0
        grid = max(1.0, self.across * (self.small + 0.03)) if columns == 3 else 3.0
        self.maps = LEFT + TEXT_WIDTH
        self.grid = self.maps + 2 * (TILE + GAP) + GAP
        self.canvas = Canvas(max(5.6, self.grid + grid + 0.15), TOP + ROW * len(why.parts) + 0.5)
        self.full = list(why.full.values())
        self._pair()
        for place, part in enumerate(why.parts):
            self._concept(TOP + place * ROW, part)
        self._legend(TOP + ROW * len(why.parts) + 0.08)

    def _pair(self) -> None:
        why, canvas = self.why, self.canvas
        colour = BLUE if why.score > 0 else ORANGE
        target, label = one_line(why.class_names[why.target]), one_line(why.label_text)
        side = MADE_OF[why.label_kind].side[why.score <= 0]
        heading = f"What training sample {why.index} has in common with the test sample"
        canvas.text(LEFT, 0.16, heading, canvas.width - 2 * LEFT, size=8, weight="bold")
        width = self.maps - LEFT - 0.1
        strong = {"weight": "bold", "color": colour}
        lines: list[Line] = [
            (f"{side} “{target}”", {**strong, "room": width}),
            (f"τ = {signed(why.score)}", strong),
            (f"labelled “{label}”", {"room": width}),
            (f"bias {signed(why.bias)}, in no concept", {"color": GREY}),
            (f"{percent(self._share(why.shown))} of τ shown below", {"color": GREY}),
        ]
        canvas.lines(LEFT, 0.48, lines, 0.17, size=7)
        for place, (name, sample) in enumerate((("training sample", why.train), ("test sample", why.test))):
            x = self.maps + place * (TILE + GAP)
            canvas.text(x + TILE / 2, 0.36, name, ha="center", color=GREY, size=6)
            self._sample(x, 0.45, TILE, sample, colour if place == 0 else INK)
        self._shares(self.grid, 0.45)

    def _shares(self, x: float, y: float) -> None:
        """Draw the parts of all concepts in order of size, the shown ones in full colour."""
        why, canvas = self.why, self.canvas
        values = np.sort(why.scores)[::-1]
        width = canvas.width - x - 0.15
        canvas.text(x, y - 0.09, f"parts of all {len(values):,} concepts, sorted", color=GREY, size=6)
        axes = canvas.axes(x, y, width, TILE - 0.15, GREY)
        shown = {part.score for part in why.parts}
        sides = {True: (ORANGE, BLUE), False: (PALE_ORANGE, PALE_BLUE)}
        colours = [sides[v in shown][v > 0] for v in values.tolist()]
        canvas.bars(axes, values.astype(np.float32), float(np.abs(values).max(initial=0)), colours)
        spread = float(np.ptp([0, *values])) or 1.0
        axes.set_ylim(min(0, values[-1]) - 0.04 * spread, max(0, values[0]) + 0.04 * spread)
        total = float(values.sum())
        words = f"sum {signed(total)} = τ − bias" if why.is_basis else f"sum {signed(total)}, no basis"
        canvas.text(x, y + TILE - 0.06, words, width, size=6)

    def _concept(self, y: float, part: ConceptPart) -> None:
        why, canvas = self.why, self.canvas
        colour = BLUE if part.score > 0 else ORANGE
        lines: list[Line] = [
            (part.name, {"room": TEXT_WIDTH - 0.1, "weight": "bold", "size": 7.5}),
            (f"{signed(part.score)} of τ", {"weight": "bold", "color": colour}),
            (f"that is {percent(self._share(part.score))}", {"color": colour}),
            (f"training sample shows {signed(part.train_activation)}", {"color": GREY, "size": 5.5}),
            (f"test sample shows {signed(part.test_activation)}", {"color": GREY, "size": 5.5}),
        ]
        canvas.lines(LEFT, y + 0.2, lines, 0.16, size=6.5)
        sides = ((why.train, part.train_map, self.full[0]), (why.test, part.test_map, self.full[1]))
        for place, (sample, relevance, full) in enumerate(sides):
            self._map(self.maps + place * (TILE + GAP), y, sample, relevance, full)
        for place, sample in enumerate(part.samples):
            row, column = divmod(place, self.across) if why.test.image is not None else (place, 0)
            step = self.small + 0.03 if why.test.image is not None else ROW / max(len(part.samples), 1)
            self._sample(self.grid + column * step, y + row * step, self.small, sample, GREY)

    def _map(self, x: float, y: float, sample: Sample, relevance: Array, full: float) -> None:
        canvas = self.canvas
        if sample.tokens is None:
            canvas.relevance(x, y, TILE, sample, relevance, full)
            return
        relevance = drawn(sample, relevance)
        for row, j in enumerate(np.argsort(-np.abs(relevance), kind="stable")[:WORDS]):
            line, colour = y + 0.1 + row * 0.17, BLUE if relevance[j] > 0 else ORANGE
            canvas.text(x, line, sample.tokens[j].strip(), TILE - 0.42, size=6)
            score = signed(float(relevance[j]))
            canvas.text(x + TILE, line, score, size=5.5, color=colour, ha="right")

    def _sample(self, x: float, y: float, size: float, sample: Sample, colour: str) -> None:
        canvas = self.canvas
        if sample.tokens is None:
            canvas.sample(x, y, size, sample, colour)
            return
        small = size != TILE
        width = canvas.width - x - 0.15 if small else size
        text, last = one_line("".join(sample.tokens)), 0 if small else 5
        for line in range(last + 1):
            part = canvas.fit(text, width, 5.5)
            begun = part.removesuffix("…") if part != text else part
            canvas.text(x, y + 0.08 + line * 0.13, part if line == last else begun, size=5.5)
            text = text[len(begun) :].lstrip()

    def _legend(self, y: float) -> None:
        why, canvas = self.why, self.canvas
        for place, full in enumerate(self.full):
            x = self.maps + place * (TILE + GAP)
            where = ("on the training sample", "on the test sample")[place]
            canvas.text(x + TILE / 2, y, where, ha="center", size=6)
            canvas.key(x, y + 0.09, TILE, full)
        lines: list[Line] = [
            (why.among, {}),
            ("that show the concept most", {}),
            (f"maps by {why.method}", {"color": GREY}),
        ]
        canvas.lines(self.grid, y, lines, 0.13, room=canvas.width - self.grid - 0.15, size=6)
        raises, lowers = MADE_OF[why.label_kind].colours
        canvas.text(LEFT, y, f"blue: {raises}", color=BLUE, size=6)
        canvas.text(LEFT, y + 0.14, f"orange: {lowers}", color=ORANGE, size=6)

    def _share(self, score: float) -> float:
        whole = self.why.score
        return score / whole if whole else 0.0
