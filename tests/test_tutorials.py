"""The manual's tutorials run, with a few samples."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

TUTORIALS = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.py"))
NEEDS = {"text": "transformers", "cluster": "ray"}


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = NEEDS.get(path.stem)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    monkeypatch.setenv("WHENCE_TUTORIAL_SAMPLES", "150")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    try:
        runpy.run_path(str(path), run_name="tutorial")
    finally:
        plt.close("all")
    assert capsys.readouterr().out
