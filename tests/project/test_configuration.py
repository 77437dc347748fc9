"""What stands beside an explainer: files of before are read, and only whence's own code needs no trust."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whence.errors import InvalidInputError
from whence.project import Configuration


def written(folder: Path, module: str) -> Path:
    path = folder / "demo.whence.json"
    names = {"model": f"{module}:network", "data": f"{module}:train", "test": f"{module}:test"}
    path.write_text(json.dumps(names | {"options": {"seed": 0}, "reading": {"cache_dir": "mine"}}))
    return path


@pytest.mark.parametrize("module", ["whence.demo", "whence.sample.demo"])
def test_the_demo_needs_no_trust_wherever_its_code_was(tmp_path: Path, module: str) -> None:
    found = Configuration.trusted(written(tmp_path, module), {}, trust=False)
    assert found.names() == {
        "model": "whence.sample.demo:network", "data": "whence.sample.demo:train",
        "test": "whence.sample.demo:test",
    }  # fmt: skip
    assert found.reading == {"cache_dir": "mine"}


@pytest.mark.parametrize("module", ["whence.demos", "my.whence.demo", "whence.app.demo"])
def test_only_the_demo_itself_does(tmp_path: Path, module: str) -> None:
    path = written(tmp_path, module)
    with pytest.raises(InvalidInputError, match="names code that would be imported and run"):
        Configuration.trusted(path, {}, trust=False)
    assert Configuration.trusted(path, {}, trust=True).model == f"{module}:network"
