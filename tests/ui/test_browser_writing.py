"""The page to type a prompt at, in a real browser: words are clicked, typed and reached by the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browsing import CHROMIUM, expect, no_sideways_scrolling, served
from tests.helpers.writers import TEXTS, llama, taught, tokenizer
from whence import DualDA
from whence.data import Corpus
from whence.project import Configuration, Project
from whence.ui.explorer import Explorer

pytest.importorskip("transformers")
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


@pytest.fixture(scope="module")
def explainer() -> DualDA:
    return DualDA(C=0.05, show_progress=False).fit(taught(llama(), 40), Corpus(TEXTS, tokenizer()))


@pytest.fixture(scope="module")
def home(explainer: DualDA) -> Iterator[str]:
    project = Project(Path("words.whence"), Configuration("my:model", "my:data"), explainer, None)
    with served(Explorer(project)) as address:
        yield address


def test_type_a_prompt_click_a_word_and_leave_a_document_out(visit: Any, home: str) -> None:
    page = visit(home, ready=".ask")
    page.fill("#prompt", "mira lives in")
    page.click("button")
    expect(page.locator(".answer")).to_contain_text("mira lives in tolm")
    expect(page.locator("#answer")).to_be_visible()
    expect(page.locator("#t0")).to_be_hidden()
    page.click('.answer a[href="#t0"]')
    expect(page.locator("#t0 h2")).to_have_text("Why “tolm”?")
    expect(page.locator("#t0")).to_be_visible()
    expect(page.locator("#answer")).to_be_hidden()
    expect(page.locator("#t0 .for mark").first).to_have_text("tolm")
    page.locator("#t0 .for .without").first.click()
    expect(page.locator("#without h2")).to_contain_text("Without “")
    expect(page.locator("#without tbody tr")).to_have_count(page.locator(".answer a").count())
    page.click("text=With it again")
    expect(page.locator("#without")).to_have_count(0)


def test_words_are_reached_by_the_keyboard(visit: Any, home: str) -> None:
    page = visit(f"{home}write?prompt=mira+lives+in", ready=".answer")
    page.locator("#k").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#t0")).to_be_visible()
    assert page.url.endswith("#t0")


def test_a_file_of_its_own_on_narrow_and_wide_screens(visit: Any, explainer: DualDA, tmp_path: Path) -> None:
    path = tmp_path / "why.html"
    explainer.trace("the cat", " sat on the sea", bands=explainer.faithfulness_by_frequency()).to_html(path)
    for width in (380, 1920):
        for part in ("", "#t0", "#t3"):
            page = visit(f"{path.as_uri()}{part}", width, ready=".answer")
            no_sideways_scrolling(page)
            expect(page.locator(part or "#answer")).to_be_visible()
