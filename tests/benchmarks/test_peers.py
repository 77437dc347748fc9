"""The comparison with other packages, without them: its contract, arithmetic, table and figure."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.peers import contract, scene, worker
from benchmarks.peers.cells import attempt, fitting, predicted_seconds, scaled

NUMBERS = 384  # features of the scene "bbc"


class Products(contract.Method):
    """A package that keeps the training set and gives products with it."""

    def cache(self, scene: scene.Scene, folder: Path) -> int:
        self.x = scene.x
        np.save(folder / "x.npy", self.x.numpy())
        return contract.size(folder)

    def explain(self, scene: scene.Scene) -> Any:
        return (scene.tests @ self.x.T).numpy()


class Transposed(Products):
    """One that gives (train, test)."""

    def explain(self, scene: scene.Scene) -> Any:
        return super().explain(scene).T


class Silent(Products):
    """One that answers another question."""

    def explain(self, scene: scene.Scene) -> None:
        return None


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a file of packages with three rows."""
    module = ModuleType("benchmarks.peers.packages.fake")
    rows = [contract.Row(kind.__name__, kind) for kind in (Products, Transposed, Silent)]
    module.PACKAGE = contract.Package("numpy", (), rows, ("json",))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return "fake"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A scene of 30 samples and 7 tests."""
    here = tmp_path / "bbc"
    here.mkdir()
    rng = np.random.default_rng(0)
    x, tests = (rng.normal(size=(n, NUMBERS)).astype(np.float32) for n in (30, 7))
    np.savez(here / "arrays.npz", x=x, y=np.arange(30) % 5, tests=tests, truth=np.arange(7) % 5)
    torch.save([scene.network("bbc").state_dict()], here / "weights.pt")
    return tmp_path


def test_a_method_is_measured(folder: Path, fake: str) -> None:
    measured, scores = worker.measure(folder, "bbc", fake, "Products", 20, 5)
    with np.load(folder / "bbc" / "arrays.npz") as arrays:
        expected = arrays["tests"][:5] @ arrays["x"][:20].T
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    assert (measured["n"], measured["tests"]) == (20, 5)
    assert measured["bytes"] == 20 * NUMBERS * 4 + 128  # with the header of .npy
    assert measured["caching"] >= 0
    assert measured["explaining"] >= 0
    assert measured["versions"]["numpy"] == np.__version__


def test_a_method_may_answer_another_question(folder: Path, fake: str) -> None:
    measured, scores = worker.measure(folder, "bbc", fake, "Silent", 20, 5)
    assert scores is None
    assert measured["explaining"] is None


def test_a_failure_is_told(folder: Path, tmp_path: Path) -> None:
    row = contract.Row("missing", Products)
    found = attempt(Path(sys.executable), folder, "bbc", "whence", row, 20, 5, tmp_path / "out", 60.0)
    assert "StopIteration" in found["error"]


SMALL = {"n": 100, "tests": 10, "caching": 2.0, "explaining": 1.0, "bytes": 50, "peak": 10**9}
SMALL |= {"caching_cpu": 4.0, "explaining_cpu": 2.0}


def test_runs_are_cut_to_the_budget() -> None:
    row = contract.Row("r", Products)
    assert predicted_seconds(SMALL, row, 1_000, 100) == 2.0 * 10 + 1.0 * 100
    assert fitting(SMALL, row, 1_000, 100, 120.0) == (1_000, 100)
    assert fitting(SMALL, row, 1_000, 100, 20.0) == (500, 20)  # 40 s for all samples and 20 tests
    assert fitting(SMALL, row, 1_000, 100, 1.0) == (200, 20)
    per_test = contract.Row("r", Products, per_test=True)
    assert fitting(SMALL, per_test, 1_000, 100, 15.0) == (500, 100)  # 30 s for all


def test_figures_are_scaled_on_the_line_through_two_sizes() -> None:
    found = {**SMALL, "n": 500, "caching": 4.0, "explaining": 5.0, "bytes": 130}
    whole = scaled(found, SMALL, contract.Row("r", Products), 1_000, 20)
    # 2 s more for 400 samples more, and 4 s more for 4,000 pairs more.
    assert (whole["caching"], whole["explaining"], whole["bytes"]) == pytest.approx((6.5, 20.0, 230))
    assert not whole["whole"]
    per_test = scaled(found, SMALL, contract.Row("r", Products, per_test=True), 1_000, 20)
    assert per_test["explaining"] == 10.0  # of one number of tests there is no line
    assert scaled(SMALL, SMALL, contract.Row("r", Products), 100, 10)["whole"]
