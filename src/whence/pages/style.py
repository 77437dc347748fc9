"""The style of explanations in figures and pages: colours of relevance, formats of numbers and names."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from whence.pages.samples import Array, Picture, Sample
from whence.pages.texts import words_of

BLUE, ORANGE = "#0072B2", "#D55E00"  # distinguishable with any common colour vision deficiency
PALE_BLUE, PALE_ORANGE = "#B9D7E8", "#F3CDB2"
INK, GREY = "#1A1A1A", "#5F5F5F"

# Relevance above this quantile saturates, so that single bright pixels do not hide the others.
SEEN = 0.995
PAPER = 0.975
BARS = 120
LEVELS = 10
"""Steps of a token's colour: the pages' policy forbids inline styles."""
LIGHT, DARK = "#FFFFFF", "#1F2125"


def signed(score: float) -> str:
    """Format a score with its sign and three significant digits: +1.23, −0.0450."""
    return f"{score:+#.3g}".replace("-", "−").rstrip(".")


def percent(share: float) -> str:
    """Format a share in per cent; only exact values are shown as 100 % and 0 %.

    It has a non-breaking space before the sign.
    """
    if 0 < share < 0.0005:
        return "<0.1\u00a0%"
    if 0.9995 <= share < 1:
        return ">99.9\u00a0%"
    return f"{100 * share:.1f}\u00a0%"


def one_line(name: str) -> str:
    """Write a name on one line."""
    return " ".join(name.split())


def ends(name: str) -> str:
    """Shorten a name of more than 60 letters to its ends."""
    return name if len(name) <= 60 else f"{name[:40]}…{name[-19:]}"


def plane(relevance: Array) -> Array:
    """Sum a map (…, height, width) over colours."""
    summed: Array = relevance.reshape(-1, *relevance.shape[-2:]).sum(axis=0)
    return summed


def drawn(sample: Sample, relevance: Array) -> Array:
    """Return a map for drawing: (height, width) for images, sums of ``a_bar`` values otherwise.

    For texts it has one value per token, 0 for special tokens.
    """
    if sample.image is not None:
        return plane(relevance)
    if sample.tokens is not None:
        written = np.array([bool(token) for token in sample.tokens], dtype=np.float32)
        return written * relevance.ravel()
    sums: Array = _binned(relevance).sum(axis=1)
    return sums


def unwritten(sample: Sample, relevance: Array) -> float:
    """Return the relevance of a map on special tokens, which are not shown."""
    if sample.tokens is None:
        return 0.0
    return float(sum(relevance.ravel()[[not token for token in sample.tokens]].tolist()))


def strongest(sample: Sample, relevance: Array, first: int, n: int = 4) -> list[tuple[str, float]]:
    """Return the n most relevant words of a text from a token on, of either sign, with their relevance.

    A repeated word counts by its sum, in the spelling of its first occurrence.
    """
    assert sample.tokens is not None
    spelled: dict[str, str] = {}
    sums: dict[str, float] = {}
    for word in words_of(sample.tokens):
        text = re.sub(r"^\W+|\W+$", "", "".join(sample.tokens[i] for i in word))
        if text and word.start >= first:
            key = text.casefold()
            spelled.setdefault(key, text)
            sums[key] = sums.get(key, 0.0) + float(sum(relevance[i] for i in word))
    order = sorted(sums, key=lambda key: -abs(sums[key]))[:n]
    return [(spelled[key], sums[key]) for key in order]


def heights(sample: Sample) -> Array:
    """Return values for drawing: the one farthest from 0 of each ``a_bar`` values."""
    assert sample.values is not None
    bins = _binned(sample.values)
    farthest: Array = bins[np.arange(len(bins)), np.abs(bins).argmax(axis=1)]
    return farthest


def named_values(
    sample: Sample, relevance: Array | None = None, n: int = 12
) -> tuple[list[tuple[str, float, float | None]], int]:
    """Return up to n values of a table's row with their names and relevance, and how many more there are.

    They are those of most relevance, in their own order; without relevance the first.
    """
    assert sample.names is not None
    assert sample.values is not None
    parts = [None] * len(sample.names) if relevance is None else relevance.ravel().tolist()
    order = range(n) if relevance is None else np.argsort(-np.abs(relevance.ravel()), kind="stable")[:n]
    rows = list(zip(sample.names, sample.values.tolist(), parts, strict=True))
    return [rows[i] for i in sorted(map(int, order)) if i < len(rows)], max(len(rows) - n, 0)


def a_bar(sample: Sample) -> int:
    """Return the number of values per bar."""
    assert sample.values is not None
    return max(-(-sample.values.size // BARS), 1)


def _binned(values: Array) -> Array:
    """Split values into at most ``BARS`` rows, the last padded with 0."""
    size = max(-(-values.size // BARS), 1)
    return np.pad(values.ravel(), (0, -values.size % size)).reshape(-1, size)


def scale(maps: Iterable[Array]) -> float:
    """Return the relevance of the full colour for maps that share a scale; 0 if all are 0.

    For images it is the largest value except for the most extreme half per cent of pixels.
    """
    maps = [np.abs(relevance) for relevance in maps]
    if not maps:
        return 0.0
    values = np.concatenate([relevance.ravel() for relevance in maps])
    seen = float(np.quantile(values, SEEN)) if maps[0].ndim == 2 else 0.0
    return seen or float(values.max(initial=0))


def strength(relevance: Array, full: float) -> Array:
    """Return relevance relative to the full colour, in [−1, 1]."""
    return np.clip(relevance / full, -1, 1) if full else np.zeros_like(relevance)


def heat(relevance: Array, full: float, image: Picture | None = None) -> Picture:
    """Colour a map (height, width): blue for, orange against, transparent without relevance.

    Parameters
    ----------
    full : the relevance of the full colour
    image : the sample, whose contours then show through faintly
    """
    ground = np.full(relevance.shape, PAPER) if image is None else PAPER - 0.2 * contours(image)
    return _mixed(strength(relevance, full), ground[..., None])


def marker(relevance: Array, full: float, ground: str = "#FFFFFF") -> Picture:
    """Colour the background of tokens, light enough for text: (…) to (…, 3)."""
    return _mixed(0.75 * strength(relevance, full), _rgb(ground))


def contours(image: Picture) -> Array:
    """Compute the edges of an image: (height, width), in [0, 1]."""
    grey = image if image.ndim == 2 else image.mean(axis=2)
    down, right = np.gradient(grey)
    edges = np.hypot(down, right)
    clipped: Array = np.clip(edges / (np.quantile(edges, 0.98) or 1), 0, 1).astype(np.float32)
    return clipped


def level(relevance: float, full: float) -> str:
    """Return the CSS class of a token's colour: p1 to p10 for, n1 to n10 against, empty without colour."""
    step = round(LEVELS * float(strength(np.array([relevance], dtype=np.float32), full)[0]))
    return f"{'p' if step > 0 else 'n'}{abs(step)}" if step else ""


