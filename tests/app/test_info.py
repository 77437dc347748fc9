"""whence info, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import whence
from tests.helpers.commands import fit, mistake, run
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


def test_info_of_another_method(place: Path) -> None:
    assert fit("--method", "similarity").exit_code == 0
    found = json.loads(run("info", "x.whence", "--json").stdout)
    assert (found["method"], found["samples"], found["layer"]) == ("similarity", 90, "2")
    assert found["parameters"]["metric"] == "dot"
    assert "metric=dot" in run("info", "x.whence").stdout
