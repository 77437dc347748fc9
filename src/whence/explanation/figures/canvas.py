"""A sheet to draw on in inches from its top left corner."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.patches import PathPatch, Polygon, Rectangle
from matplotlib.textpath import TextPath, text_to_path
from matplotlib.transforms import Affine2D

from whence.pages.samples import Array, Picture, Sample
from whence.pages.style import BLUE, GREY, INK, ORANGE, drawn, heat, heights, one_line

# The first comes with matplotlib and has all signs that are used here; the others know more scripts.
FAMILIES = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK SC",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Microsoft YaHei",
)
UNKNOWN = "▯"
FRAME = "#BBBBBB"
_LONGEST = 400  # letters of a line: more than any sheet here is wide

Colours = Callable[[Array, float], Picture]
Line = tuple[str, dict[str, Any]]
"""A line of text with what it has of a style of its own."""


class Canvas:
    """A figure in inches, y down, with text whose width is known before it is drawn.

    Attributes
    ----------
    figure : of matplotlib, bound to no window and no global state
    width, height : in inches
    """

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height), dpi=200, facecolor="white")
        self._down = Affine2D()
        self._inches = self._down + self.figure.dpi_scale_trans
        self._axes: list[tuple[Axes, tuple[float, float, float, float]]] = []
        self.width = width
        self.set_height(height)

    def set_height(self, height: float) -> None:
        """Make the sheet longer or shorter at its bottom."""
        self.height = height
        self.figure.set_size_inches(self.width, height)
        self._down.clear().scale(1, -1).translate(0, height)
        for axes, box in self._axes:
            axes.set_position(self._part(*box))

    def text(self, x: float, y: float, text: str, room: float | None = None, **style: Any) -> None:
        """Write one line, centred on y, shortened to its room; ``style`` is that of matplotlib."""
        plain: dict[str, Any] = {"parse_math": False, "usetex": False}  # a dollar sign in a name is a dollar
        style = plain | {"size": 6.5, "color": INK, "va": "center", "ha": "left"} | style
        size, weight = style.pop("size"), style.pop("weight", "normal")
        font = _font(size, weight, style.pop("style", "normal"))
        if room is not None:
            text = self.fit(text, room, size, weight)
        self.figure.text(x, y, drawable(text), fontproperties=font, transform=self._inches, **style)

    def lines(self, x: float, y: float, lines: Sequence[Line], step: float, **style: Any) -> None:
        """Write lines below each other, each with a style of its own."""
        for i, (text, special) in enumerate(lines):
            self.text(x, y + i * step, text, **(style | special))

    @staticmethod
    @functools.lru_cache(10_000)
    def measure(text: str, size: float = 6.5, weight: str = "normal", style: str = "normal") -> float:
        """Return the width of a text in inches, blanks at its ends included."""
        font = _font(size, weight, style)
        # Blanks at an end have no ink, so the text is put between letters.
        long, short = (
            text_to_path.get_text_width_height_descent(part, font, False)[0]
            for part in (f"x{drawable(text)}x", "xx")
        )
        return (long - short) / 72

    def fit(self, text: str, width: float, size: float = 6.5, weight: str = "normal") -> str:
        """Shorten a text to one line of a width."""
        whole = one_line(text)
        text = whole[:_LONGEST]
        if text == whole and self.measure(text, size, weight) <= width:
            return text
        fits = bisect_right(
            range(len(text) + 1), width, lo=1, key=lambda n: self.measure(text[:n] + "…", size, weight)
        )
        return text[: fits - 1].rstrip() + "…"

    def word(self, x: float, y: float, text: str, size: float) -> None:
        """Write a text as outlines, on the line y: as wide as measured, at every resolution.

        Text that is no outline has its letters moved to whole pixels, and then words run into each other.
        """
        font = _font(size, "normal", "normal")
        if not len(text_to_path.get_text_path(font, drawable(text))[0]):
            return  # blanks have no outline
        outlines = TextPath((0, 0), drawable(text), prop=font)
        place = Affine2D().scale(1 / 72, -1 / 72).translate(x, y) + self._inches
        patch = PathPatch(outlines, transform=place, facecolor=INK, linewidth=0, snap=False, label=text)
        self.figure.add_artist(patch)

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Any) -> None:
        """Fill a rectangle, given by its top left corner."""
        patch = Rectangle((x, y), width, height, transform=self._inches, facecolor=colour, linewidth=0)
        self.figure.add_artist(patch)

    def wedge(self, start: float, end: float, y: float, height: float, colour: str) -> None:
        """Draw an arrow that thins from its start to its head."""
        way = 1 if end > start else -1
        neck, thin = end - way * 0.09, height * 0.14
        corners = [
            (start, y - height / 2),
            (neck, y - thin),
            (neck, y - 0.045),
            (end, y),
            (neck, y + 0.045),
            (neck, y + thin),
            (start, y + height / 2),
        ]
        self.figure.add_artist(Polygon(corners, transform=self._inches, facecolor=colour, linewidth=0))

    def axes(self, x: float, y: float, width: float, height: float, colour: str, line: float = 1) -> Axes:
        """Make axes without ticks, framed in a colour."""
        made = self.figure.add_axes(self._part(x, y, width, height))
        self._axes.append((made, (x, y, width, height)))
        made.set(xticks=[], yticks=[])
        for spine in made.spines.values():
            spine.set(color=colour, linewidth=line)
        return made

    def _part(self, x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
        """Return a box as a part of the sheet, y up."""
        return (
            x / self.width,
            1 - (y + height) / self.height,
            width / self.width,
            height / self.height,
        )

    def key(self, x: float, y: float, width: float, full: float, colours: Colours = heat) -> None:
        """Draw the colours of relevance from −full to +full, with what the full colour stands for."""
        n = 41
        for i, colour in enumerate(colours(np.linspace(-1, 1, n, dtype=np.float32)[None], 1)[0]):
            # Each overlaps the next, or viewers show the ground between them.
            self.rectangle(x + i * width / n, y, min(1.5, n - i) * width / n, 0.06, colour)
        value = f"±{full:.3g}" if full else "all 0"
        self.text(x + width / 2, y + 0.125, value, ha="center", size=5, color=GREY)

    def sample(
        self, x: float, y: float, size: float, sample: Sample, colour: str, features: Sequence[int] = ()
    ) -> None:
        """Draw a picture or values in a square; of a table's row the chosen ``features`` with their names."""
        if features:
            self._row(x, y, size, sample, features, colour)
            return
        axes = self.axes(x, y, size, size, colour)
        if sample.image is not None:
            axes.imshow(sample.image, cmap="gray", vmin=0, vmax=1, interpolation="antialiased")
        else:
            values = heights(sample)
            self.bars(axes, values, float(np.abs(values).max(initial=0)), GREY)

    def relevance(
        self,
        x: float,
        y: float,
        size: float,
        sample: Sample,
        relevance: Array,
        full: float,
        features: Sequence[int] = (),
    ) -> None:
        """Draw a map on a picture or on values in a square; ``full`` is the relevance of the full colour."""
        if features:
            self._row(x, y, size, sample, features, FRAME, relevance, full)
            return
        axes, values = self.axes(x, y, size, size, FRAME, 0.6), drawn(sample, relevance)
        if sample.image is not None:
            axes.imshow(heat(values, full, sample.image), interpolation="antialiased")
        else:
            self.bars(axes, values, full, np.where(values > 0, BLUE, ORANGE))

    def _row(
        self,
        x: float,
        y: float,
        size: float,
        sample: Sample,
        features: Sequence[int],
        colour: str,
        relevance: Array | None = None,
        full: float = 0.0,
    ) -> None:
        """Write a table row's features by name and value in a square, or draw their relevance as bars."""
        assert sample.names is not None
        assert sample.values is not None
        self.axes(x, y, size, size, colour, 1 if relevance is None else 0.6)
        pitch, zero, half = size / len(features), x + 0.77 * size, 0.2 * size
        for i, j in enumerate(features):
            middle = y + (i + 0.5) * pitch
            self.text(x + 0.03, middle, sample.names[j], 0.52 * size, size=5)
            if relevance is None:
                self.text(
                    x + size - 0.03, middle, f"{sample.values[j]:.3g}".replace("-", "−"), size=5, ha="right"
                )
            elif full:
                part = float(relevance[j]) / full
                self.rectangle(zero, middle - pitch / 4, half * part, pitch / 2, BLUE if part > 0 else ORANGE)
        if relevance is not None:
            self.rectangle(zero - 0.006, y + 0.02, 0.012, size - 0.04, GREY)

    def bars(self, axes: Axes, values: Array, full: float, colours: Any) -> None:
        """Draw values as bars up and down from 0, between −full and +full."""
        axes.bar(np.arange(len(values)), values, width=1 if len(values) > 40 else 0.8, color=colours)
        axes.axhline(0, color=GREY, linewidth=0.4)
        axes.set(xlim=(-0.7, len(values) - 0.3), ylim=(-1.05 * (full or 1), 1.05 * (full or 1)))


def drawable(text: str) -> str:
    """Replace the characters that no font here has, such as those of other scripts and control characters."""
    known = _characters()
    return "".join(c if ord(c) in known else UNKNOWN for c in text)


@functools.cache
def _families() -> tuple[str, ...]:
    installed = set(fontManager.get_font_names())
    return tuple(name for name in FAMILIES if name in installed)


@functools.cache
def _characters() -> frozenset[int]:
    return frozenset().union(*(get_font(findfont(name)).get_charmap() for name in _families()))


@functools.cache
def _font(size: float, weight: str, style: Literal["normal", "italic"]) -> FontProperties:
    return FontProperties(family=list(_families()), size=size, weight=weight, style=style)
