"""Text for terminals, notebooks and spreadsheets: names come from files and must not act there.

Objects print as one line in a terminal and as a small table in a notebook.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type)
Facts = Mapping[str, Any]
"""What is shown of an object, by name."""

Columns = Mapping[str, Sequence[Any]]
"""Rows of a table, column by column, by name."""

_ROWS = 10  # of a table
_LONGEST = 40  # letters of a value on a line
_WHOLE = 240  # and in a table
_LINE = "border-bottom: 1px solid rgba(128, 128, 128, 0.35)"
_NUMBER = re.compile(r"[+−]?[\d,.]+(e[+−]?\d+)?|–")
_FORMULA = re.compile(r"[\t\r]|[\s\ufeff\u200b\u2060\0]*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_CELL = "padding: 0.15em 0.8em; text-align: left; vertical-align: top; max-width: 40em"


def displayed(*names: str, rows: str = "") -> Callable[[Kind], Kind]:
    """Make a class whose objects show what they are: ``repr`` is one line, notebooks show a small table.

    ``names`` are attributes to show, methods by what they return; none for all fields of a dataclass or named
    tuple. ``rows`` names the method that returns what the table lists, column by column.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @displayed()
    ... @dataclass
    ... class Found:
    ...     name: str
    ...     scores: list
    >>> Found("a <b>", [1] * 100)
    Found(name='a <b>', scores=100 items)
    >>> "a &lt;b&gt;" in Found("a <b>", [])._repr_html_()
    True
    """

    def facts(thing: Any) -> Facts:
        shown = {name: _value(thing, name) for name in names or _fields(thing)}
        return {"n" if name == "__len__" else name: value for name, value in shown.items()}

    def _repr(self: Any) -> str:
        return line(type(self).__name__, facts(self))

    def _repr_html_(self: Any) -> str:
        return table(type(self).__name__, facts(self), _value(self, rows) if rows else None)

    def decorate(kind: Kind) -> Kind:
        setattr(kind, "__repr__", _repr)  # noqa: B010
        setattr(kind, "_repr_html_", _repr_html_)  # noqa: B010
        return kind

    return decorate


def _value(thing: Any, name: str) -> Any:
    value = getattr(thing, name)
    return value() if inspect.ismethod(value) or inspect.ismethodwrapper(value) else value


def _fields(thing: Any) -> Sequence[str]:
    return getattr(thing, "_fields", None) or [field.name for field in dataclasses.fields(thing)]


def line(title: str, facts: Facts) -> str:
    """Write the facts of an object on one line."""
    return f"{title}({', '.join(f'{name}={brief(value)}' for name, value in facts.items())})"


def table(title: str, facts: Facts, rows: Columns | None = None) -> str:
    """Write the facts of an object as HTML, which takes its colours from the page: light or dark."""
    lines = [_row([_words(name), brief(value, quoted=False)], "th") for name, value in facts.items()]
    parts = [f"<strong>{escape(plain_line(title))}</strong>", _table(lines)] if lines else []
    if rows:
        n = max(map(len, rows.values()))
        heads = _row([_words(name) for name in rows], "th", "th")
        first = islice(zip(*rows.values(), strict=True), _ROWS)
        lines = [_row([brief(value, quoted=False) for value in row], "td") for row in first]
        parts.append(_table([heads, *lines]))
        if n > _ROWS:
            parts.append(f"<small>… {n - _ROWS:,} more</small>")
    return f'<div style="font-size: 0.9em; color: inherit; overflow-x: auto">{"".join(parts)}</div>'


def text_table(rows: Columns, most: int = 20) -> str:
    """Write rows as a table for a terminal, numbers to the right.

    Examples
    --------
    >>> print(text_table({"test": [3, 12], "before": ["Coat", "Bag"]}))
    test  before
       3  Coat
      12  Bag
    """
    n = max(map(len, rows.values()), default=0)
    parts = []
    for name, values in rows.items():
        cells = [_words(name), *(brief(value, quoted=False) for value in values[:most])]
        width, numeric = max(map(len, cells)), all(map(_NUMBER.fullmatch, cells[1:]))
        parts.append([cell.rjust(width) if numeric else cell.ljust(width) for cell in cells])
    lines = ["  ".join(cells).rstrip() for cells in zip(*parts, strict=True)]
    return "\n".join([*lines, *([f"… {n - most:,} more rows"] if n > most else [])])


def brief(value: Any, *, quoted: bool = True) -> str:
    """Write a value in a few letters: arrays by their kind and shape, long lists by their length."""
    shape = getattr(value, "shape", None)
    if value is None or isinstance(value, bool | int):
        return f"{value:,}" if type(value) is int and abs(value) >= 10_000 else str(value)
    if isinstance(value, float) or (hasattr(value, "dtype") and shape == () and value.dtype.kind == "f"):
        return number(float(value))
    if isinstance(value, str):
        text, most = plain_line(value), _LONGEST if quoted else _WHOLE
        text = text if len(text) <= most else f"{text[: most - 1]}…"
        return repr(text) if quoted else text
    if isinstance(shape, tuple) and hasattr(value, "dtype"):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind} {' × '.join(f'{size:,}' for size in shape)}".strip()
    if isinstance(value, Mapping | list | tuple | set | frozenset) and type(value).__repr__ in _LISTS:
        return _listed(value, quoted)
    text = plain_line(repr(value))
    return text if len(text) <= 2 * _LONGEST else type(value).__name__


_LISTS = {kind.__repr__ for kind in (dict, list, tuple, set, frozenset)}


def _listed(values: Any, quoted: bool) -> str:
    """Write a short list whole, a long one by its length."""
    if not values:
        return "–"
    held = values.values() if isinstance(values, Mapping) else values
    if len(values) <= 8 and all(value is None or isinstance(value, str | int | float) for value in held):
        each = [brief(value, quoted=quoted) for value in held]
        if isinstance(values, Mapping):
            each = [f"{name}={value}" for name, value in zip(values, each, strict=True)]
        text = ", ".join(each)
        if len(text) <= 2 * _LONGEST:
            return f"[{text}]" if quoted else text
    return f"{len(values):,} item{'s' * (len(values) != 1)}"


def _words(name: str) -> str:
    """Write a name as words; it does not break within one."""
    return name.replace("_", " ")


def _row(cells: Sequence[str], first: str, others: str = "td") -> str:
    kinds = [first, *[others] * (len(cells) - 1)]
    each = (f'<{k} style="{_CELL}">{escape(plain_line(c))}</{k}>' for k, c in zip(kinds, cells, strict=True))
    return f'<tr style="{_LINE}; background: transparent">{"".join(each)}</tr>'


def _table(lines: Sequence[str]) -> str:
    style = "border-collapse: collapse; margin: 0.3em 0; color: inherit"
    return f'<table style="{style}"><tbody>{"".join(lines)}</tbody></table>'


def plain(text: str, kept: str = "\n\t") -> str:
    """Write what a terminal would obey as escapes, and leave lines and tabs.

    These are control characters, halves of characters, and characters that turn the direction of text.
    """
    return "".join(c if c in kept or _is_harmless(c) else _escape(c) for c in text)


def plain_line(text: str) -> str:
    """Write a name or a message on one line, with what a terminal would obey as escapes."""
    return plain(text, kept="")


def cell(text: str) -> str:
    """Write a text for a table, where ``|`` ends a cell."""
    return plain_line(text).replace("|", "\\|")


def counted(n: int, thing: str, things: str | None = None) -> str:
    """Count things in words: 1 sample, 2 samples."""
    return f"{n:,} {thing if n == 1 else things or thing + 's'}"


def no_formula(text: str) -> str:
    """Put a ' before a text that a spreadsheet would take for a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def _is_harmless(character: str) -> bool:
    # Control, surrogate, and the separators of lines and paragraphs; of formats those that turn text around.
    kind = unicodedata.category(character)
    turns = kind == "Cf" and unicodedata.bidirectional(character) not in ("BN", "AN", "EN")
    return kind not in ("Cc", "Cs", "Zl", "Zp") and not turns


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def number(value: float) -> str:
    """Write a number in four digits, of a large one all before the point."""
    return f"{value:,.0f}".replace("-", "−") if 1e4 <= abs(value) < 1e12 else f"{value:.4g}".replace("-", "−")


def decimals(values: Sequence[float]) -> list[str]:
    """Write numbers of one sum with as many decimals, so that it holds in what is written but for rounding.

    Examples
    --------
    >>> decimals([2.534, -0.391, 2.925])
    ['2.53', '−0.39', '2.92']
    """
    largest = max(map(abs, values), default=0.0)
    n = max(0, 2 - math.floor(math.log10(largest))) if 0 < largest < math.inf else 0
    return [f"{round(value, n) + 0.0:,.{n}f}".replace("-", "−") for value in values]


def in_words(size: float) -> str:
    """Print a number of bytes.

    Examples
    --------
    >>> in_words(2_048_000_000)
    '2.05 GB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
