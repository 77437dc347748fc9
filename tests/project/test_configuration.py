"""The configuration next to an explainer: crafted ones are refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.commands import mistake
from whence.errors import InvalidInputError, StoreError
from whence.project import Configuration


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
        ({"model": 3}, "model: input should be a valid string"),
        ({"test": []}, "test: input should be a valid string"),
        ({"options": "C"}, "options: input should be an object"),
        ({"options": {"alpha": 1}}, "it has 'alpha', which is no option of the fit"),
        ({"reading": {"collate_fn": "x"}}, "it has 'collate_fn', which is no option of the fit"),
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
