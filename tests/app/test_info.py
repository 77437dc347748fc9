"""whence info and whence cache, as a user runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import whence
from tests.helpers.commands import fit, mistake, refused, run
from whence.app import cli
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
    page = run("explain", "x.whence", "--tests", "0", "-k", "1", "--out", "why", "--test", "my_module:test")
    assert "What would change" in Path(page.stdout.strip()).read_text()


def test_features_at_unit_length_by_an_option(place: Path) -> None:
    said = fit("--option", "metric=unit").stdout
    assert "read at unit length" in said
    found = json.loads(run("info", "x.whence", "--json").stdout)
    assert found["parameters"]["metric"] == "unit"
    assert "read at unit length" not in fit().stdout


def test_cache_ls_and_rm(place: Path) -> None:
    def cache(*arguments: str) -> Any:
        return CliRunner().invoke(cli.app, ["cache", *arguments])

    assert cache("ls").stdout == "0 entries, 0 bytes in whence-cache\n"
    fit("--C", "0.1", "--cache-dir", "mine")
    fit("--C", "0.2", "--cache-dir", "mine")
    *lines, total = cache("ls", "mine").stdout.splitlines()
    assert [line.split("-")[0] for line in lines] == ["solution", "solution", "bank"]
    assert "C 0.2" in lines[0]
    assert re.search(r"bank-\w{16} +\S+ kB +\d+ s  Sequential, layer '2', 90 × 8 float32$", lines[2])
    assert total.startswith("3 entries, ")
    assert "2 fit" in refused(cache("rm", "sol", "--dir", "mine"))
    assert "no match" in refused(cache("rm", "x", "--dir", "mine"))
    assert "or pass --all" in refused(cache("rm", "--dir", "mine"))
    assert "or pass --all" in refused(cache("rm", "bank", "--all", "--dir", "mine"))
    assert cache("rm", "bank", "--dir", "mine").stdout.startswith("Removed 1 entry, ")
    (place / "mine" / f"bank-{'0' * 16}").mkdir()
    assert f"bank-{'0' * 16}" in cache("ls", "mine").stdout
    assert cache("rm", "--all", "--dir", "mine").stdout.startswith("Removed 3 entries, ")
    assert list((place / "mine").iterdir()) == []
