"""From a wrong prediction to a corrected training set: the whole path in a browser, by mouse and by keys."""

from __future__ import annotations

from typing import Any
from zipfile import ZipFile

import pytest

from tests.helpers.browsing import CHROMIUM, expect, no_sideways_scrolling
from tests.helpers.explored import M
from whence.ui.changes import what_changes
from whence.ui.explorer import Explorer
from whence.ui.requests import Changes

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_the_path_by_pointer(visit: Any, fresh: str, own: Explorer, width: int) -> None:
    page = visit(fresh, width, ready=".task .spine")
    page.locator(".task").first.locator(".spine").first.click()
    expect(page.locator(".verdict .wrong")).to_contain_text("wrong: labelled")
    expect(page.locator(".waterfall .sum")).to_be_visible()
    no_sideways_scrolling(page)

    page.locator(".card.for button").first.click()
    expect(page.locator("#pair")).to_be_in_viewport()
    removed = int(page.locator(".card.chosen").get_attribute("data-pair"))
    page.click("#remove")
    expect(page.locator(".card.chosen .mark")).to_have_text("removed")
    page.click("#solve")
    expect(page.locator(".tray-answer .answer")).to_be_in_viewport()
    no_sideways_scrolling(page)

    page.click("#tab-audit")
    page.click("#take-all")
    likely = own.training.suspects(0, 1)["likely_wrong"]
    expect(page.locator("#tray")).to_contain_text(f"{likely} relabelled")
    no_sideways_scrolling(page)

    page.get_by_role("link", name="all tests and export").click()
    page.click("#solve-all")
    wanted = what_changes(own, Changes(saved=True))
    assert wanted["n_removed"] == 1
    assert own.project.work.marks().remove == [removed]
    n = wanted["changed_tests"]
    expect(page.locator(".outcome h3")).to_contain_text(
        f"{n or 'None'} of {'' if n else 'the '}{M} tests change"
    )
    expect(page.locator(".outcome h3")).to_be_in_viewport()
    no_sideways_scrolling(page)
    with page.expect_download() as saved:
        page.click("#export")
    assert "retrain.py" in ZipFile(saved.value.path()).namelist()


def test_the_path_by_keys(visit: Any, fresh: str, own: Explorer) -> None:
    page = visit(fresh, ready=".task .spine")
    page.locator(".task a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".card")
    page.locator("body").press("n")
    page.wait_for_selector("#remove")
    page.locator("body").press("x")
    expect(page.locator("#tray")).to_contain_text("1 removed")
    page.locator("body").press("s")
    expect(page.locator(".tray-answer .answer")).to_be_in_viewport()
    page.locator("#tab-explore").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-audit")).to_be_focused()
    page.wait_for_selector(".queue > li[data-index]")
    page.locator(".queue > li").first.focus()
    page.keyboard.press("r")
    expect(page.locator("#tray")).to_contain_text("1 relabelled")
    page.locator("#tray a").focus()
    page.keyboard.press("Enter")
    page.locator("#solve-all").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".outcome h3")).to_be_focused()
    marks = own.project.work.marks()
    assert (len(marks.remove), len(marks.relabel)) == (1, 1)
