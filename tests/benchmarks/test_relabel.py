"""The study of labels inspected: its noise, its arithmetic, a small run, and the page's figures."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.relabel import cells, noise, render, scenes
from examples import bbc_news, cifar10_resnet
from scipy.stats import ttest_1samp
from torch import nn

from tests.helpers.nets import mlp

RESULTS = render.DOCS / "results" / "relabel.json"
FILTER = """
import numpy as np


def find_label_issues(labels, probabilities, return_indices_ranked_by, n_jobs):
    wrong = np.flatnonzero(probabilities.argmax(axis=1) != labels)
    return wrong[np.argsort(probabilities[wrong, labels[wrong]])]
"""
RANK = """
def get_label_quality_scores(labels, probabilities):
    return probabilities[range(len(labels)), labels]
"""


@pytest.mark.parametrize("table", [noise.FASHION, noise.CIFAR, noise.NEWS])
def test_wrong_labels_follow_the_table_of_confusions(table: noise.Confusions) -> None:
    truth = np.arange(40_000) % len(table)
    given = noise.mislabelled(truth, table, 0.1, seed=3)
    wrong = given != truth
    assert wrong.sum() == 4_000
    names = list(table)
    total = sum(sum(row.values()) for row in table.values())
    for c, (name, row) in enumerate(table.items()):
        assert name not in row
        for k, other in enumerate(names):
            count = ((truth == c) & (given == k) & wrong).sum()
            expected = 4_000 * row.get(other, 0) / total
            assert abs(count - expected) <= 5 * expected**0.5  # a Poisson count
    assert np.array_equal(given, noise.mislabelled(truth, table, 0.1, seed=3))


def test_rows_of_the_tables_are_the_classes_in_their_order() -> None:
    assert tuple(noise.CIFAR) == cifar10_resnet.CLASSES
    assert tuple(noise.NEWS) == bbc_news.TOPICS


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> scenes.Scene:
    """Points around three distant corners, of which two are confused, and a stand-in for cleanlab."""
    package = tmp_path / "packages" / "cleanlab"
    package.mkdir(parents=True)
    for name, text in {"__init__": "", "filter": FILTER, "rank": RANK}.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(package.parent) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    corners = torch.tensor([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])

    def read(seed: int) -> scenes.Samples:
        generator = torch.Generator().manual_seed(seed)
        truth = torch.arange(120) % 3
        train, test = (corners[truth] + 0.4 * torch.randn(120, 2, generator=generator) for _ in range(2))
        return scenes.Samples(train, truth, test, truth)

    table = {"a": {"b": 3}, "b": {"a": 2}, "c": {"b": 1}}
    return scenes.Scene("Points", 1, read, lambda: mlp(2, 16, 8, 3, seed=None), table, 10, 16, 0.02)


def test_a_small_run_finds_the_wrong_labels_and_trains_nothing_twice(
    points: scenes.Scene, tmp_path: Path
) -> None:
    folder, python = tmp_path / "work", Path(sys.executable)
    found = cells.measure("points", 0, folder, python, points)
    assert (found["samples"], found["wrong"], found["sizes"]) == (120, 12, [1, 2, 6, 12, 18, 24])
    for order in ("whence", "cleanlab", "self-confidence"):
        # All that is inspected is wrong until none is left, and then the labels are the true ones.
        assert found["orders"][order]["found"] == [1, 2, 6, 12, 12, 12]
        assert found["orders"][order]["precision"] == 1.0
        assert found["orders"][order]["accuracy"][3:] == [found["accuracy"]["true"]] * 3
    assert found["accuracy"]["true"] == 1.0
    lines = (folder / "points-0.jsonl").read_text(encoding="utf-8").splitlines()
    assert found["trainings"] == len(lines) == len({json.loads(line)["labels"] for line in lines})

    def refuse() -> nn.Module:
        raise AssertionError("trained again")

    assert cells.measure("points", 0, folder, python, replace(points, make=refuse)) == found


def made(gains: list[list[float]], ceiling: float = 0.9) -> dict[str, Any]:
    """Results of two budgets: gains of whence, one pair per seed, and none of the other orders."""

    def order(values: list[float], found: list[int]) -> dict[str, Any]:
        accuracy = [0.8 + value for value in values]
        return {"accuracy": accuracy, "found": found, "precision": 0.5, "seconds": 1.0}

    seeds = {
        str(k): {
            "wrong": 10,
            "accuracy": {"given": 0.8, "true": ceiling},
            "fitted": 0.1,
            "trainings": 2,
            "seconds": 4.0,
            "orders": {key: order(pair if key == "whence" else [0.0, 0.0], [2, 5]) for key in render.ORDERS},
        }
        for k, pair in enumerate(gains)
    }
    return {"budgets": [0.05, 0.1], "cells": dict.fromkeys(render.SCENES, seeds)}


def test_gains_and_labels_needed() -> None:
    results = made([[0.01, 0.03], [-0.01, 0.05], [0.012, 0.04]])
    found = render.curves(results, "cifar-10")
    # Trapezoids over 0, 5 and 10 %: (0 + a)/2 and (a + b)/2, each half of the width.
    assert np.allclose(found.mean_gain("whence"), [0.0125, 0.0075, 0.016])
    assert found.needed("whence") == 0.1  # at 5 % one seed lost
    assert found.needed("random") is None
    assert np.allclose(found.found["random"], [[0, 0.2, 0.5]] * 3)
    differences = found.mean_gain("whence") - found.mean_gain("random")
    low, high = ttest_1samp(differences, 0).confidence_interval(0.95)
    assert np.allclose(render.interval(differences), [low, high])
    assert render.judged(differences).endswith("**better**")
    assert render.judged(-differences).endswith("**worse**")
    assert render.judged(np.array([0.01, -0.01, 0.002])) == "+0.07 (−2.43 to +2.57), tie"


def test_the_figure_shows_made_results(tmp_path: Path) -> None:
    render.figure(made([[0.01, 0.03], [0.02, 0.05]]), tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 1_000


def test_the_page_has_what_was_measured() -> None:
    page = render.PAGE.read_text(encoding="utf-8")
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert render.filled(page, results) == page, "python -m benchmarks relabel"
    assert {f"<!-- table {name} -->" in page for name in render.TABLES} == {True}
    for name, scene in scenes.SCENES.items():
        assert len(results["cells"][name]) == scene.seeds


def test_the_conclusion_of_the_page_holds() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    said = {"cifar-10": "better", "fashion-mnist": "tie", "bbc-news": "worse"}
    for name, word in said.items():
        found = render.curves(results, name)
        for other in ("cleanlab", "self-confidence"):
            assert render.verdict(found.mean_gain("whence") - found.mean_gain(other)) == word
        for order in ("whence", "cleanlab", "self-confidence"):
            assert render.verdict(found.mean_gain(order) - found.mean_gain("random")) == "better"
        needed = found.needed("whence")
        assert needed is not None
        assert needed <= 0.05


@pytest.mark.parametrize(
    ("name", "budget", "ours", "theirs"),
    [("cifar-10", 0.1, 47, 39), ("fashion-mnist", 0.05, 46, 43), ("bbc-news", 0.1, 79, 92)],
)
def test_wrong_labels_found_are_as_the_page_says(name: str, budget: float, ours: int, theirs: int) -> None:
    found = render.curves(json.loads(RESULTS.read_text(encoding="utf-8")), name)
    place = list(found.budgets).index(budget)
    shares = [round(100 * found.found[order][:, place].mean()) for order in ("whence", "cleanlab")]
    assert shares == [ours, theirs]
