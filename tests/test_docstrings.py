"""The examples in docstrings run, with the output that they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import whence_studies.scenes.sources  # noqa: F401  registers the data sets, by whose names examples go
from tests.helpers.registered import forgetting

SRC = Path(__file__).parents[1] / "src"
MODULES = sorted(
    ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
    for path in SRC.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with forgetting():
        results = doctest.testmod(importlib.import_module(name))
    assert results.attempted
    assert not results.failed, capsys.readouterr().out
