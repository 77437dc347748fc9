"""whence cache, as a user runs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.helpers.commands import fit, refused
from whence.app import cli


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
    assert "none fits" in refused(cache("rm", "x", "--dir", "mine"))
    assert "or pass --all" in refused(cache("rm", "--dir", "mine"))
    assert "or pass --all" in refused(cache("rm", "bank", "--all", "--dir", "mine"))
    assert cache("rm", "bank", "--dir", "mine").stdout.startswith("Removed 1 entry, ")
    (place / "mine" / f"bank-{'0' * 16}").mkdir()
    assert f"bank-{'0' * 16}" in cache("ls", "mine").stdout
    assert cache("rm", "--all", "--dir", "mine").stdout.startswith("Removed 3 entries, ")
    assert list((place / "mine").iterdir()) == []
