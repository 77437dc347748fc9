"""whence explain, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.commands import mistake, run
from whence.errors import InvalidInputError


def test_explain_writes_a_page_figures_and_data(fitted: Path) -> None:
    said = run("explain", "x.whence", "--tests", "1,2", "-k", "2", "--out", "why").stdout.strip()
    assert said == str(fitted / "why" / "index.html")
    assert sorted(path.name for path in (fitted / "why").iterdir()) == [
        "explanations.json", "index.html", "test-1.png", "test-2.png",
    ]  # fmt: skip
    data = json.loads((fitted / "why" / "explanations.json").read_text())
    assert [one["test"] for one in data] == [1, 2]
    assert isinstance(mistake("explain", "x.whence", "--tests", "0", "--out", "x.whence"), InvalidInputError)
    wrong = mistake("explain", "x.whence", "--tests", "0", "--out", "why", "--rules", "magic")
    assert "epsilon_plus_flat" in str(wrong)


def test_explain_writes_effects(fitted: Path) -> None:
    run("explain", "x.whence", "--tests", "1", "-k", "2", "--out", "why", "--effects")
    (data,) = json.loads((fitted / "why" / "explanations.json").read_text())
    assert data["question"] == "would change"
    assert "What would change" in (fitted / "why" / "index.html").read_text()
