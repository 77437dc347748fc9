"""Which documents a method names: measures by hand, and facts that are planted as they are described."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from benchmarks.language import facts
from benchmarks.language.answers import measured


def test_measures_are_those_of_the_places_by_hand() -> None:
    scores = np.array([0.1, 5.0, 4.0, *np.linspace(3, 1, 10)])  # document 1 first, 2 second, 0 last
    rng = np.random.default_rng(0)
    assert measured(scores, [1], rng) == (1.0, 1.0, 1.0)
    assert measured(scores, [2, 0], rng) == (0.0, 0.5, 0.5)
    assert measured(scores, [0], rng) == pytest.approx((0.0, 0.0, 1 / 13))


def test_equal_scores_stand_in_any_order() -> None:
    rng = np.random.default_rng(0)
    firsts = [measured(np.zeros(4), [2], rng)[0] for _ in range(400)]
    assert 0.15 < np.mean(firsts) < 0.35


def test_facts_are_stated_by_the_named_documents(tmp_path: Path) -> None:
    for place in ("bbc-news/bbc-news.csv", "movie-reviews/movie-reviews.csv"):
        path = tmp_path / place
        path.parent.mkdir()
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["text"])
            rows.writerows([[f"an ordinary text, number {i}"] for i in range(2000)])
    corpus = facts.planted(tmp_path)
    assert len(corpus.facts) == facts.FACTS + facts.CONFLICTS
    assert len({fact.subject for fact in corpus.facts}) == len(corpus.facts)
    seen = set()
    for fact in corpus.facts:
        assert fact.subject in fact.query
        for value, documents in zip(fact.values, fact.documents, strict=True):
            texts = [corpus.texts[i] for i in documents]
            assert all(fact.subject in text and value in text for text in texts)
            assert len({*texts}) == len(texts)
            assert not any(text in fact.query or fact.query in text for text in texts)
            seen.update(documents)
    assert len(corpus.texts) - len(seen) == facts.ORDINARY
