"""The explorer's other views in a real browser: start, what if of many, classes, concepts, the keyboard."""

from __future__ import annotations

from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from tests.helpers.browsing import CHROMIUM, expect, no_sideways_scrolling, served
from tests.helpers.explored import HOSTILE, M, N, picture_project, pictures
from whence.ui.changes import what_changes
from whence.ui.explorer import Explorer
from whence.ui.requests import Changes

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

VIEWS = {
    "start": ".spine",
    "audit": ".queue > li[data-index]",
    "classes": "#classes h3",
    "concepts": ".concept",
    "whatif": ".training button",
}


@pytest.mark.parametrize("address", ["", "#%00<b>"])
def test_the_start_names_what_to_do_first(visit: Any, home: str, explorer: Explorer, address: str) -> None:
    page = visit(home + address, ready=".spine")
    info = explorer.info()
    expect(page.locator("#tab-start")).to_have_attribute("aria-selected", "true")
    assert page.locator("#explore").is_hidden()
    tasks = page.locator(".task")
    expect(tasks).to_have_count(3)
    expect(tasks.nth(0).locator(".number")).to_have_text(str(info["n_wrong"]))
    likely = explorer.training.suspects(0, 1)["likely_wrong"]
    expect(tasks.nth(1).locator(".number")).to_have_text(str(likely))
    expect(tasks.nth(2).locator(".number")).to_have_text(str(int(explorer.tests.novel.sum())))
    page.click(".loaded > summary")
    expect(page.locator(".loaded")).to_contain_text(f"{info['n_support']} of the training samples")
    expect(page.locator(".loaded")).to_contain_text("3: bar, dot, frame")
    page.get_by_role("link", name="Wrong predictions").click()
    expect(page.locator("#wrong")).to_be_checked()
    expect(page.locator("#tests button")).to_have_count(info["n_wrong"])
    page.wait_for_selector(".card")
    page.go_back()
    expect(page.locator("#start")).to_be_visible()
    page.get_by_role("link", name="least certain").click()
    expect(page.locator("#order")).to_have_value("least certain")
    expect(page.locator("#wrong")).not_to_be_checked()
    least = int(np.argmin(explorer.tests.certainty))
    expect(page.locator("#explanation h2")).to_have_text(f"Test sample {least}")
    page.reload()
    expect(page.locator("#order")).to_have_value("least certain")
    page.go_back()
    page.get_by_role("link", name="a random test").click()
    expect(page.locator("#explanation h2")).to_contain_text("Test sample")


def test_cells_of_the_confusion_matrix_filter(visit: Any, home: str, explorer: Explorer) -> None:
    tests = explorer.tests
    counts = confusion_matrix(tests.truths, tests.predicted, labels=range(3))
    i, j = np.unravel_index(np.argmax(counts - 1_000 * np.eye(3, dtype=int)), (3, 3))
    page = visit(f"{home}#tab=start", ready=".confusion td a")
    shown = page.locator(".confusion tbody td").all_inner_texts()
    assert [int(text or 0) for text in shown] == counts.ravel().tolist()
    page.locator(".confusion tbody tr").nth(i).locator("td").nth(j).locator("a").click()
    expect(page.locator("#label")).to_have_value(str(i))
    expect(page.locator("#predicted")).to_have_value(str(j))
    expect(page.locator("#tests button")).to_have_count(int(counts[i, j]))


