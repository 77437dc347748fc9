"""The manual's tutorials run, with a few samples."""

from __future__ import annotations

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
NEEDS = {"text": "transformers", "cluster": "ray"}
TUTORIALS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.alone] if path.stem == "cluster" else [])
    for path in sorted(FOLDER.glob("*.py"))
]


@pytest.mark.parametrize("path", TUTORIALS)
def test_a_tutorial_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = NEEDS.get(path.stem)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    monkeypatch.setenv("WHENCE_TUTORIAL_SAMPLES", "150")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    if path.stem == "cluster":  # in a process of its own, as a user runs it: Ray has one session per process
        ended = subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, check=False, cwd=FOLDER.parents[1]
        )
        assert ended.returncode == 0, ended.stderr[-3000:]
        assert ended.stdout
        return
    try:
        runpy.run_path(str(path), run_name="tutorial")
    finally:
        plt.close("all")
    assert capsys.readouterr().out
