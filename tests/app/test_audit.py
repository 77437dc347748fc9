"""whence audit, as a user runs it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from tests.helpers.commands import mistake, run


def test_audit_of_labels_goes_to_a_table_json_and_files(fitted: Path) -> None:
    assert "| sample | label | suggested |" in run("audit", "x.whence", "-n", "5").stdout
    found = json.loads(run("audit", "x.whence", "-n", "5", "--json").stdout)
    assert len(found["columns"]["index"]) == 5
    run("audit", "x.whence", "-n", "7", "--out", "labels.csv")
    with open(fitted / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["index"]) for row in rows][:5] == found["columns"]["index"]
    assert ".csv" in str(mistake("audit", "x.whence", "--out", "labels.txt"))
    assert "confidence" in str(mistake("audit", "x.whence", "--ranking", "magic"))


def test_other_views_of_the_audit(fitted: Path) -> None:
    assert "| class | samples |" in run("audit", "x.whence", "--view", "classes").stdout
    assert "9 samples to keep" in run("audit", "x.whence", "--view", "coreset").stdout
    said = run("audit", "x.whence", "--view", "shortcut", "--target", "1", "-n", "3").stdout
    assert said.count("training sample") == 3
    assert "'target' must name the class" in str(mistake("audit", "x.whence", "--view", "shortcut"))
    assert "labels, duplicates, classes, coreset" in str(mistake("audit", "x.whence", "--view", "magic"))


def test_audit_of_novel_tests(fitted: Path) -> None:
    assert "further from the training set" in run("audit", "x.whence", "--view", "novelty").stdout
    run("audit", "x.whence", "--view", "novelty", "--out", "novelty.json")
    found = json.loads((fitted / "novelty.json").read_text())
    assert len(found["tests"]) == 30
