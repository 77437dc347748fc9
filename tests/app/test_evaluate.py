"""whence evaluate, as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from whence.app import cli
from whence.errors import InvalidInputError, UnsupportedError
from whence_studies.suite import results

PROTOCOL = """
title = "Mine"
[data]
name = "sample"
train = 60
test = 10
held_out = 20
[model]
name = "narrow-cnn"
steps = 10
[[methods]]
name = "dualda"
options = { C = 1e-3 }
[[methods]]
name = "gradcos"
[metrics]
identical_class = {}
mislabeling = {}
"""


def test_evaluate_writes_results_and_a_page(tmp_path: Path) -> None:
    mine, out = tmp_path / "mine.toml", tmp_path / "out"
    mine.write_text(PROTOCOL, encoding="utf-8")
    options = ["evaluate", "--protocol", str(mine), "--out", str(out), "--methods", "dualda"]
    done = CliRunner().invoke(cli.app, options)
    assert done.exit_code == 0, done.output
    assert "Estimate" in done.output
    assert "DualDA" in done.output
    assert done.output.strip().endswith(str(out / "index.html"))
    found = results.read(out / "results.parquet")
    assert {row.method for row in found.select("mislabeling")} == {"random", "dualda(C=0.001)"}
    assert "<h1>Mine</h1>" in (out / "index.html").read_text(encoding="utf-8")


def test_a_dry_run_and_mistakes(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    done = CliRunner().invoke(cli.app, ["evaluate", "--protocol", "tiny", "--out", out, "--dry-run"])
    assert done.exit_code == 0
    assert not (tmp_path / "out").exists()
    wrong = CliRunner().invoke(cli.app, ["evaluate", "--protocol", "fast", "--out", out])
    assert isinstance(wrong.exception, InvalidInputError)
    assert "quick" in str(wrong.exception)
    mine = tmp_path / "mine.toml"
    mine.write_text(PROTOCOL.replace('"sample"', '"mnist"'), encoding="utf-8")
    missing = CliRunner().invoke(
        cli.app, ["evaluate", "--protocol", str(mine), "--data", str(tmp_path), "--out", out]
    )
    assert isinstance(missing.exception, InvalidInputError)
    assert "mnist" in str(missing.exception)
    assert "Put" in str(missing.exception)


def test_the_tiny_protocol_runs_through(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["evaluate", "--protocol", "tiny", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "failed" not in done.output


def test_commands_of_other_packages_are_found_by_their_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_commands.py").write_text("def run():\n    return 'mine'\n")
    metadata = tmp_path / "my_commands-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-commands\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[whence.commands]\nmine = my_commands:run\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert cli.installed("mine")() == "mine"
    with pytest.raises(UnsupportedError, match="'whence other' must have the package that provides it"):
        cli.installed("other")
