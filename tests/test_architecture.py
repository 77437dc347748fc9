"""The examples of docs/architecture.md run, and its table names the rooms that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import whence
import whence_studies
from tests.helpers.registered import forgetting
from tests.test_imports import ROOMS
from whence import engine

PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_table_lists_all_rooms_in_order() -> None:
    table = PAGE.split("| room | what lives there |")[1].split("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, flags=re.M)
    levels = [next(level for level, rooms in enumerate(ROOMS) if room in rooms) for room in listed]
    assert levels == sorted(levels)
    assert set(listed) == {room for rooms in ROOMS for room in rooms} - {"__main__"}


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
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.S):
        exec(compile(block, "docs/architecture.md", "exec"), space)
    nearest = whence.methods.get("nearest")(show_progress=False).fit(model, (x, y))
    scores = nearest.attribute(x[:3], target=0)
    distances = torch.cdist(nearest.model_.read(x[:3], 3).features, nearest.model_.read(x, 40).features)
    torch.testing.assert_close(scores, torch.where(y == 0, 1, -1) / (1 + distances), atol=1e-5, rtol=1e-5)
    assert space["explainer"].task_.output_names == ("grade 1", "grade 2")
    assert "negative" in whence_studies.suite.metric.METRICS
    assert space["arrays"]["squares"].tolist() == [0, 1, 4, 9]
    assert engine.results(abs, [-1, 2, -3], "backwards") == [1, 2, 3]