def bars(values: Array, full: float) -> list[tuple[float, float, float, float, str]]:
    """Place values as bars in an area of 100 by 40 with 0 in its middle: x, y, width, height, class."""
    width = 100 / max(len(values), 1)
    boxes = []
    for i, value in enumerate(strength(values, full).tolist()):
        top = 20 - 20 * max(value, 0)
        boxes.append((i * width, top, 0.9 * width, 20 * abs(value), "for" if value > 0 else "against"))
    return boxes


def marks() -> str:
    """Write the CSS of tokens' colours, for light and dark pages."""

    def rules(ground: str) -> str:
        steps = np.arange(1, LEVELS + 1, dtype=np.float32)
        lines = []
        for sign, name in ((1, "p"), (-1, "n")):
            colours = (255 * marker(sign * steps, LEVELS, ground)).round().astype(int)
            lines += [
                f".{name}{step:.0f} {{ background: #{r:02x}{g:02x}{b:02x}; }}"
                for step, (r, g, b) in zip(steps, colours, strict=True)
            ]
        return "\n".join(lines)

    return f"\n{rules(LIGHT)}\n@media (prefers-color-scheme: dark) {{\n{rules(DARK)}\n}}\n"


def _mixed(part: Array, ground: Array) -> Picture:
    """Blend blue or orange over a background (…, 1 or 3); ``part`` in [−1, 1] is the sign and strength."""
    weight, colour = np.abs(part)[..., None], np.where(part[..., None] > 0, _rgb(BLUE), _rgb(ORANGE))
    mixed: Picture = (ground * (1 - weight) + colour * weight).astype(np.float32)
    return mixed


def _rgb(colour: str) -> Array:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)], dtype=np.float32)
