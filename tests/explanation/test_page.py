"""Explanations as pages: what they say, that they are safe, and that they need nothing from outside."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from tests.helpers.browsing import Page
from tests.helpers.colours import contrast, rgb
from tests.helpers.explained import TEXT, effects, explanation
from whence.explanation import Explanations, Sample
from whence.explanation.page import explanation_data
from whence.pages.style import drawn, heat, scale

HOSTILE = ("<script>alert(1)</script>", '" onerror="alert(1)', "{{ 7 * 7 }} & 'x'")


def page_of(*kinds: str) -> str:
    return Explanations([explanation(kind) for kind in kinds]).to_html()


def decoded(uri: str | None) -> np.ndarray:
    assert uri is not None
    return np.asarray(imread(io.BytesIO(base64.b64decode(uri.split(",")[1]))))


@pytest.mark.parametrize("kind", ["grey", "colour", "text", "values"])
def test_page_says_what_was_found(kind: str) -> None:
    words = Page(page_of(kind)).words
    for expected in (
        "Why “cat”?",
        "Negative, orange: evidence against it.",
        "Predicted cat with probability 75.0 %",
        "τ = +2.00 cat sample 7, 50.0 % of all for",
        "shown above: 75.0 %",
        "surrogate logit +3.00",
        "Maps by epsilon_plus_flat. The logit +3.00 is +2.75 of features and +0.250 of bias",
        "678 of 12,345 training samples are support vectors",
        "“cat” (75.0 %), supported by training samples labelled cat and dog; most evidence against it is",
        "✓ The surrogate predicts “cat” too.",
        "– Whether the input resembles the training data is not measured.",
    ):
        assert expected in words
    why = explanation(kind)
    for maps in ([(why.sample, why.logit_map)], [(one.sample, one.train_map) for one in why.pairs]):
        assert f"full colour: ±{scale(drawn(*one) for one in maps):.3g}" in words


def test_page_of_effects_says_what_would_change() -> None:
    words = Page(Explanations([effects(), effects("text")]).to_html()).words
    for expected in (
        "What would change “cat”?",
        "+2.00 cat sample 7, 50.0 % of all raising",
        "The logit of “cat” would be lower without training samples labelled cat and dog, and higher without "
        "training samples labelled dog.",
        "all that raises +4.00",
        "sum of all effects, not the logit +3.00",
        "The logit +7.00 is +6.75 of features and +0.250 of bias",
        "Effects are predicted to first order, at the softmax surrogate of the whole training set.",
    ):
        assert expected in words
    shown, _, glossary = words.partition(" Words surrogate")
    assert "support vector" in glossary
    for wrong in ("evidence", "τ", "support vectors", "score"):
        assert wrong not in shown


def test_page_is_written_as_it_is_returned(tmp_path: Path) -> None:
    whys = Explanations([explanation(), explanation("text")])
    html = whys.to_html()
    assert whys.to_html(tmp_path / "why.html") == str(tmp_path / "why.html")
    assert (tmp_path / "why.html").read_text(encoding="utf-8") == html
    assert whys[1].to_html() == whys[1:].to_html()  # of one explanation alone
    assert "Where 2 predictions come from" in Page(html).words


def test_page_needs_no_network_and_no_script_and_describes_its_images() -> None:
    html = page_of("grey", "text", "values")
    page = Page(html)
    images = page.every("img")
    assert all((image["src"] or "").startswith("data:image/png;base64,") for image in images)
    assert all(image["alt"] for image in images)
    drawings = [drawing for drawing in page.every("svg") if drawing.get("aria-hidden") != "true"]
    assert all(drawing["aria-label"] for drawing in drawings)
    stored = {picture["id"]: picture["href"] or "" for picture in page.every("image")}
    assert all(uri.startswith("data:image/png;base64,") for uri in stored.values())
    assert {(use["href"] or "")[1:] for use in page.every("use")} == set(stored)
    assert not page.every("script") + page.every("link")
    assert "http://" not in html
    assert "https://" not in html
    assert "prefers-color-scheme: dark" in html


def test_policy_allows_the_one_style_by_its_hash_and_nothing_else() -> None:
    html = page_of("grey", "text", "values")
    page = Page(html)
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = next(m["content"] for m in page.every("meta") if "http-equiv" in m)
    assert policy == (
        f"default-src 'none'; script-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    assert not any("style" in attributes for _, attributes in page.tags)
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_hostile_text_is_escaped() -> None:
    hostile = {"class_names": HOSTILE, "method": HOSTILE[0]}
    tokens = Sample(tokens=(*HOSTILE, "</p>", *TEXT[4:]))
    whys = [explanation(**hostile), explanation("text", sample=tokens, **hostile)]
    page = Page(Explanations(whys).to_html())
    assert not page.every("script") + page.every("b")
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert all(text in page.text for text in HOSTILE)


def test_a_long_name_is_shown_by_its_ends_and_whole_where_one_points_at_it() -> None:
    name = "<b>" + "x" * 1000 + "end"
    why = explanation("grey", class_names=(name, "b" * 60, "c"))
    html = Explanations([why]).to_html()
    short = "&lt;b&gt;" + "x" * 37 + "…" + "x" * 16 + "end"
    assert f'<span title="&lt;b&gt;{"x" * 1000}end">{short}</span>' in html
    assert html.count("x" * 1000) == html.count('title="&lt;b&gt;xx')
    assert "b" * 60 in html


def test_page_without_opponents_truth_or_evidence() -> None:
    empty = {
        "truth": None,
        "target": 2,
        "surrogate_class": 1,
        "proponents": (),
        "opponents": (),
        "scores": np.zeros(0),
        "logit_map": np.zeros((1, 6, 5), dtype=np.float32),
    }
    words = Page(Explanations([explanation(**empty)]).to_html()).words
    assert "No training sample contradicts this class." in words
    assert "True label" not in words
    assert "Explained owl" in words
    assert "⚠ The surrogate predicts “dog”; the model predicts “cat”, with probability 75.0 %." in words
    assert "all 0" in words


def test_both_maps_of_a_pair_are_shown() -> None:
    why = explanation("colour")
    images = Page(page_of("colour")).every("img")
    one = why.pairs[1]
    shown = {image["alt"]: decoded(image["src"]) for image in images}
    for alt, sample, relevance, maps in (
        (
            "Relevance on training sample 2",
            one.sample,
            one.train_map,
            [(p.sample, p.train_map) for p in why.pairs],
        ),
        (
            "Relevance on the test sample of its pair with training sample 2",
            why.sample,
            one.test_map,
            [(why.sample, p.test_map) for p in why.pairs],
        ),
    ):
        expected = heat(relevance.sum(0), scale(drawn(*m) for m in maps), sample.image)
        assert np.abs(shown[alt] - expected).max() < 1.5 / 255


def test_tokens_are_marked_with_their_values_and_can_be_read() -> None:
    relevance = np.zeros(len(TEXT), dtype=np.float32)
    relevance[1], relevance[8] = 2.0, -1.0
    html = Explanations([explanation("text", logit_map=relevance)]).to_html()
    assert '<span class="p10" title="+2.00">shares</span>' in html
    assert '<span class="n5" title="−1.00">profit</span><span class="" title="+0.00">s</span>' in html
    assert "&lt;b&gt;Friday&lt;/b&gt;" in html
    light, dark = (
        html[: html.index("</style>")].split(".p1 {", 1)[1].split("@media (prefers-color-scheme: dark)")
    )
    for rules, ink in ((light, "#1c1b19"), (dark, "#ecebe7")):
        grounds = re.findall(r"background: (#\w{6})", rules)
        assert len(grounds) == 20
        assert all(contrast(rgb(ground), rgb(ink)) >= 4.5 for ground in grounds)


def test_every_sample_is_shown_plain_next_to_its_map_and_stands_in_the_page_once() -> None:
    why = explanation("colour")
    page = Page(Explanations([why, why]).to_html())
    stored = {f"#{picture['id']}": picture["href"] for picture in page.every("image")}
    samples = [why.sample, *(one.sample for one in why.pairs)]
    assert len(stored) == len(samples)  # and not once more for the second explanation
    assert len(page.every("use")) == 2 * (2 * len(samples) + len(why.pairs))  # below each map, too
    for sample in samples:
        assert sample.image is not None
        assert any(np.abs(decoded(uri) - sample.image).max() < 1.5 / 255 for uri in stored.values())
    plain = [drawing for drawing in page.every("svg") if drawing.get("role") == "img"]
    names = [drawing["aria-label"] for drawing in plain]
    assert "Test sample, predicted cat" in names
    assert "Training sample 7, labelled cat" in names
    switch = [control for control in page.every("input") if control.get("role") == "switch"]
    assert [control["id"] for control in switch] == ["overlay"]
    assert not Page(page_of("text")).every("input")


def test_a_long_text_has_a_headline_and_its_rest_is_folded() -> None:
    tokens = ("", "Profit", " up", "\n\nThe", *(f" word{i}" for i in range(60)), "")
    relevance = np.linspace(0, 1, len(tokens), dtype=np.float32)
    html = Explanations(
        [explanation("text", sample=Sample(tokens=tokens), logit_map=relevance, proponents=(), opponents=())]
    ).to_html()
    head = re.search(r'<p class="headline">(.*?)</p>', html)
    assert head is not None
    assert Page(head[1]).words == "Profit up"
    rest = re.search(r"<details open>(.*?)</details>", html, re.DOTALL)
    assert rest is not None
    assert "the rest, strongest: word59 word58 word57 word56" in Page(rest[1]).words
    assert "word0 word1" in Page(rest[1]).words
    assert "[CLS]" not in html


def test_the_explorer_has_the_bound_on_logits() -> None:
    assert explanation_data(explanation(logit_bound=0.25))["logit_bound"] == 0.25
    assert explanation_data(explanation())["logit_bound"] is None
