"""Planted faults of the explorer: what is planted, and the tables of the page."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pytest
from benchmarks.faults import planting, render

from benchmarks import clicks, soak, tables
from whence import sample

RESULTS = tables.PAGE.parents[1] / "results"
TABLES = {"faults": render.table, "soak": soak.table, "clicks": clicks.table}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_the_page_are_those_of_the_results(name: str) -> None:
    page = tables.PAGE.read_text(encoding="utf-8")
    table = TABLES[name](json.loads((RESULTS / f"{name}.json").read_text()))
    assert table in page
    assert tables.filled(page, name, table) == page


def planted(plant: Any) -> planting.Planting:
    return plant(sample.load(), 5, np.random.default_rng(0))


def test_wrong_labels_are_of_other_classes() -> None:
    found = planted(functools.partial(planting.wrong_labels, share=0.02))
    wrong = np.flatnonzero(found.data.train_labels.numpy() != sample.load().train_labels.numpy())
    assert len(wrong) == 100 == len(found.train)
    assert set(wrong) == set(found.train)
    assert set(found.data.train_labels[wrong].tolist()) == {5}


def test_the_square_is_on_a_class_and_on_tests_of_others() -> None:
    found, clean = planted(planting.shortcut), sample.load()
    changed = (found.data.train_images != clean.train_images).flatten(1)
    assert set(found.data.train_labels[found.train].tolist()) == {5}
    assert len(found.train) == round(0.3 * int((clean.train_labels == 5).sum()))
    assert set(np.flatnonzero(changed.any(1).numpy())) == set(found.train)
    assert not changed.reshape(-1, 28, 28)[:, 4:].any()
    assert changed.sum() == 16 * len(found.train)
    assert 5 not in found.data.test_labels[found.tests]


def test_leaks_are_copies_at_the_end() -> None:
    found = planted(planting.leaks)
    assert found.train.tolist() == list(range(5_000, 5_010))
    assert (found.data.train_images[found.train] == found.data.test_images[found.tests]).all()
    assert (found.data.train_labels[found.train] == found.data.test_labels[found.tests]).all()
