"""The commands that read a saved explainer: info, attribute, explain, audit, and a repeated fit."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

import whence
from tests.app.test_fit import MODULE
from whence.app import cli
from whence.errors import InvalidInputError, StoreError, WhenceError

NAMED = ["--model", "my_module:build", "--data", "my_module:train", "--test", "my_module:test"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the user's module and a fitted explainer."""
    (tmp_path / "my_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    run("fit", *NAMED, "--C", "0.1", "--out", "x.whence")
    return tmp_path


def trusted(arguments: tuple[str, ...]) -> list[str]:
    """A command as whoever made the file runs it."""
    opens = arguments[0] in ("attribute", "explain", "audit", "report") or "--config" in arguments
    return [*arguments, "--trust"] if opens and "--help" not in arguments else list(arguments)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli.app, trusted(arguments))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result


def mistake(*arguments: str) -> WhenceError:
    error = CliRunner().invoke(cli.app, trusted(arguments)).exception
    assert isinstance(error, WhenceError), error
    assert "\n" not in str(error)
    return error


def test_a_fit_is_repeated_from_its_configuration(place: Path) -> None:
    said = json.loads((place / "x.whence.json").read_text())
    assert said["model"] == "my_module:build"
    assert said["options"]["C"] == 0.1
    assert said["version"] == whence.__version__
    run("fit", "--config", "x.whence.json", "--out", "again.whence")
    first, second = (whence.load(place / name) for name in ("x.whence", "again.whence"))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert json.loads((place / "again.whence.json").read_text()) == said


def test_fit_needs_a_model_or_a_configuration(place: Path) -> None:
    assert "--model must be given" in str(mistake("fit", "--out", "y.whence"))
    assert "--data must be given" in str(mistake("fit", "--model", "my_module:build", "--out", "y.whence"))
    (place / "bad.json").write_text("{")
    assert "no configuration" in str(mistake("fit", "--config", "bad.json", "--out", "y.whence"))


def test_a_configuration_comes_without_other_options(place: Path) -> None:
    error = mistake("fit", "--config", "x.whence.json", "--out", "y.whence", "--C", "1", "--layer", "2")
    assert "Got C, layer too" in str(error)


def test_info(place: Path) -> None:
    found = json.loads(run("info", "x.whence", "--json").stdout)
    explainer = whence.load(place / "x.whence")
    assert found["samples"] == 90
    assert found["support vectors"] == len(explainer.support_)
    assert found["C"] == 0.1
    assert found["duality gap"] == explainer.gap_
    assert "support vectors" in run("info", "x.whence").stdout
    assert isinstance(mistake("info", "nowhere.whence"), StoreError)


def test_attribute_gives_the_scores_of_the_explainer(place: Path) -> None:
    import my_module  # type: ignore[import-not-found]

    found = json.loads(run("attribute", "x.whence", "--tests", "0,3-4", "-k", "2", "--json").stdout)
    assert [test["test"] for test in found] == [0, 3, 4]
    explainer = whence.load(place / "x.whence", my_module.build())
    top = explainer.top_k(my_module.test[0][[0, 3, 4]], 2)
    for b, test in enumerate(found):
        kept = [i for i in top.proponents.indices[b].tolist() if i >= 0]
        assert [sample["index"] for sample in test["proponents"]] == kept
        assert test["truth"] == str(my_module.test[1][test["test"]])
    words = run("attribute", "x.whence", "--tests", "0", "--target", "1").stdout
    assert "evidence for (+) and against (−) 1" in words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tests", "x"], "'tests' must be a list such as 0,4-7"),
        (["--tests", "30"], r"'tests' must be in [0, 30)"),
        (["--tests", "5-3"], "at least one test sample"),
        (["--tests", "0", "--target", "7"], "'target' must be a class: 0 … 2. Got '7'"),
    ],
)
def test_attribute_names_mistakes(place: Path, arguments: list[str], message: str) -> None:
    assert message in str(mistake("attribute", "x.whence", *arguments))


def test_explain_writes_a_page_figures_and_data(place: Path) -> None:
    said = run("explain", "x.whence", "--tests", "1,2", "-k", "2", "--out", "why").stdout.strip()
    assert said == str(place / "why" / "index.html")
    assert sorted(path.name for path in (place / "why").iterdir()) == [
        "explanations.json", "index.html", "test-1.png", "test-2.png",
    ]  # fmt: skip
    data = json.loads((place / "why" / "explanations.json").read_text())
    assert [one["test"] for one in data] == [1, 2]
    assert isinstance(mistake("explain", "x.whence", "--tests", "0", "--out", "x.whence"), InvalidInputError)
    wrong = mistake("explain", "x.whence", "--tests", "0", "--out", "why", "--rules", "magic")
    assert "epsilon_plus_flat" in str(wrong)


