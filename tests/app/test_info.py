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


def test_info_of_effects_that_were_fitted_with_options_of_their_own(place: Path) -> None:
    said = fit("--method", "effects", "--option", "output=margin").stdout
    assert "to first order, at the softmax surrogate" in said
    found = json.loads(run("info", "x.whence", "--json").stdout)
    assert (found["effects on"], found["parameters"]["output"]) == ("margin", "margin")
    page = run(
        "explain",
        "x.whence",
        "--trust",
        "--tests",
        "0",
        "-k",
        "1",
        "--out",
        "why",
        "--test",
        "my_module:test",
    )
    assert "What would change" in Path(page.stdout.strip()).read_text()


def test_features_at_unit_length_by_an_option(place: Path) -> None:
    said = fit("--option", "normalise=true").stdout
    assert "read at unit length" in said
    found = json.loads(run("info", "x.whence", "--json").stdout)
    assert found["parameters"]["normalise"] is True
    assert "read at unit length" not in fit().stdout


def test_an_option_that_a_method_has_not_is_named(place: Path) -> None:
    wrong = fit("--method", "effects", "--option", "halves=8").exception
    assert "--option must be NAME=VALUE of Effects: bias, max_seconds" in str(wrong)
