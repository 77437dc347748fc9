"""BBC News: the beginnings of articles, and their topics."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from whence.core.registry import register
from whence.errors import InvalidInputError
from whence_studies.scenes.datasets import Source, draw, require

_WORDS = 30  # of a text that are kept: the length of a short report, all of which a language model reads


def _read(folder: Path, n_test: int | None, seed: int) -> dict[str, Any]:
    """Read texts and topics; without an official split, tests are drawn first."""
    path = folder / "bbc-news" / "bbc-news.csv"
    require(
        path,
        "a CSV file bbc-news.csv with the columns label and text, of the articles at "
        "http://mlg.ucd.ie/datasets/bbc.html",
    )
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"label", "text"} <= rows[0].keys():
        raise InvalidInputError(f"{path} must have the columns label and text, and a row or more.")
    topics = sorted({row["label"] for row in rows})
    texts = [" ".join(row["text"].split()[:_WORDS]) for row in rows]
    labels = np.array([topics.index(row["label"]) for row in rows])
    held_out = draw(labels, len(rows) // 5 if n_test is None else n_test, seed, "test")
    rest = np.setdiff1d(np.arange(len(rows)), held_out)
    train, test = (([texts[i] for i in places], labels[places]) for places in (rest, held_out))
    return {"train": train, "test": test, "class_names": topics}


register(Source("bbc-news", _read))
