"""Texts in little room: the passages around the most relevant tokens, and their lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from whence.pages.samples import Array, readable

AROUND = 4
"""Tokens that are kept to either side of a relevant one."""
SHORT = 3
"""A gap of so few tokens is shown: the sign for it would take as much room."""
GAP = " …"


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
    tokens, relevance, widths
        Each token, its relevance and its width.
    room, gap
        The width that all passages may have together, and that of the sign for a gap.
    """
    n = len(tokens)
    if widths.sum() <= room:
        return [range(n)]
    begins = np.array([i == 0 or token.startswith(" ") for i, token in enumerate(tokens)])
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
    """Break passages into lines, between words where a word is no longer than a line."""
    found: list[list[Placed]] = [[]]
    x = 0.0
    for word in _words(tokens, shown):
        sizes = [measure(text) for _, text in word]
        blank = measure(" ") if word[0][1].startswith(" ") else 0.0
        if found[-1] and x + sum(sizes) > width:
            found, x = [*found, []], 0.0
        for j, ((index, text), size) in enumerate(zip(word, sizes, strict=True)):
            lead = blank if j == 0 else 0.0
            if x and x + size > width:
                found, x = [*found, []], 0.0
            x += lead if found[-1] else 0.0
            found[-1].append(Placed(x, size - lead, text[1:] if lead else text, index))
            x += size - lead
    return found


def _words(tokens: Sequence[str], shown: Sequence[range]) -> list[list[tuple[int, str]]]:
    """Group the tokens of passages into words, with a sign for each gap."""
    found: list[list[tuple[int, str]]] = []
    end = 0
    for run in shown:
        if run.start > end:
            found.append([(-1, GAP)])
        for i in run:
            text = readable(tokens[i])
            if text.startswith(" ") or i == run.start or not found:
                found.append([])
            found[-1].append((i, text))
        end = run.stop
    if end < len(tokens):
        found.append([(-1, GAP)])
    return found


def _runs(mask: npt.NDArray[np.bool_]) -> list[range]:
    """Give the stretches where a mask holds."""
    steps = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [range(a, b) for a, b in zip(steps[::2].tolist(), steps[1::2].tolist(), strict=True)]
