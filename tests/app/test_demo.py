"""whence demo: what it writes, and the images that it chooses."""

from __future__ import annotations

import json
import re

import pytest
import torch

from whence import sample
from whence.app import demo
from whence.errors import InvalidInputError
from whence.project import Project
from whence.ui.explorer import Explorer


def test_demo_writes_figures_a_report_and_what_can_be_served(tmp_path):
    lines = []
    page = demo.run(tmp_path / "new" / "folder", epochs=1, show_progress=False, say=lines.append)

    assert page == tmp_path / "new" / "folder" / "index.html"
    html = page.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', html)[1])
    headings = [note["heading"] for note in data["notes"].values()]
    assert headings == ["Right and clear", "Right but contested", "Sure but wrong"]
    assert [str(row["index"]) for row in data["rows"][:3]] == list(data["notes"])
    right = [row["truth"] == row["predicted"] for row in data["rows"][:3]]
    assert right == [True, True, False]
    assert len(data["explanations"]) == len(data["rows"]) >= 20
    for name in ("clear", "contested", "wrong"):
        assert (page.parent / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert [line.split()[0] for line in lines] == ["Trained", "Fitted", "Explained", "All"]
    assert lines[-1].endswith(f"whence serve {page.parent / 'demo.whence'}")

    opened = Explorer(Project.open(page.parent / "demo.whence", show_progress=False))
    assert opened.info() == data["info"]
    again = opened.explain(int(next(iter(data["notes"]))))
    assert again["logit"] == pytest.approx(data["explanations"][str(again["test"])]["logit"], rel=1e-4)


def test_choice_follows_its_rules():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x

    class Explainer:
        def decision_function(self, x):
            return torch.tensor([[3.0, 0.5], [3.0, 1.0], [0.2, 0.1], [5.0, 1.0], [5.0, 1.0], [0.0, 9.0]])

        def predict(self, x):
            return torch.tensor([0, 0, 0, 0, 0, 1])

    logits = torch.tensor([[2.0, 0], [1, 0], [3, 0], [1, 0], [4, 0], [9, 0]])
    labels = torch.tensor([0, 0, 0, 1, 1, 0])  # the last is right, but model and surrogate disagree

    chosen = {choice.name: choice.index for choice in demo.choose(Model(), Explainer(), logits, labels)}
    assert chosen == {"clear": 0, "contested": 2, "wrong": 4}

    chosen = [
        choice.name for choice in demo.choose(Model(), Explainer(), logits, torch.zeros(6, dtype=torch.long))
    ]
    assert chosen == ["clear", "contested"]


def test_refused_before_any_training(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "train", lambda *a, **k: pytest.fail("trained first"))
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInputError, match="'out' must be a folder"):
            demo.run(out)
