import base64
import dataclasses
import io
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.image import imread

from whence.attributors.surrogate import Faithfulness
from whence.explanation import Contribution, Explanation
from whence.ui.report import Case, Facts, data_uri, render_report

HOSTILE = ("<script>alert(1)</script>", '" onerror="alert(1)', "{{ 7 * 7 }} & 'x'")


class Page(HTMLParser):
    """Collects tags with their attributes, and the visible text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self._hidden = [], "", False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._hidden = tag == "style"
        if tag == "br":
            self.text += "\n"

    def handle_endtag(self, tag):
        self._hidden = False

    def handle_data(self, data):
        if not self._hidden:
            self.text += data

    def every(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def picture(seed):
    return np.random.default_rng(seed).random((6, 5)).astype(np.float32)


@pytest.fixture
def why():
    return Explanation(
        image=picture(0),
        predicted=0,
        probability=0.75,
        truth=1,
        target=0,
        class_names=("cat", "dog", "owl"),
        evidence_for=4.0,
        evidence_against=-1.0,
        proponents=(Contribution(7, 0, 2.0, 0.5, picture(1)), Contribution(2, 0, 1.0, 0.25, picture(2))),
        opponents=(Contribution(5, 1, -0.5, 0.5, picture(3)),),
        n_train=12345,
        n_support=678,
        gap=3e-7,
    )


@pytest.fixture
def facts():
    faithfulness = Faithfulness(
        agreement=0.984, mcc=0.981, weight_cosine=0.71, logit_cosine=0.92, n_tests=1000
    )
    return Facts(
        "A title", "A model.", "Some data.", 0.881, 1000, faithfulness, 6.04e-4, "Because it agrees."
    )


def test_page_says_what_a_reader_needs(facts, why):
    page = Page(render_report(facts, [Case("A case", "A lesson.", why, "case.png")]))
    text = " ".join(page.text.split())
    for expected in (
        "88.1 % right on 1,000 test samples",
        "98.4 % of 1,000 test samples",
        "Matthews correlation 0.981, cosine of logits 0.920, of weights 0.710",
        "678 of 12,345",
        "duality gap 3.0e-07",
        "C = 0.000604",
        "Because it agrees.",
        "Positive, blue: evidence for the target class.",
        "Negative, orange: evidence against the target class.",
        "Predicted cat",
        "True label dog ✗ wrong",
        "≠ dog −0.500 #5",
        "cat +2.00 #7",
        "shown above: 75.0 %",
        "surrogate logit +3.00",
        "Sparse, Efficient and Explainable Data Attribution with DualXDA",
    ):
        assert expected in text
    assert {"href": "case.png"} in page.every("a")


def test_page_needs_no_network_and_no_script_and_describes_its_images(facts, why):
    html = render_report(facts, [Case("A case", "A lesson.", why, "case.png")])
    page = Page(html)
    images = page.every("img")
    assert len(images) == 4
    assert all(image["src"].startswith("data:image/png;base64,") and image["alt"] for image in images)
    assert not page.every("script") + page.every("link")
    assert "http://" not in html
    assert "https://" not in html
    assert "prefers-color-scheme: dark" in html


def test_hostile_text_is_escaped(facts, why):
    case = Case(HOSTILE[0], HOSTILE[1], dataclasses.replace(why, class_names=HOSTILE), HOSTILE[1])
    html = render_report(dataclasses.replace(facts, title=HOSTILE[2], C_reason=HOSTILE[0]), [case])
    page = Page(html)
    assert not page.every("script")
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert HOSTILE[0] in page.text
    assert HOSTILE[2] in page.text
    assert HOSTILE[1] in page.text


def test_page_without_opponents_truth_or_evidence(facts, why):
    empty = dataclasses.replace(
        why, truth=None, target=2, proponents=(), opponents=(), evidence_for=0.0, evidence_against=0.0
    )
    text = Page(render_report(facts, [Case("A case", "A lesson.", empty, "case.png")])).text
    assert "No training sample speaks against this class." in text
    assert "True label" not in text
    assert "Explained owl" in text


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3)])
def test_images_are_inlined_pixel_for_pixel(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape) / 255
    decoded = imread(io.BytesIO(base64.b64decode(data_uri(pixels.astype(np.float32)).split(",")[1])))
    expected = pixels if len(shape) == 3 else np.repeat(pixels[..., None], 3, axis=2)
    assert np.abs(decoded[..., :3] - expected).max() < 1.5 / 255
