"""What a configuration names is run only where the user has named it or trusts the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.helpers.commands import NAMED, mistake, run
from whence.app import cli
from whence.errors import InvalidInputError, StoreError
from whence.project import Configuration

SPY = """
from pathlib import Path
Path("imported").touch()
from my_module import *
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["attribute", "x.whence", "--tests", "0"],
        ["explain", "x.whence", "--tests", "0", "--out", "why"],
        ["report", "x.whence", "--tests", "0", "--out", "report.html"],
        ["audit", "x.whence"],
        ["serve", "x.whence", "--port", "8765"],
        ["fit", "--config", "x.whence.json", "--out", "y.whence"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_nothing_runs_that_only_a_file_names(fitted: Path, arguments: list[str]) -> None:
    (fitted / "spy.py").write_text(SPY)
    configuration = json.loads((fitted / "x.whence.json").read_text())
    configuration |= {"model": "spy:build", "preprocess": "spy:numbers"}
    (fitted / "x.whence.json").write_text(json.dumps(configuration))
    for named, left in (
        ([], "model spy:build"),
        (["--model", "my_module:build", "--data", "my_module:train"], "test my_module:test"),
        (NAMED, "preprocess spy:numbers"),
    ):
        error = CliRunner().invoke(cli.app, [*arguments, *named]).exception
        assert isinstance(error, InvalidInputError), error
        assert f"x.whence.json' names code that would be imported and run: {left} (from" in str(error)
        assert "Pass --trust" in str(error)
        assert "model" not in str(error).split("imported and run: ")[1] or not named
    assert str(fitted / "spy.py") in str(error)
    assert "--preprocess spy:numbers" in str(error)
    assert not (fitted / "imported").exists()


def test_what_is_named_on_the_command_line_runs_without_trust(fitted: Path) -> None:
    result = CliRunner().invoke(cli.app, ["attribute", "x.whence", "--tests", "0", *NAMED])
    assert result.exit_code == 0, result.exception
    assert result.stdout == run("attribute", "x.whence", "--tests", "0").stdout


def test_without_trust_the_cache_that_a_file_names_is_left_alone(fitted: Path) -> None:
    configuration = json.loads((fitted / "x.whence.json").read_text())
    configuration["reading"]["cache_dir"] = str(fitted / "elsewhere")
    (fitted / "x.whence.json").write_text(json.dumps(configuration))
    assert CliRunner().invoke(cli.app, ["audit", "x.whence", *NAMED]).exit_code == 0
    assert not (fitted / "elsewhere").exists()
    run("audit", "x.whence")
    assert (fitted / "elsewhere").exists()


def test_an_explainer_without_configuration_needs_names(fitted: Path) -> None:
    (fitted / "x.whence.json").unlink()
    assert "no configuration" in str(mistake("attribute", "x.whence", "--tests", "0"))


# The configuration next to an explainer: crafted ones are refused in words


def written(folder: Path, module: str) -> Path:
    path = folder / "demo.whence.json"
    names = {"model": f"{module}:network", "data": f"{module}:train", "test": f"{module}:test"}
    path.write_text(json.dumps(names | {"options": {"seed": 0}, "reading": {"cache_dir": "mine"}}))
    return path


def test_the_demo_needs_no_trust(tmp_path: Path) -> None:
    found = Configuration.trusted(written(tmp_path, "whence.sample.demo"), {}, trust=False)
    assert found.names() == {
        "model": "whence.sample.demo:network", "data": "whence.sample.demo:train",
        "test": "whence.sample.demo:test",
    }  # fmt: skip
    assert found.reading == {"cache_dir": "mine"}


@pytest.mark.parametrize("module", ["whence.demo", "my.whence.sample.demo", "whence.app.demo"])
def test_only_the_demo_itself_does(tmp_path: Path, module: str) -> None:
    path = written(tmp_path, module)
    with pytest.raises(InvalidInputError, match="names code that would be imported and run"):
        Configuration.trusted(path, {}, trust=False)
    assert Configuration.trusted(path, {}, trust=True).model == f"{module}:network"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"more": 1}, "unexpected keyword argument 'more'"),
        ({"model": 3}, "'model' must be a text"),
        ({"test": []}, "'test' must be a text"),
        ({"options": "C"}, "options: input should be an object"),
        ({"options": {"alpha": 1}}, "it has 'alpha', which is not an option of the fit"),
        ({"reading": {"collate_fn": "x"}}, "it has 'collate_fn', which is not an option of the fit"),
    ],
)
def test_crafted_configurations_are_named(fitted: Path, changes: dict[str, object], message: str) -> None:
    configuration = json.loads((fitted / "x.whence.json").read_text())
    (fitted / "x.whence.json").write_text(json.dumps(configuration | changes))
    error = mistake("attribute", "x.whence", "--tests", "0")
    assert isinstance(error, StoreError)
    assert message in str(error)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "3", '{"model": NaN}', "\xff", ""])
def test_configurations_that_are_none(fitted: Path, text: str) -> None:
    (fitted / "x.whence.json").write_text(text, encoding="latin-1")
    assert isinstance(mistake("audit", "x.whence"), StoreError)
