"""BBC News: articles of five topics, for the examples that read text."""

from __future__ import annotations

import csv
import random
from pathlib import Path

from examples.places import data_folder

TOPICS = ("business", "entertainment", "politics", "sports", "tech")

Texts = tuple[list[str], list[str]]


def read(path: Path) -> Texts:
    """Read a file of columns ``label`` and ``text``: the texts, and the topic of each."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"label", "text"} <= rows[0].keys():
        raise SystemExit(f"{path} must have the columns label and text, and a row or more.")
    return [row["text"] for row in rows], [row["label"] for row in rows]


def split(
    texts: list[str], topics: list[str], n_train: int, n_test: int, seed: int = 0
) -> tuple[Texts, Texts]:
    """Draw a training set and held-out articles, in an order that depends on the seed alone."""
    if n_train + n_test > len(texts):
        raise SystemExit(f"{n_train} + {n_test} articles were asked for. There are {len(texts)}.")
    order = random.Random(seed).sample(range(len(texts)), n_train + n_test)
    parts = order[:n_train], order[n_train:]
    first, second = (([texts[i] for i in part], [topics[i] for i in part]) for part in parts)
    return first, second


def articles(n_train: int, n_test: int) -> tuple[Texts, Texts]:
    """Return a training set and held-out articles of the data folder's file."""
    return split(*read(data_folder("bbc-news") / "bbc-news.csv"), n_train, n_test)
