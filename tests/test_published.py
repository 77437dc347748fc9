"""The tables of the study in the docs are those of its published results."""

from __future__ import annotations

import pytest
from tools import published

pytest.importorskip("pyarrow")

PAGE = (published.DOCS / "research" / "results.md").read_text(encoding="utf-8")
# Wrong labels have a million rows, and counts are of all: ``python -m tools.published`` makes them too.
QUICK = ["kinds", "authors", "lds", "coresets", "kept"]


@pytest.mark.parametrize("name", QUICK)
def test_a_table_has_what_was_measured(name: str) -> None:
    assert f"<!-- table {name} -->\n\n{published.table(name)}\n\n<!-- end -->" in PAGE, (
        "python -m tools.published"
    )


def test_every_table_of_the_page_is_known_and_filled() -> None:
    assert {*published.names(PAGE)} == {*published.TABLES, *published.OTHERS}
    assert "-->\n<!-- end -->" not in PAGE


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, ".500"), (-0.0021, "−.002"), (1.0, "1.000"), (0.9999, "1.000"), (12.345, "12.35"), (0.0, ".000")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert published.number(value) == text


def test_only_what_stands_between_marks_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "table", lambda name: f"| {name} |")
    text = "before\n<!-- table one -->\nold\n<!-- end -->\nafter"
    filled = published.filled(text)
    assert filled == "before\n<!-- table one -->\n\n| one |\n\n<!-- end -->\nafter"
    assert published.filled(filled) == filled
