"""Planted faults, and a scripted user of the explorer who looks for them in a real browser.

The network of the embedded sample is trained on data with a planted fault, a DualDA is fitted, and the
page is served. The user knows what kind of problem to look for and nothing else: not which samples, which
class or where. The user starts at Start and clicks what the page offers for that kind of problem. Clicks
are counted, a choice in a list being one; seconds are from the first click until the answer is drawn,
computations that Start begins included. A script reads at once: the seconds are those of the page, not of
a person.

Faults, each with seeds 0, 1 and 2 (of the planting and of the training) and classes Pullover, Sandal and
Bag:

- **wrong labels**: 2 % of all training labels (100) are given the class. They were of other classes, at
  random. Besides, 2 % of the class alone (10 samples), which is as few as an audit may have to find.
- **shortcut**: a bright square of 4 × 4 pixels in the upper left corner of 30 % of the class's training
  images, and of 100 test images of other classes.
- **leaks**: 1 % of the tests (10) copied to the end of the training set, with their labels.

A fault is found when

- wrong labels: the first row of cards of a page of Labels to check has at least 3 planted samples. The
  user clicks the task on Start, then "next page", for at most 10 pages. Then the user clicks "mark them",
  which takes all suggested labels; reported are the clicks until then, and which of the planted samples
  that are likely wrong are on the change list, and what else is.
- shortcut: the screen of a wrong prediction has at least 3 samples with the square among its 5 supporting
  ones. The user clicks the task "Wrong predictions" on Start, then "next test", for at most 40 tests.
  Then the user shows the maps; reported is the share of the absolute relevance that lies in the corner,
  which has 2 % of the pixels: of the test's map, and in the mean of the supporting samples' maps.
  Added after the first run, to say why: of all tests with the square that are given the class, how many
  have 0 to 5 such samples among their 5 supporting ones, by either question of the page.
- leaks: Duplicates lists it. The user clicks the tab, then "next page" while there are groups with tests.
  Recall and precision are those of pairs of a test and a training sample that share a group.

The **path** is one run on the 100 wrong labels of seed 0: from Start to a wrong prediction with a planted
sample among its 5 supporting ones, that pair, its true label as the mark, "what would change here?", then
Labels to check and "mark them", all tests, and the export. Its ``retrain.py`` is run unchanged.

``python -m benchmarks faults`` writes docs/results/faults.json and the table of
docs/research/explorer.md.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.explorer import load, served
from benchmarks.faults import planting, render, users
from benchmarks.machine import describe
from benchmarks.tables import publish
from whence.core import store

SEEDS = 0, 1, 2
FAULTS: dict[str, tuple[Callable[..., planting.Planting], Callable[..., dict[str, Any]]]] = {
    "100 wrong labels": (functools.partial(planting.wrong_labels, share=0.02), users.find_wrong_labels),
    "10 wrong labels": (functools.partial(planting.wrong_labels, share=0.002), users.find_wrong_labels),
    "shortcut": (planting.shortcut, users.find_shortcut),
    "leaks": (planting.leaks, users.find_leaks),
}


def run(cache: Path, results: Path) -> None:
    """Let the user look for every fault; what a results file has is not measured again."""
    known = json.loads(results.read_text()) if results.exists() else {"cells": {}}
    for fault, (plant, find) in FAULTS.items():
        for seed in SEEDS:
            if str(seed) not in known["cells"].get(fault, {}):
                cell = _measure(cache, fault, plant, seed, find)
                known["cells"].setdefault(fault, {})[str(seed)] = cell
                _save(results, known)
    for seed in SEEDS:
        cell = known["cells"]["shortcut"][str(seed)]
        if "fooled" not in cell:
            cell["fooled"] = planting.fooled(
                *planting.make(_folder(cache, "shortcut", seed), planting.shortcut, seed), seed
            )
            _save(results, known)
    if "path" not in known:
        known["path"] = _path(cache)
        _save(results, known)
    publish("faults", render.table(known))


def _save(results: Path, known: dict[str, Any]) -> None:
    known["machine"] = describe()
    store.write_text(results, json.dumps(known, indent=1) + "\n")


def _folder(cache: Path, fault: str, seed: int) -> Path:
    return cache / "faults" / f"{fault.replace(' ', '-')}-{seed}"


def _measure(
    cache: Path, fault: str, plant: Callable[..., Any], seed: int, find: Callable[..., dict[str, Any]]
) -> dict[str, Any]:
    saved, planted = planting.make(_folder(cache, fault, seed), plant, seed)
    Path(f"{saved}.work.json").unlink(missing_ok=True)
    with served(saved, "--trust") as (port, _, _), users.visiting(port) as page:
        cell = find(users.User(page), planted)
    cell["load"] = load()
    print(f"- {fault}, seed {seed}: {cell}", flush=True)
    return cell


def _path(cache: Path) -> dict[str, Any]:
    out = (cache / "faults" / "corrected").resolve()
    fault, (plant, _) = next(iter(FAULTS.items()))
    cell = _measure(cache, fault, plant, 0, functools.partial(users.correct_all, folder=out))
    python = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, str(out / "retrain.py")], check=True, env=python)
    return {**cell, "retrain": json.loads((out / "retrain.json").read_text())}
