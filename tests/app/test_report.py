"""whence report, as a user runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.helpers.commands import run


@pytest.mark.parametrize("effects", [False, True])
def test_a_report_holds_both_answers_where_effects_are_asked_for(fitted: Path, effects: bool) -> None:
    options = ["--effects"] if effects else []
    said = run("report", "x.whence", "--tests", "1,2", "-k", "2", "--out", "r.html", *options).stdout.strip()
    assert said == str(fitted / "r.html")
    found = re.search(r'id="data">(.*?)</script>', (fitted / "r.html").read_text(), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert set(data["explanations"]) == {"1", "2"}
    assert set(data["changes"]) == ({"1", "2"} if effects else set())
    for test, why in data["changes"].items():
        assert why["question"] == "would change"
        assert len(data["explanations"][test]["other_scores"]) == len(data["explanations"][test]["pairs"])
