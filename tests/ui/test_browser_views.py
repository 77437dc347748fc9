"""The explorer's other views in a real browser: start, what if of many, classes, concepts, the keyboard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.helpers.browsing import CHROMIUM, expect, no_sideways_scrolling, served
from tests.helpers.explored import HOSTILE, M, N, picture_project, pictures
from whence.ui.changes import what_changes
from whence.ui.explorer import Explorer
from whence.ui.requests import Changes, OfAudit, OfSamples

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

VIEWS = {
    "start": ".spine",
    "audit": ".queue > li[data-index]",
    "classes": "#classes h3",
    "concepts": ".concept",
    "whatif": ".training button",
}


@pytest.mark.parametrize("address", ["", "#", "#%00<b>"])
def test_the_start_says_what_was_loaded_and_where_to_begin(
    visit: Any, home: str, explorer: Explorer, address: str
) -> None:
    page = visit(home + address, ready=".spine")
    info = explorer.info()
    expect(page.locator("#tab-start")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".loaded")).to_contain_text(f"{info['n_support']} of the training samples")
    expect(page.locator(".loaded")).to_contain_text("3: bar, dot, frame")
    assert page.locator("#explore").is_hidden()
    page.get_by_role("link", name="Wrong predictions").click()
    expect(page.locator("#wrong")).to_be_checked()
    expect(page.locator("#tests button")).to_have_count(info["n_wrong"])
    page.wait_for_selector(".card")
    page.go_back()
    expect(page.locator("#start")).to_be_visible()
    page.get_by_role("link", name="Least certain").click()
    expect(page.locator("#order")).to_have_value("least certain")
    expect(page.locator("#wrong")).not_to_be_checked()
    least = int(np.argmin(explorer.tests.certainty))
    expect(page.locator("#explanation h2")).to_have_text(f"Test sample {least}")
    page.reload()
    expect(page.locator("#order")).to_have_value("least certain")
    page.go_back()
    page.get_by_role("link", name="a random test").click()
    expect(page.locator("#explanation h2")).to_contain_text("Test sample")


def test_the_keyboard_alone(visit: Any, home: str) -> None:
    page = visit(f"{home}#test=0")
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
    page.wait_for_selector("#remove")
    page.locator("body").press("x")
    expect(page.locator("#remove")).to_have_attribute("aria-pressed", "true")
    page.locator("body").press("s")
    expect(page.locator(".answer")).to_be_visible()
    page.locator("body").press("r")
    expect(page.locator("#relabel")).to_be_focused()

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


def test_labels_are_marked_by_keys(visit: Any, home: str, explorer: Explorer) -> None:
    page = visit(f"{home}#tab=audit", ready=VIEWS["audit"])
    items = page.locator(".queue > li[data-index]")
    assert page.locator(".queue > li[tabindex='0']").count() == 1
    items.first.focus()
    for key, decision in (("y", "keep"), ("f", "flag"), ("x", "remove"), ("r", "relabel")):
        at = page.locator(".queue > li:focus")
        index = at.get_attribute("data-index")
        page.keyboard.press(key)
        item = page.locator(f".queue > li[data-index='{index}']")
        expect(item.locator(f"[data-decision={decision}]")).to_have_attribute("aria-pressed", "true")
        expect(item).not_to_be_focused()  # the next is
    expect(page.locator("#audit [role=status]").first).to_have_text("4 marked")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("r")  # takes it back
    expect(page.locator("#audit [role=status]").first).to_have_text("3 marked")
    page.click("#ask-marks")
    expect(page.locator(".asking li")).to_have_count(2)  # flagged and removed; what is kept is no change


def test_what_if_of_many_samples(visit: Any, home: str, explorer: Explorer) -> None:
    page = visit(f"{home}#tab=whatif", ready=VIEWS["whatif"])
    expect(page.locator("#solve-all")).to_be_disabled()
    page.select_option("#training-label", "2")
    expect(page.locator("#training-which")).to_contain_text(f"all {int((pictures(N, 0)[1] == 2).sum())}")
    page.click("#training-add")
    expect(page.locator(".asking li")).to_contain_text("all of frame")
    page.check("#training-wrong")
    page.select_option("#training-to", "suggested")
    page.wait_for_selector(".training button")
    page.click("#training-add")
    page.uncheck("#training-wrong")
    page.select_option("#training-label", "")
    page.fill("#training-search", "4-6")
    expect(page.locator(".training button")).to_have_count(3)
    page.locator(".training button").nth(1).click()
    page.select_option("#training-to", "1")
    page.click("#training-add")
    expect(page.locator(".training button").nth(1).locator(".mark")).to_have_text("→ dot")
    page.click("#solve-all")
    groups = [OfSamples(by="samples", label=2), OfAudit(by="wrong labels", to="suggested")]
    wanted = what_changes(explorer, Changes(groups=groups, relabel={5: 1}))
    assert wanted["changed_tests"] > 0
    expect(page.locator(".outcome h3")).to_have_text(f"{wanted['changed_tests']} of {M} tests change")
    expect(page.locator(".changed > li")).to_have_count(wanted["changed_tests"])
    first, names = wanted["changed"][0], explorer.names
    came, became = names[first["class_before"]], names[first["class_after"]]
    expect(page.locator(".changed .turn").first).to_have_text(f"{came} → {became}")
    page.click("#fit-effects")
    expect(page.locator(".changed .figures").first).to_contain_text("effect")
    page.locator(".changed p a").first.click()
    expect(page.locator("#explanation h2")).to_have_text(f"Test sample {first['row']['index']}")
    expect(page.locator(".basket li")).to_have_count(3)
    page.go_back()
    expect(page.locator(".changed > li")).to_have_count(wanted["changed_tests"])


def test_the_address_keeps_what_is_asked(visit: Any, home: str, explorer: Explorer) -> None:
    page = visit(f"{home}#tab=whatif", ready=VIEWS["whatif"])
    page.wait_for_selector(".training button")
    page.select_option("#training-label", "2")
    expect(page.locator("#training-add")).to_be_enabled()
    page.click("#training-add")
    expect(page.locator(".asking li")).to_have_count(1)
    page.check("#training-wrong")
    page.select_option("#training-to", "suggested")
    page.wait_for_selector(".training button")
    page.click("#training-add")
    page.uncheck("#training-wrong")
    page.fill("#training-search", "4-6, 9")
    page.select_option("#training-label", "")
    expect(page.locator(".training button")).to_have_count(4)
    for button in page.locator(".training button").all():
        button.click()
    page.select_option("#training-to", "")
    page.click("#training-add")
    assert page.url.endswith("#tab=whatif&without=4-6_9&group=2.removed&group=found.suggested")
    page.reload()  # asks the same at once
    groups = [OfSamples(by="samples", label=2), OfAudit(by="wrong labels", to="suggested")]
    wanted = what_changes(explorer, Changes(groups=groups, remove=[4, 5, 6, 9]))
    expect(page.locator(".outcome h3")).to_have_text(f"{wanted['changed_tests']} of {M} tests change")
    expect(page.locator(".asking li")).to_have_count(6)
    page.click("#tab-start")  # an address that asks nothing leaves what is asked
    page.get_by_role("link", name="Least certain").click()
    page.wait_for_selector(".card")
    expect(page.locator(".basket li")).to_have_count(6)
    assert "without=4-6_9&group=2.removed" in page.url
    page.locator(".basket").get_by_role("button", name="clear").click()
    assert "without" not in page.url

    shared = visit(f"{home}#test=3&as=1.5_7&group=any.0.4-6.&group=7.removed&group=any.removed&without=x")
    expect(shared.locator(".basket li")).to_have_text(["“4-6.” labelled bar ×", "#5 as dot ×", "#7 as dot ×"])


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
