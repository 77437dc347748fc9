"""Names that come from files do nothing in a terminal or a spreadsheet."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.helpers.commands import MODULE
from tests.helpers.tables import Written
from whence.app import cli
from whence.core.display import cell, no_formula, plain, plain_line

HOSTILE = (
    "\x1b[31mred\x1b]0;title\x07",
    "[bold]x[/bold]\nError: forged | line",
    "=cmd|' /C calc'!A0\x9b2J\u202e",
)
NAMES = (
    f"\nclass Named(torch.utils.data.TensorDataset):\n    classes = {HOSTILE!r}\n"
    + """
named = Named(*map(torch.as_tensor, train))
held = Named(*map(torch.as_tensor, test))
"""
)
NAMED = ["--model", "my_module:build", "--data", "my_module:named", "--test", "my_module:held"]


def test_control_characters_are_written_as_escapes() -> None:
    assert plain("a\x1b[2Jb\x07\x7f\x9b\r") == "a\\x1b[2Jb\\x07\\x7f\\x9b\\r"
    assert plain("\u202eabc\u2066\u200f\ud800\u2028") == "\\u202eabc\\u2066\\u200f\\ud800\\u2028"
    assert plain("a\tb\nc") == "a\tb\nc"
    assert plain_line("a\tb\nc") == "a\\tb\\nc"
    assert plain("größe 漢字 👩\u200d🔬 العربية") == "größe 漢字 👩\u200d🔬 العربية"
    assert cell("a|b\n") == "a\\|b\\n"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_formulas_are_defused_in_csv(tmp_path: Path, text: str) -> None:
    table = Written({"name": [text, "a=b"], "score": [-0.5, 2], "some": [[-1, 2], [text]]})
    table.to_csv(tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[1] == ["'" + text, "-0.5", "-1 2"]
    assert rows[2] == ["a=b", "2", "'" + text]
    assert no_formula("plain - name") == "plain - name"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_module.py").write_text(MODULE + NAMES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    harmless(run("fit", *NAMED, "--C", "0.1", "--out", "x.whence"))
    return tmp_path


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli.app, list(arguments))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result


def harmless(result: Result) -> str:
    text = result.stdout
    acting = {c for c in text if unicodedata.category(c) in ("Cc", "Cs") and c != "\n"} | (
        {"\u202e"} & set(text)
    )
    assert not acting
    assert not any(line.startswith("Error: forged") for line in text.splitlines())
    return text


def test_names_of_classes_do_nothing_in_a_terminal(place: Path) -> None:
    opened = ["x.whence", "--trust"]
    said = [
        harmless(run("info", "x.whence")),
        harmless(run("attribute", *opened, "--tests", "0-9")),
        harmless(run("audit", *opened)),
        harmless(run("audit", *opened, "--view", "classes")),
        harmless(run("audit", *opened, "--view", "shortcut", "--target", "1")),
    ]
    assert "\\x1b[31mred" in said[0]
    assert "[bold]x[/bold]\\nError: forged" in said[0]
    assert all(line.count(" | ") == 5 for line in said[3].splitlines()[2:])
    found = json.loads(harmless(run("attribute", *opened, "--tests", "0", "--json")))
    assert found[0]["predicted"] in HOSTILE
    error = (
        CliRunner().invoke(cli.app, ["attribute", *opened, "--tests", "0", "--target", "\x1b[2J"]).exception
    )
    assert error is not None


def test_names_of_classes_do_nothing_in_a_spreadsheet(place: Path) -> None:
    run("audit", "x.whence", "--trust", "-n", "90", "--out", "labels.csv")
    with (place / "labels.csv").open(newline="") as file:
        labels = {row["label_name"] for row in csv.DictReader(file)}
    assert labels == {HOSTILE[0], HOSTILE[1], "'" + HOSTILE[2]}


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "\x1b[31mnowhere"],
        ["info", "a", "\x1b[31mb\nError: forged"],
        ["info", "--\x1b[2J"],
        ["\x1b[2J"],
        ["attribute", "x.whence", "--trust", "--tests", "\x1b[2J\n"],
        ["cache", "ls", "\x1b[2J"],
        ["cache", "rm", "\x1b[2J"],
    ],
)
def test_errors_do_nothing_in_a_terminal(place: Path, arguments: list[str]) -> None:
    code = "from whence.app.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert "\x1b" not in said
    assert "x1b" in said
    assert "Traceback" not in said
    assert done.returncode == (0 if arguments[:2] == ["cache", "ls"] else 2)
