"""Text for terminals and spreadsheets: names come from files and must not act there."""

from __future__ import annotations

import re
import unicodedata

_FORMULA = re.compile(r"[=+\-@\t\r]")


def plain(text: str, kept: str = "\n\t") -> str:
    """Write what a terminal would obey as escapes, and leave what is kept: lines and tabs.

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
