"""No cell of a table that is written is a formula for a spreadsheet, whatever stands before its sign."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from whence.core.files import to_csv

SIGNS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
BEFORE = {
    "nothing": "",
    "blank": " ",
    "blanks": "   ",
    "byte order mark": "\ufeff",
    "byte order mark and blank": "\ufeff ",
    "no-break space": "\u00a0",
    "wide blank": "\u3000",
    "zero-width space": "\u200b",
    "word joiner": "\u2060",
    "line": "\n",
    "tab": "\t",
    "carriage return": "\r",
    "null": "\0",
}
HARMLESS = ["", "a = b", " a", "\ufeffa", "3 - 2", "cat", "'=1"]


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("before", BEFORE)
def test_formulas_are_defused(tmp_path: Path, before: str, sign: str) -> None:
    text = f"{BEFORE[before]}{sign}1+1"
    to_csv({"name": [text], "names": [["a", text]]}, tmp_path / "x.csv")
    with open(tmp_path / "x.csv", newline="", encoding="utf-8") as file:
        _, row = csv.reader(file)
    assert row == [f"'{text}", f"a '{text}"]


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_are_written_unchanged(tmp_path: Path, text: str) -> None:
    to_csv({"name": [text], "n": [-1]}, tmp_path / "x.csv")
    with open(tmp_path / "x.csv", newline="", encoding="utf-8") as file:
        assert list(csv.reader(file))[1] == [text, "-1"]
