"""The tables of the study in the docs are those of its published results."""

from __future__ import annotations

import pytest
from tools import published, questions

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


WHICH = (published.DOCS / "which.md").read_text(encoding="utf-8")


def test_the_table_of_questions_has_what_was_measured() -> None:
    assert f"<!-- table questions -->\n\n{questions.questions()}\n\n<!-- end -->" in WHICH, (
        "python -m tools.questions"
    )


OUTPUTS = "representer(bias=False, targets=outputs)"
SPARSE = f"{OUTPUTS} sparsified as dualda(C=0.001)"
STATEMENTS = [  # words on the page, then metric, key, quantity and data sets of their numbers
    (".541 at C = 0.1", "identical_subclass", "dualda(C=0.1)", "score", "mnist"),
    (".706 at 1e-5", "identical_subclass", "dualda(C=1e-05)", "score", "mnist"),
    (".010, .010, .031", "shortcut", "dualda(C=0.001)", "score", "mnist fashion cifar10"),
    ("chance .010, .010, .030", "shortcut", "random", "score", "mnist fashion cifar10"),
    ("CIFAR-10 .336 at 1e-5", "shortcut", "dualda(C=1e-05)", "score", "cifar10"),
    (".743, .747 ", "mislabeling_30_memorised", "dualda(C=0.001)", "score", "mnist fashion"),
    (" .612 at C = 1e-3", "mislabeling", "dualda(C=0.001)", "score", "cifar10"),
    (".188 and .189 at best", "mislabeling_30_best", OUTPUTS, "score", "mnist fashion"),
    ("labels .985 and .946", "mislabeling_30_best", "representer", "score", "mnist fashion"),
    (".045, .075, .074 at", "lds", "dualda(C=0.001)", "score", "mnist fashion cifar10"),
    ("EK-FAC .228, .256, .170", "lds", "ekfac", "score", "mnist fashion cifar10"),
    ("MNIST 2.71 at 1e-5", "coreset", "dualda(C=1e-05)", "score", "mnist"),
    (", .105 at 0.1", "coreset", "dualda(C=0.1)", "score", "mnist"),
    ("CIFAR-10 5.69 and", "coreset", "dualda(C=1e-05)", "score", "cifar10"),
    ("and 4.06;", "coreset", "dualda(C=0.1)", "score", "cifar10"),
    ("Fashion-MNIST 4.49 and", "coreset", "dualda(C=1e-05)", "score", "fashion"),
    (".985 (MNIST), .679 (Fashion-MNIST)", "faithfulness", SPARSE, "mcc", "mnist fashion"),
    (", .945 (CIFAR-10)", "faithfulness", SPARSE, "mcc", "cifar10"),
]


@pytest.mark.parametrize(("words", "metric", "key", "quantity", "data"), STATEMENTS)
def test_statements_about_the_paper_have_numbers_of_the_data(
    words: str, metric: str, key: str, quantity: str, data: str
) -> None:
    assert words in WHICH
    for one in data.split():
        value = published.together(f"study-{one}-all").results.value(metric, key, quantity)
        assert value is not None
        assert published.number(value) in words


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
