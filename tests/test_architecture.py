"""The examples of docs/architecture.md and of docs/research/maintaining.md run; names on the pages exist."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest
import torch
from torch import nn

import whence
import whence_studies
from tests.helpers.registered import forgetting
from tests.test_imports import LEVEL
from whence import engine

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "architecture.md").read_text(encoding="utf-8")
MAINTAINING = (DOCS / "research" / "maintaining.md").read_text(encoding="utf-8")


def test_the_table_lists_all_packages_in_order() -> None:
    table = PAGE.split("| package | job |")[1].split("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, flags=re.M)
    levels = [LEVEL[package] for package in listed]
    assert levels == sorted(levels)
    assert set(listed) == set(LEVEL) - {"__main__"}
    home = Path(whence.__file__).parent
    folders = {path.parent.name for path in home.glob("*/__init__.py")}
    assert set(listed) == folders | {"errors"}


def test_the_walk_names_functions_that_exist() -> None:
    steps = re.findall(r"^\| (\d+) \| `([\w/]+)\.py` \| `([\w.]+)` \|", PAGE, flags=re.M)
    assert [int(number) for number, _, _ in steps] == list(range(1, len(steps) + 1))
    assert 10 <= len(steps) <= 15
    for _, file, name in steps:
        module = importlib.import_module(f"whence.{file.replace('/', '.')}")
        thing = reduce(getattr, name.split("."), module)
        assert callable(thing)
        assert thing.__module__ == module.__name__, f"{name} is not defined in {file}.py"


def test_files_on_the_pages_exist() -> None:
    home = Path(whence.__file__).parent
    for file in re.findall(r"`(\w+/[\w/]+\.py|\w+/\w+/)`", PAGE + MAINTAINING):
        assert (home / file).exists() or (DOCS.parent / file).exists(), file


@pytest.fixture
def _own_parts():
    with forgetting():
        yield


@pytest.mark.usefixtures("_own_parts")
def test_the_examples_run(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    x, y = torch.randn(40, 4), torch.arange(40) % 2
    space = {
        "explainer": whence.DualDA(C=1e-2, show_progress=False).fit(model, (x, y)),
        "x": x[:2],
        "model": model,
        "data": (x, y),
        "read": lambda: {"train": (x, y), "test": (x, y), "class_names": ["a", "b"]},
        "make": lambda inputs, n_classes: model,
        "folder": tmp_path,
    }
    for block in re.findall(r"```python\n(.*?)```", PAGE + MAINTAINING, flags=re.S):
        exec(compile(block, "docs/architecture.md", "exec"), space)
    nearest = whence.methods.get("nearest")(show_progress=False).fit(model, (x, y))
    scores = nearest.attribute(x[:3], target=0)
    distances = torch.cdist(nearest.model_.read(x[:3], 3).features, nearest.model_.read(x, 40).features)
    torch.testing.assert_close(scores, torch.where(y == 0, 1, -1) / (1 + distances), atol=1e-5, rtol=1e-5)
    assert space["explainer"].task_.output_names == ("grade 1", "grade 2")
    assert "negative" in whence_studies.suite.metric.METRICS
    assert space["arrays"]["squares"].tolist() == [0, 1, 4, 9]
    assert engine.results(abs, [-1, 2, -3], "backwards") == [1, 2, 3]
