"""The command line as a whole: its version, its help and what it refuses."""

from __future__ import annotations

import re

from typer.testing import CliRunner

import whence
from tests.helpers.commands import whole
from whence.app import cli


def test_version_and_help():
    version = whole("--version")
    assert (version.returncode, version.stdout) == (0, f"whence {whence.__version__}\n")
    result = CliRunner().invoke(cli.app, ["--help"])
    assert result.exit_code == 0
    for item in cli.app.registered_commands:
        assert item.callback is not None
        assert re.search(rf"^\s+{item.callback.__name__}\s+\w", result.stdout, re.MULTILINE)


def test_unknown_options_and_values_are_refused():
    for arguments, expected in ((["demo", "--sed", "1"], "--sed"), (["demo", "--seed", "-1"], "--seed")):
        result = CliRunner().invoke(cli.app, arguments)
        assert result.exit_code == 2
        assert expected in result.output


def test_help_fits_a_terminal_of_80_columns_uncut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = [item.callback.__name__ for item in cli.app.registered_commands]
    for arguments in ([], *([name] for name in names), ["cache"], ["cache", "ls"], ["cache", "rm"]):
        lines = CliRunner().invoke(cli.app, [*arguments, "--help"]).stdout.splitlines()
        assert max(map(len, lines)) <= 80
        assert not [line for line in lines if line.endswith("...") and "Usage" not in line]
