"""Where commands write to: checked before the work, and nothing is lost where it fails after all."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import whence
from tests.helpers.commands import FIT, fit, refused
from whence.app import cli


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*FIT, "--out", "."), "must be a file in a folder that exists. Got '.', a folder"),
        ((*FIT, "--out", "nowhere/x.whence"), "in a folder that does not exist, 'nowhere'"),
        (("explain", "x.whence", "--tests", "0", "--out", "my_module.py"), "must be a folder or a new path"),
        (("report", "x.whence", "--tests", "0", "--out", "."), "must be a file in a folder that exists"),
        (("audit", "x.whence", "--out", "x.xlsx"), "must end in .csv, .parquet, .json here. Got 'x.xlsx'"),
        (("audit", "x.whence", "--view", "classes", "--out", "x.csv"), "must end in .json here"),
        (("audit", "x.whence", "--out", "nowhere/x.csv"), "in a folder that does not exist"),
        (("evaluate", "--out", "my_module.py"), "must be a folder or a new path"),
    ],
)
def test_out_is_checked_before_anything_else(
    place: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    (place / "my_module.py").write_text("raise SystemExit('imported first')")
    assert message in refused(CliRunner().invoke(cli.app, list(arguments)))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder where nobody can write, such as /proc")
def test_a_place_that_cannot_be_written_is_said_before_anything_else(place: Path) -> None:
    (place / "my_module.py").write_text("raise SystemExit('imported first')")
    for arguments in (
        (*FIT, "--out", "/proc/x.whence"),
        ("report", "x.whence", "--tests", "0", "--out", "/proc/x.html"),
        ("audit", "x.whence", "--out", "/proc/x.csv"),
        ("explain", "x.whence", "--tests", "0", "--out", "/proc"),
    ):
        said = refused(CliRunner().invoke(cli.app, list(arguments)))
        assert f"'out' must be where files can be written. Got '{arguments[-1]}'" in said


def no_room_in(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file be put into a folder, but for the cache and temporary ones."""
    replace = os.replace

    def full(scratch: Path, target: Path) -> None:
        if Path(target).relative_to(place).parts[0] not in ("temporary", "whence-cache"):
            raise OSError(28, "No space left on device")
        replace(scratch, target)

    monkeypatch.setattr(os, "replace", full)
    (place / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place / "temporary"))


def test_a_fit_that_cannot_be_saved_is_kept_elsewhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_room_in(place, monkeypatch)
    said = refused(fit())
    assert said.startswith(
        "'x.whence' could not be written (No space left on device). What was computed is kept as "
    )
    kept = Path(re.search(r"kept as '(.*)'", said)[1])  # type: ignore[index]
    assert kept.with_name("x.whence.json").exists()
    assert isinstance(whence.load(kept), whence.DualDA)


def test_files_that_cannot_be_written_at_the_end_are_kept_elsewhere(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit("--test", "my_module:test")
    no_room_in(place, monkeypatch)
    opened = ["x.whence", "--trust", "--tests", "0", "-k", "1"]
    for command, out, file in (("explain", "why", "index.html"), ("report", "report.html", "")):
        said = refused(CliRunner().invoke(cli.app, [command, *opened, "--out", out]))
        kept = Path(re.search(r"kept as '(.*)'", said)[1])  # type: ignore[index]
        assert "<html" in (kept / file if file else kept).read_text()
