"""The examples of docs/interoperability.md run, but for those of libraries in environments of their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import whence
from tests.data.test_transformers import LABELS, bert, raw, texts
from tests.data.test_transformers import tokeniser as tokeniser
from tests.data.test_transformers import trainer as trainer

transformers = pytest.importorskip("transformers")
pytest.importorskip("captum")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::whence.errors.DataWarning")

PAGE = (Path(__file__).parents[1] / "docs" / "interoperability.md").read_text(encoding="utf-8")
ELSEWHERE = "# in "  # how a block begins that runs in another environment


def test_the_examples_run(
    tokeniser: Any, trainer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    small = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    own = {"model": small, "X": torch.randn(40, 4), "y": torch.arange(40) % 3}
    pipe = transformers.pipeline("text-classification", model=bert(), tokenizer=tokeniser, device="cpu")
    hub = {"trainer": trainer, "pipe": pipe, "texts": texts(), "labels": LABELS}
    hub |= {"model": bert(), "dataset": raw(), "tokenizer": tokeniser, "whence": whence}
    space: dict[str, Any] = dict(own)
    ran = 0
    for title, body in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.S | re.M):
        for block in re.findall(r"```python\n(.*?)```", body, flags=re.S):
            if not block.startswith(ELSEWHERE):
                exec(compile(block, title, "exec"), dict(hub) if title.startswith("transformers") else space)
                ran += 1
    assert ran == 10
    assert (tmp_path / "labels.parquet").exists()
