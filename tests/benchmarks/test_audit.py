"""The benchmark of wrong labels from end to end, on points that leave little doubt, with another cleanlab."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks import audit, mislabelled
from tests.helpers.nets import mlp, train

CLEANLAB = """
class Datalab:
    def __init__(self, data, label_name, verbosity):
        self.labels = data[label_name]

    def find_issues(self, issue_types, features=None, pred_probs=None):
        self.scores = pred_probs[range(len(self.labels)), self.labels] if features is None else features[:, 0]

    def get_issues(self, kind):
        return {kind + "_score": Scores(self.scores)}


class Scores:
    def __init__(self, scores):
        self.scores = scores

    def to_numpy(self):
        return self.scores
"""
RANK = """
def get_label_quality_scores(labels, pred_probs, method):
    return pred_probs[range(len(labels)), labels]
"""


def points(seed: int) -> tuple[Tensor, Tensor, mislabelled.Fit]:
    """Forty points around each of four corners, and a network that stays too small to memorise them."""
    corners = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 10.0], [9.0, 10.0]])
    truth = torch.arange(160) % 4
    noise = torch.randn(160, 2, generator=torch.Generator().manual_seed(seed))

    def fit(inputs: Tensor, given: Tensor, seed: int) -> tuple[nn.Module, str]:
        model = mlp(2, 8, 8, 4, seed=seed)
        train(model, inputs, given, 60, 0.02, optimizer=torch.optim.AdamW)
        return model.eval(), "4"

    return corners[truth] + 0.3 * noise, truth, fit


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache, with points for data and a stand-in for cleanlab."""
    package = tmp_path / "packages" / "cleanlab"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(CLEANLAB, encoding="utf-8")
    (package / "rank.py").write_text(RANK, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(package.parent) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("WHENCE_DATA", "")
    monkeypatch.setattr(audit, "environment", lambda *_: Path(sys.executable))
    monkeypatch.setattr(mislabelled, "SETS", {"points": points})
    monkeypatch.setattr(mislabelled, "PATIENCE", 2)
    return tmp_path / "cache"


def test_it_runs_from_end_to_end(
    played: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[Path] = []
    monkeypatch.setattr(audit.shortcuts, "run", called.append)
    few = {"names": ("points",), "seeds": (0,)}
    parts = {title: {**options, **few} for title, options in audit.PARTS.items()}
    monkeypatch.setattr(audit, "PARTS", parts)
    monkeypatch.setattr(audit, "DRAWS", 20)
    audit.run(Path("nowhere"), played)
    assert called == [played]
    said = capsys.readouterr().out
    for title in parts:
        table = said.split(f"finding wrong labels, {title}.")[1].split("\n\n")[1].splitlines()
        cells = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in table[2:]}
        symmetric, pairs = map(float, cells[audit.DEFAULT])
        assert symmetric == 1.0
        assert pairs > 0.95
        assert float(cells["cleanlab self_confidence, cross-validated"][0]) > 0.9
        assert cells["the default is"][0].strip() in ("best", "tied")
        assert {len(row) for row in cells.values()} == {2}


def run(default: list[float], other: list[float]) -> audit.Run:
    """A run with two rows and what drawn samples gave."""
    both = {audit.DEFAULT: np.array(default), "other": np.array(other)}
    return audit.Run({key: float(values.mean()) for key, values in both.items()}, both, 0.0)


def test_the_default_is_best_tied_or_behind() -> None:
    assert audit.verdict([run([0.9, 0.9], [0.8, 0.8])]) == "best"
    assert audit.verdict([run([0.8, 0.9], [0.9, 0.85])]) == "tied"
    assert audit.verdict([run([0.8, 0.8], [0.9, 0.85])]) == "behind by 0.0750 (other)"
    # Of two training sets it is the mean that counts.
    assert audit.verdict([run([0.8, 0.8], [0.9, 0.9]), run([0.9, 0.9], [0.7, 0.7])]) == "best"
