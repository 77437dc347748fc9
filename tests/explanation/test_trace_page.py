"""The page of an answer: its words are links, its texts are escaped, and nothing of it runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from whence.data.corpus import Around
from whence.explanation.page import grouped, sentences, strongest_tokens
from whence.explanation.trace import Bands, Passage, ScoredDocument, Token, Trace

WILD = '<img src=x onerror="alert(1)">'


def passage(document: int, score: float, token: str = " sea") -> Passage:
    return Passage(
        10 * document, document, f"doc {document}", 3, score, Around(f"by {WILD} the", token, " .")
    )


def token(text: str, agrees: bool, rank: int = 1) -> Token:
    sides = (passage(1, 3.0), passage(2, 2.0), passage(1, 1.0)), (passage(3, -1.0, " town"),)
    return Token(text, 5, 0.5, rank, 0.7, " sea", " sea" if agrees else " mat", agrees, 12, 6.0, -5.3, *sides)


@pytest.fixture
def trace() -> Trace:
    scores = np.array([[2.0, 0.0, -1.0], [1.0, 0.5, 0.0]])
    sources = [
        ScoredDocument(i, f"doc {i} {WILD}", float(scores[:, i].sum()), scores[:, i]) for i in range(3)
    ]
    return Trace(
        prompt=f"tell of {WILD}",
        answer=" sea\n",
        written=True,
        ids=np.array([1, 2, 5, 6]),
        start=2,
        tokens=(token(" sea", True), token(WILD, False, 3)),
        scores=csr_array(scores),
        proponents=tuple(sources[:2]),
        opponents=(sources[2],),
        k=3,
        n_train=100,
        n_support=40,
        n_documents=3,
        gap=1e-7,
        bands=Bands.of(np.array([12, 12, 0, 150]), np.array([True, False, True, True]), held_out=True),
        tracer=None,  # type: ignore[arg-type]
    )


def test_texts_are_escaped_and_nothing_runs(trace: Trace, tmp_path: Path) -> None:
    html = trace.to_html()
    assert trace.to_html(tmp_path / "page.html") == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == html
    assert WILD not in html
    assert html.count("&lt;img src=x") >= 6
    assert "<script" not in html
    assert "style=" not in html
    assert "script-src &#39;none&#39;" in html
    assert "form-action &#39;none&#39;" in html
    assert WILD not in trace._repr_html_()


def test_every_word_is_a_link_to_its_passages(trace: Trace) -> None:
    html = trace.to_html()
    links = re.findall(r'href="#([\w]+)"', html)
    ids = re.findall(r'id="([\w]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(links) <= set(ids)
    assert {"t0", "t1", "answer"} <= set(links)
    for i in range(2):
        assert f'main:has(#t{i}:target) .answer a[href="#t{i}"]' in html


def test_it_says_where_the_surrogate_disagrees(trace: Trace) -> None:
    html = trace.to_html()
    assert "1 of 2 words, 50.0\u00a0%" in html
    assert "these passages do not lead to the model’s word" in html
    assert "predicts it in 50.0\u00a0% of 2 places of documents that it has not seen" in html
    sure = replace(trace, tokens=(token(" sea", True),) * 2, bands=None)
    assert "at all 2 words." in sentences(sure)[1]
    assert "In places like" not in sure.to_html()
    assert "The answer was given" not in trace.to_html()
    assert "the model itself would generate 1 of its 2 words." in replace(trace, written=False).to_html()
    assert "Low agreement" not in html
    few = Bands.of(np.array([12, 12, 12]), np.array([True, False, False]), held_out=True)
    doubted = replace(trace, bands=few)
    assert (
        "in 3 places of documents that it has not seen the surrogate predicts the model’s"
        in sentences(doubted)[2]
    )
    assert doubted.to_html().count("⚠ Low agreement:") == 2
    nobody = replace(trace, proponents=())
    assert sentences(nobody)[0] == "None of the 3 documents supports this answer."
    assert "No document supports it." in nobody.to_html()


def test_passages_of_one_document_are_together(trace: Trace) -> None:
    groups = grouped(trace.tokens[0].proponents)
    assert [[(one.document, one.score) for one in group] for group in groups] == [
        [(1, 3.0), (1, 1.0)],
        [(2, 2.0)],
    ]
    swapped = grouped((passage(5, -3.0), passage(4, -2.0), passage(4, -1.5)))
    assert [group[0].document for group in swapped] == [4, 5]


def test_the_words_that_a_document_supports(trace: Trace) -> None:
    assert strongest_tokens(trace, trace.proponents[0]) == [(" sea", 2.0), (WILD, 1.0)]
    assert strongest_tokens(trace, trace.opponents[0]) == [(" sea", -1.0)]


def test_bands_of_a_count(trace: Trace) -> None:
    bands: Any = trace.bands
    names = [(band.name, band.places, band.agreement) for band in bands.bands]
    assert names == [("0", 1, 1.0), ("1–9", 0, None), ("10–99", 2, 0.5), ("100+", 1, 1.0)]
    assert bands.of_count(9).name == "1–9"
    assert bands.of_count(100).name == "100+"
    assert bands.agreement == 0.75
    assert "10–99" in bands._repr_html_()
