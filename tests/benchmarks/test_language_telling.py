"""Tables of what was measured, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.language import telling

ROW = {"recall@1": 1.0, "recall@10": 0.5, "MRR": 1.0}
LOST = {"recall@1": 0.0, "recall@10": 0.5, "MRR": 0.5, "other first": 1.0}
REMOVED = {
    "documents": 3,
    "of the facts": 2,
    "they have": 4,
    "chosen": {"still": [1.0, 0.0], "change": [0.0, -3.0]},
}
BANDS = {"corpus": {"all": [10, 0.5], "0": [0, None]}, "held out": {"all": [4, 0.25], "0": [4, 0.25]}}
SIZES = {"positions": 10, "tokens": 5, "bytes": 1e6, "inputs": 2e6, "support": 5}
SAVED = {
    "right": {"untuned": {"1": [0, 5], "3/1": [0, 2]}, "tuned": {"1": [2, 5], "3/1": [1, 2]}},
    "facts": [{"told": "1"}, {"told": "1"}, {"told": "3/1"}],
    "methods": {"ours": [ROW, LOST, LOST], "random": [LOST, LOST, LOST]},
    "removal": {"ours": {**REMOVED, "others": {"still": [1.0], "change": [-0.5]}}},
    "faithfulness": {"ours": BANDS},
    "growth": [{**SIZES, "seconds": 2.0, "gap": 1e-3}],
}


def test_tables_and_figure(tmp_path: Path) -> None:
    path = tmp_path / "language.json"
    path.write_text(json.dumps(SAVED), encoding="utf-8")
    lines = telling.tables(path).splitlines()
    assert "| tuned | 2 of 5 | 1 of 2 |" in lines
    ours = next(line for line in lines if line.startswith("| ours | 0.50"))
    assert ours.split(" | ")[4:6] == ["0.00 ± 0.00", "0.50 ± 0.00"]
    assert any(line.startswith("| ours | 3 | 2 of 4 | 0.50 ± ") and "-1.50 ±" in line for line in lines)
    assert "| ours | corpus | 50.0% of 10 | – |" in lines
    assert "| 10 | 5 | 2 | 1 MB | 2 MB | 1.0e-03 | 50% |" in lines
    telling.draw(path, tmp_path / "language.svg")
    assert "<svg" in (tmp_path / "language.svg").read_text()


def test_the_spread_is_that_of_a_mean() -> None:
    mean, error = telling.spread([0.0, 1.0] * 50)
    assert mean == 0.5
    assert error == pytest.approx(0.05, abs=0.01)
