"""Sets of indices as text, such as ``3,17,40-60``: short for long runs, and readable in a file."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from whence.core.arrays import Ints
from whence.core.checks import shown
from whence.errors import InvalidInputError

_PART = r"[0-9]{1,15}(?:-[0-9]{1,15})?"
_RANGES = re.compile(rf"(?:{_PART}(?:,{_PART})*)?")


def format_ranges(places: Any) -> str:
    """Return ascending, unique indices (n,) as text.

    Examples
    --------
    >>> format_ranges([3, 17, 40, 41, 42])
    '3,17,40-42'
    """
    values = np.asarray(places, np.int64)
    if not len(values):
        return ""
    breaks = np.flatnonzero(np.diff(values) != 1)
    first = values[np.concatenate([[0], breaks + 1])].tolist()
    last = values[np.concatenate([breaks, [len(values) - 1]])].tolist()
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(first, last, strict=True))


def parse_ranges(text: str, n: int, name: str = "samples") -> Ints:
    """Return the indices that a text names, ascending and unique, or raise unless all lie in [0, n).

    The time is linear in the text and in what it names, however its ranges overlap.

    Examples
    --------
    >>> parse_ranges("40-42, 3", 50).tolist()
    [3, 40, 41, 42]
    """
    first, lengths = _runs(text, n, name)
    starts = np.cumsum(lengths) - lengths
    return np.repeat(first - starts, lengths) + np.arange(int(lengths.sum()))


def count_ranges(text: str, n: int, name: str = "samples") -> int:
    """Return how many indices ``parse_ranges`` would return, without a list of them."""
    return int(_runs(text, n, name)[1].sum())


def _runs(text: str, n: int, name: str) -> tuple[Ints, Ints]:
    """Return the first indices and the lengths of ascending ranges that do not overlap."""
    plain = re.sub(r"\s", "", text)
    if not _RANGES.fullmatch(plain):
        raise InvalidInputError(f"'{name}' must be indices such as 3,17,40-60. Got {shown(text)}.")
    ends = [part.partition("-") for part in plain.split(",")] if plain else []
    first = np.array([int(a) for a, _, _ in ends], np.int64)
    last = np.array([int(b or a) for a, _, b in ends], np.int64)
    if (first > last).any():
        place = int((first > last).argmax())
        raise InvalidInputError(f"'{name}' must have ascending ranges. Got {first[place]}-{last[place]}.")
    if len(last) and last.max() >= n:
        raise InvalidInputError(f"'{name}' must lie in [0, {n}). Got {last.max()}.")
    order = np.argsort(first, kind="stable")
    first, last = first[order], last[order]
    reach = np.concatenate([[-1], np.maximum.accumulate(last)])[: len(last)]
    first = np.maximum(first, reach + 1)  # what an earlier range has already named
    return first, np.maximum(last - first + 1, 0)