def test_audit_of_labels_goes_to_a_table_json_and_files(place: Path) -> None:
    assert "| sample | label | suggested |" in run("audit", "x.whence", "-n", "5").stdout
    found = json.loads(run("audit", "x.whence", "-n", "5", "--json").stdout)
    assert len(found["columns"]["index"]) == 5
    run("audit", "x.whence", "-n", "7", "--out", "labels.csv")
    with open(place / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["index"]) for row in rows][:5] == found["columns"]["index"]
    assert ".csv" in str(mistake("audit", "x.whence", "--out", "labels.txt"))
    assert "consensus" in str(mistake("audit", "x.whence", "--ranking", "magic"))


def test_other_views_of_the_audit(place: Path) -> None:
    assert "| class | samples |" in run("audit", "x.whence", "--view", "classes").stdout
    assert "9 samples to keep" in run("audit", "x.whence", "--view", "coreset").stdout
    said = run("audit", "x.whence", "--view", "shortcut", "--target", "1", "-n", "3").stdout
    assert said.count("training sample") == 3
    assert "'target' must name the class" in str(mistake("audit", "x.whence", "--view", "shortcut"))
    assert "labels, classes, coreset, shortcut" in str(mistake("audit", "x.whence", "--view", "magic"))


def test_an_explainer_without_configuration_needs_names(place: Path) -> None:
    (place / "x.whence.json").unlink()
    assert "no configuration" in str(mistake("attribute", "x.whence", "--tests", "0"))


def test_errors_are_one_line_unless_debugged(place: Path) -> None:
    def whole(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = "from whence.app.cli import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
        )

    done = whole("info", "nowhere.whence")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: There is no explainer at 'nowhere.whence'")
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" in whole("--debug", "info", "nowhere.whence").stderr


def test_every_command_has_help_with_an_example(place: Path) -> None:
    for command in ("fit", "info", "attribute", "explain", "audit", "report", "serve"):
        said = run(command, "--help").stdout
        assert f"whence {command}" in said
    assert "--install-completion" in run("--help").stdout


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
def test_nothing_runs_that_only_a_file_names(place: Path, arguments: list[str]) -> None:
    (place / "spy.py").write_text(SPY)
    configuration = json.loads((place / "x.whence.json").read_text())
    configuration |= {"model": "spy:build", "preprocess": "spy:numbers"}
    (place / "x.whence.json").write_text(json.dumps(configuration))
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
    assert str(place / "spy.py") in str(error)
    assert "--preprocess spy:numbers" in str(error)
    assert not (place / "imported").exists()


def test_what_is_named_on_the_command_line_runs_without_trust(place: Path) -> None:
    result = CliRunner().invoke(cli.app, ["attribute", "x.whence", "--tests", "0", *NAMED])
    assert result.exit_code == 0, result.exception
    assert result.stdout == run("attribute", "x.whence", "--tests", "0").stdout


def test_without_trust_the_cache_that_a_file_names_is_left_alone(place: Path) -> None:
    configuration = json.loads((place / "x.whence.json").read_text())
    configuration["reading"]["cache_dir"] = str(place / "elsewhere")
    (place / "x.whence.json").write_text(json.dumps(configuration))
    assert CliRunner().invoke(cli.app, ["audit", "x.whence", *NAMED]).exit_code == 0
    assert not (place / "elsewhere").exists()
    run("audit", "x.whence")
    assert (place / "elsewhere").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"more": 1}, "unexpected keyword argument 'more'"),
        ({"model": 3}, "model: input should be a valid string"),
        ({"test": []}, "test: input should be a valid string"),
        ({"options": "C"}, "options: input should be an object"),
        ({"options": {"alpha": 1}}, "it has 'alpha', which is no option of the fit"),
        ({"reading": {"collate_fn": "x"}}, "it has 'collate_fn', which is no option of the fit"),
    ],
)
def test_crafted_configurations_are_named(place: Path, changes: dict[str, object], message: str) -> None:
    configuration = json.loads((place / "x.whence.json").read_text())
    (place / "x.whence.json").write_text(json.dumps(configuration | changes))
    error = mistake("attribute", "x.whence", "--tests", "0")
    assert isinstance(error, StoreError)
    assert message in str(error)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "3", '{"model": NaN}', "\xff", ""])
def test_configurations_that_are_none(place: Path, text: str) -> None:
    (place / "x.whence.json").write_text(text, encoding="latin-1")
    assert isinstance(mistake("audit", "x.whence"), StoreError)