def test_the_keyboard_alone(visit: Any, fresh: str) -> None:
    page = visit(f"{fresh}#test=0")
    page.locator("body").press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#explanation")).to_be_focused()
    assert page.url.endswith("#test=0")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("ArrowRight")  # not while the help is open
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    expect(page.locator("#explanation h2")).to_have_text("Test sample 0")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#explanation h2")).to_have_text("Test sample 1")
    page.locator("body").press("n")
    expect(page.locator("#pair h3")).to_contain_text("Pair 1 of")
    page.locator("body").press("x")
    expect(page.locator("#remove")).to_have_attribute("aria-pressed", "true")
    page.locator("body").press("s")
    expect(page.locator(".answer")).to_be_visible()
    page.locator("body").press("r")
    expect(page.locator("#relabel")).to_be_focused()
    page.locator("h1").click()
    page.locator("body").press("u")
    expect(page.locator("#tray")).to_be_hidden()

    cards = page.locator(".card button")
    assert page.locator(".card button[tabindex='0']").count() == 1
    cards.first.focus()
    page.keyboard.press("End")
    expect(cards.last).to_be_focused()
    page.locator("#tests button[aria-current=true]").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tests button[data-test='2']")).to_be_focused()
    page.keyboard.press("ArrowDown")  # two stand side by side
    expect(page.locator("#tests button[data-test='4']")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#explanation h2")).to_have_text("Test sample 4")


def test_labels_are_marked_by_keys(visit: Any, fresh: str) -> None:
    page = visit(f"{fresh}#tab=audit", ready=VIEWS["audit"])
    items = page.locator(".queue > li[data-index]")
    assert page.locator(".queue > li[tabindex='0']").count() == 1
    items.first.focus()
    for key, decision in (("y", "keep"), ("f", "flag"), ("x", "remove"), ("r", "relabel")):
        index = page.locator(".queue > li:focus").get_attribute("data-index")
        page.keyboard.press(key)
        item = page.locator(f".queue > li[data-index='{index}']")
        expect(item.locator(f"[data-decision={decision}][aria-pressed=true]").first).to_be_visible()
        expect(item).not_to_be_focused()  # the next is
        page.wait_for_selector(".queue > li:focus")
    expect(page.locator("#audit [role=status]").first).to_have_text("4 marked")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("r")  # takes it back
    expect(page.locator("#audit [role=status]").first).to_have_text("3 marked")
    page.get_by_role("link", name="change list and export").click()
    expect(page.locator(".entries li")).to_have_count(5)


def test_from_marks_in_bulk_to_the_tests_that_change(visit: Any, fresh: str, own: Explorer) -> None:
    page = visit(f"{fresh}#tab=whatif", ready=VIEWS["whatif"])
    expect(page.locator("#solve-all")).to_have_count(0)
    page.select_option("#training-label", "2")
    expect(page.locator("#training-which")).to_contain_text(f"all {int((pictures(N, 0)[1] == 2).sum())}")
    page.fill("#training-why", "no frames <b>any more</b>")
    page.click("#training-add")
    entries = page.locator(".entries li")
    expect(entries).to_have_count(1)
    expect(entries.first).to_contain_text("no frames <b>any more</b>")
    page.check("#training-wrong")
    page.select_option("#training-to", "suggested")
    page.wait_for_selector(".training button")
    page.click("#training-add")
    expect(entries).to_have_count(2)
    page.uncheck("#training-wrong")
    page.select_option("#training-label", "")
    page.fill("#training-search", "4-6")
    expect(page.locator(".training button")).to_have_count(3)
    page.locator(".training button").nth(1).click()
    page.select_option("#training-to", "1")
    page.click("#training-add")
    expect(page.locator(".training button").nth(1).locator(".mark")).to_have_text("→ dot")
    page.click("#solve-all")
    wanted = what_changes(own, Changes(saved=True))
    assert wanted["changed_tests"] > 0
    expect(page.locator(".outcome h3")).to_have_text(f"{wanted['changed_tests']} of {M} tests change")
    expect(page.locator(".outcome h3")).to_be_in_viewport()
    expect(page.locator(".changed > li")).to_have_count(wanted["changed_tests"])
    first, names = wanted["changed"][0], own.names
    came, became = names[first["class_before"]], names[first["class_after"]]
    expect(page.locator(".changed .turn").first).to_have_text(f"{came} → {became}")
    page.click("#fit-effects")
    expect(page.locator(".first-order")).to_contain_text("Predicted to first order by effects")
    with page.expect_download() as saved:
        page.click("#export")
    assert {"changes.csv", "indices.json", "retrain.py"} <= set(ZipFile(saved.value.path()).namelist())
    entries.first.get_by_role("button").click()  # takes the last back
    expect(entries).to_have_count(2)
    page.click("#undo-last")
    expect(entries).to_have_count(3)
    page.locator(".entries").get_by_label("your name").fill("Ada")
    page.locator("h2", has_text="Changes").click()
    page.click("#clear-all")
    expect(page.locator(".entries li")).to_have_count(0)


@pytest.mark.parametrize("width", [380, 768, 1920])
def test_views_fit_the_window(visit: Any, home: str, width: int) -> None:
    for view, ready in VIEWS.items():
        page = visit(f"{home}#tab={view}", width, ready=ready)
        no_sideways_scrolling(page)
    page = visit(f"{home}#test=0", width)
    assert page.locator("#filters").evaluate("box => box.open") == (width > 896)
    cards = page.locator(".side .cards").first
    filled = cards.evaluate("""list => {
      const boxes = [...list.children].map((item) => item.getBoundingClientRect());
      const whole = list.getBoundingClientRect();
      const row = boxes.filter((box) => box.top < boxes[0].top + 4);
      return { row: row.length, all: boxes.length, right: whole.right - row.at(-1).right };
    }""")
    assert filled["row"] == filled["all"] or filled["right"] < 2  # a full row reaches to the end


def test_hostile_names_in_all_views(visit: Any) -> None:
    with served(Explorer(picture_project(names=HOSTILE))) as address:
        for view, ready in VIEWS.items():
            page = visit(f"{address}#tab={view}&one=0", 380, ready=ready)
            no_sideways_scrolling(page)
            assert page.locator("main script, main img[src='x']").count() == 0
        expect(page.locator("#training-label")).to_contain_text(HOSTILE[0])
        page.close()
