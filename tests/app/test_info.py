"""whence info, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import whence
from tests.helpers.commands import mistake, run
from whence.errors import StoreError


def test_info(fitted: Path) -> None:
    found = json.loads(run("info", "x.whence", "--json").stdout)
    explainer = whence.load(fitted / "x.whence")
    assert found["samples"] == 90
    assert found["support vectors"] == len(explainer.support_)
    assert found["C"] == 0.1
    assert found["duality gap"] == explainer.gap_
    assert "support vectors" in run("info", "x.whence").stdout
    assert isinstance(mistake("info", "nowhere.whence"), StoreError)
