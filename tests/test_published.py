"""The tables of the study in the docs are those of its published results."""

from __future__ import annotations

import pytest
from tools import published

from whence_studies.report.counting import paper_counts

pytest.importorskip("pyarrow")

PAGE = (published.DOCS / "research" / "results.md").read_text(encoding="utf-8")
# Wrong labels have a million rows: ``python -m tools.published`` makes their tables too.
QUICK = ["kinds", "authors", "lds", "coresets", "kept", "nine", "counts", "small"]


@pytest.mark.parametrize("name", QUICK)
def test_a_table_has_what_was_measured(name: str) -> None:
    assert f"<!-- table {name} -->\n\n{published.table(name)}\n\n<!-- end -->" in PAGE, (
        "python -m tools.published"
    )


def test_every_table_of_the_page_is_known_and_filled() -> None:
    assert {*published.names(PAGE)} == {*published.TABLES, *published.OTHERS}
    assert "-->\n<!-- end -->" not in PAGE


def places(by: str, wrong: str = "") -> list[int]:
    """The places of DualDA with the best of three C, on MNIST, Fashion-MNIST and CIFAR-10."""
    found = []
    for name in published.JOINED:
        summary = published.together(name)
        wrong_here = wrong if any(column.metric == wrong for column in summary.columns) else ""
        count = next(c for c in paper_counts(summary, wrong_here) if f"by {by}: best" in c.title)
        own = next(place for place in count.places if place.label.startswith("DualDA"))
        found.append(published.place_of(own, count.places))
    return found


def test_statements_about_places_are_those_of_the_data() -> None:
    assert places("loss") == [4, 4, 8]
    assert places("accuracy") == [5, 2, 2]
    for wrong in ("mislabeling_best", "mislabeling_30_best", "mislabeling_memorised"):
        assert places("loss", wrong) == [4, 4, 8]
        assert places("accuracy", wrong) in ([5, 2, 2], [5, 1, 2])
    text = " ".join(PAGE.split())
    assert "DualDA is fourth, fourth and eighth of nine by loss** (MNIST, Fashion-MNIST, CIFAR-10)" in text
    assert "**and fifth, second and second by accuracy.**" in text
    reproduction = (published.DOCS / "research" / "reproduction.md").read_text(encoding="utf-8")
    assert "fourth, fourth and eighth of nine by loss" in reproduction


def test_of_the_papers_counts_two_separate_dualda_from_a_method() -> None:
    found = []
    for name in published.JOINED:
        for count in paper_counts(published.together(name)):
            own = next(place for place in count.places if place.label.startswith("DualDA"))
            found += [(name, count.title.split(", ")[1], place.label) for place in count.apart(own)]
            assert round(count.difference, 2) == 4.25
    assert found == [
        ("study-fashion-all", "by accuracy: best of three C", "GradDot"),
        ("study-cifar10-all", "by loss: one C", "EK-FAC"),
    ]


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
