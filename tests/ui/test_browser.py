"""The explorer's page in a real browser: the report from disk, and live."""

from __future__ import annotations

import csv
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.helpers.browsing import CHROMIUM, PATIENCE, expect, no_sideways_scrolling, served
from tests.helpers.explored import HOSTILE, M, picture_project, pictures, text_project
from tests.helpers.explored import texts as texts_of
from whence.core import progress
from whence.project import Project
from whence.ui.background import Background
from whence.ui.changes import what_if
from whence.ui.explorer import Explorer
from whence.ui.pages import report_page
from whence.ui.requests import Wanted, WhatIfRequest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


@pytest.fixture
def live(home: str) -> str:
    """The address of the first test."""
    return f"{home}#test=0"


@pytest.fixture(scope="module")
def report(explorer: Explorer, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_page(explorer, range(26), k=3, n_audit=30), encoding="utf-8")
    return path.as_uri()


def title(page: Any) -> Any:
    return page.locator("#explanation h2")


def unfold(page: Any) -> None:
    page.locator("#details > summary").click()


def test_choose_a_test_a_class_pairs_and_C(visit: Any, live: str, explorer: Explorer) -> None:
    page = visit(live)
    expect(title(page)).to_have_text("Test sample 0")
    page.click("#tests [data-test='3']")
    expect(title(page)).to_have_text("Test sample 3")
    expect(page.locator("[data-test='3']")).to_have_attribute("aria-current", "true")
    why = explorer.explain(3)
    assert page.locator(".card").count() == len(why["pairs"])
    assert page.locator(".card.for").count() == sum(pair["score"] > 0 for pair in why["pairs"])

    other = (why["target"] + 1) % 3
    page.select_option("#target", str(other))
    name = explorer.names[other]
    expect(page.locator(".side h3").first).to_have_text(f"▲ evidence for {name}")
    expect(page.locator(".verdict")).to_contain_text(f"Explained: {name}")

    unfold(page)
    page.fill("#k", "2")
    page.keyboard.press("Enter")
    expect(page.locator(".card")).to_have_count(4)
    assert page.evaluate("document.activeElement.id") == "k"

    page.locator("#C").focus()
    page.keyboard.press("ArrowLeft")
    smaller = explorer.solved.Cs()[1]
    expect(page.locator("#details .controls")).to_contain_text(f"C = {smaller:g}")
    n_support = len(explorer.solved.at(smaller).support_)
    expect(page.locator(".certificate")).to_contain_text(f"{n_support} of 90 training samples")


def test_what_would_change_and_how_stable_samples_are(visit: Any, live: str, explorer: Explorer) -> None:
    page = visit(live)
    expect(page.locator(".card .stability").first).to_contain_text("of 20 halves")
    page.locator(".card button").first.click()
    expect(page.locator("#pair .stability")).to_contain_text("random halves of the training set that hold it")
    unfold(page)
    expect(page.locator("#C")).to_be_visible()
    page.focus("#made-of")
    page.keyboard.press("ArrowRight")
    name = explorer.names[int(explorer.tests.predicted[0])]
    expect(page.locator(".side h3").first).to_have_text(f"▲ raises the logit of {name}")
    expect(page.locator("#would-change")).to_be_focused()
    expect(page.locator("#would-change")).to_be_checked()
    expect(page.locator(".certificate")).to_contain_text("at the softmax surrogate of the whole training set")
    expect(page.locator("#sign-for")).to_contain_text("would be lower")
    expect(page.locator("#C, #pair-concepts, .card .stability")).to_have_count(0)
    no_sideways_scrolling(page)
    page.locator("h1").click()
    page.keyboard.press("j")  # the next test is asked the same
    expect(title(page)).to_have_text("Test sample 1")
    expect(page.locator(".side h3").first).to_contain_text("raises the logit of")
    page.locator("#made-of").check(force=True)
    expect(page.locator(".side h3").first).to_contain_text("evidence for")


def test_effects_are_shown_as_they_come_and_can_be_stopped(
    visit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, enough = Project.with_effects, threading.Event()

    def slow(project: Project, max_seconds: float | None) -> Project:
        for done in range(2000):
            progress.report("Digits of the solution", min(done, 3), 6)
            if enough.wait(0.03):
                break
        return real(project, max_seconds)

    monkeypatch.setattr(Project, "with_effects", slow)
    with served(Explorer(picture_project())) as address:
        page = visit(f"{address}#test=2&view=would-change")
        expect(page.locator("#fitting")).to_contain_text("Digits of the solution · 3 of 6 · ")
        expect(title(page)).to_have_text("Test sample 2")  # made of what, meanwhile
        expect(page.locator("#made-of")).to_be_checked()
        page.click("#tests [data-test='3']")
        expect(title(page)).to_have_text("Test sample 3")
        expect(page.locator("#fitting")).to_be_visible()
        page.click("#stop")
        expect(page.locator("#fitting")).to_be_hidden()
        assert page.url.endswith("#test=3")
        page.locator("#would-change").check(force=True)
        expect(page.locator("#fitting")).to_be_visible()
        enough.set()
        expect(page.locator("#would-change")).to_be_checked()
        expect(page.locator(".side h3").first).to_contain_text("raises the logit of")
        expect(page.locator("#fitting")).to_be_hidden()
        assert page.url.endswith("#test=3&view=would-change")
        page.locator("#made-of").check(force=True)
        expect(page.locator(".card .other-score").first).to_contain_text("effect")
        page.close()  # before the server goes that it asks


def test_the_address_keeps_what_is_chosen(visit: Any, home: str, explorer: Explorer) -> None:
    C = explorer.solved.Cs()[1]
    page = visit(f"{home}#test=3&class=2&k=2&C={C:g}")
    for _ in range(2):
        expect(title(page)).to_have_text("Test sample 3")
        expect(page.locator("#target")).to_have_value("2")
        expect(page.locator("#k")).to_have_value("2")
        expect(page.locator("#details .controls")).to_contain_text(f"C = {C:g}")
        page.reload()
        page.wait_for_selector(".card")
    page.click(".card.against button")
    pair = page.locator(".card.against").first.get_attribute("data-pair")
    assert f"pair={pair}" in page.url
    page.reload()
    expect(page.locator("#pair figcaption").first).to_contain_text(f"training sample {pair}")

    page.click("#tests [data-test='4']")
    expect(title(page)).to_have_text("Test sample 4")
    assert "class" not in page.url  # of the test before
    page.locator("#would-change").check(force=True)
    expect(page.locator("#would-change")).to_be_checked()
    assert "view=would-change" in page.url
    page.reload()
    expect(page.locator("#would-change")).to_be_checked()
    page.click("#tab-classes")
    page.reload()
    expect(page.locator("#classes")).to_be_visible()
    page.click("#tab-explore")
    expect(title(page)).to_have_text("Test sample 4")
    page.go_back()
    expect(page.locator("#classes")).to_be_visible()
    page.go_back()
    expect(page.locator("#would-change")).to_be_checked()
    page.go_back()
    expect(page.locator("#made-of")).to_be_checked()
    expect(title(page)).to_have_text("Test sample 4")
    page.go_back()
    expect(title(page)).to_have_text("Test sample 3")
    expect(page.locator("#target")).to_have_value("2")
    page.go_forward()
    expect(title(page)).to_have_text("Test sample 4")


@pytest.mark.parametrize("address", ["#test=x&class=99&k=0&C=7&view=why&tab=none", "#test="])
def test_addresses_of_no_test_show_the_first(visit: Any, home: str, address: str) -> None:
    page = visit(home + address)
    expect(title(page)).to_have_text("Test sample 0")
    expect(page.locator("#made-of")).to_be_checked()
    assert page.url.endswith("#test=0")


def test_maps_are_one_click_away_next_to_their_pictures_and_over_them(visit: Any, live: str) -> None:
    page = visit(live)
    expect(page.locator(".mapped, #pair:visible")).to_have_count(0)
    page.locator(".card button").first.click()
    page.select_option("#maps", "split")
    assert "maps=split" in page.url
    for part in (".top figure", ".card", "#pair figure"):  # the picture itself, and then its map
        views = page.locator(part).first.locator(".picture")
        expect(views).to_have_count(2)
        assert "mapped" not in views.first.get_attribute("class")
        assert views.first.locator("img").evaluate("e => getComputedStyle(e).opacity") == "1"
        widths = [views.nth(i).bounding_box()["width"] for i in range(2)]
        assert abs(widths[0] - widths[1]) < 0.1
    canvas = page.locator(".top canvas.heat")
    expect(canvas).to_have_attribute("data-drawn", "")
    drawn = canvas.evaluate("c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]")
    pixels = np.array(drawn).reshape(-1, 4)
    assert pixels[:, 3].max() > 100
    colours = {tuple(colour) for colour in pixels[pixels[:, 3] > 200, :3].tolist()}
    assert colours
    for colour in colours:  # blue and orange, up to what the canvas rounds
        assert min(np.abs(np.array(colour) - c).max() for c in ([0, 114, 178], [213, 94, 0])) <= 2
    under = page.locator(".top .mapped img")
    assert under.evaluate("e => getComputedStyle(e).opacity") == "0"
    page.select_option("#maps", "over")
    assert float(under.evaluate("e => getComputedStyle(e).opacity")) > 0
    plain = page.locator(".top .picture").first.locator("img")
    assert plain.evaluate("e => getComputedStyle(e).opacity") == "1"
    page.reload()
    expect(page.locator("#maps")).to_have_value("over")
    page.locator("body").press("m")
    expect(page.locator(".card .mapped")).to_have_count(0)


def test_pairs_by_pointer_by_buttons_and_by_keys(visit: Any, live: str) -> None:
    page = visit(live)
    pair, cards = page.locator("#pair h3"), page.locator(".card button")
    expect(page.locator("#pair")).to_be_hidden()
    cards.nth(6).click()
    expect(pair).to_have_text("Pair 7 of 10")
    expect(page.locator("#pair")).to_be_in_viewport()
    assert page.locator(".pair .picture.mapped canvas.heat").count() == 2
    expect(cards.nth(6)).to_have_attribute("aria-pressed", "true")
    page.click("#next")
    expect(pair).to_have_text("Pair 8 of 10")
    expect(page.locator("#next")).to_be_focused()
    page.locator("body").press("p")
    expect(pair).to_have_text("Pair 7 of 10")
    cards.nth(1).focus()
    page.keyboard.press("Enter")
    expect(pair).to_have_text("Pair 2 of 10")
    cards.nth(1).click()  # a second click closes it
    expect(page.locator("#pair")).to_be_hidden()
    assert "pair=" not in page.url
    page.locator("body").press("n")
    expect(pair).to_have_text("Pair 1 of 10")
    page.click("#unpin")
    expect(page.locator("#pair")).to_be_hidden()


def test_concepts(visit: Any, live: str) -> None:
    page = visit(live)
    page.locator(".card button").first.click()
    page.click("#pair-concepts")
    expect(page.locator(".concepts section")).to_have_count(3)
    expect(page.locator(".concepts canvas.heat")).to_have_count(6)
    expect(page.locator("#strip")).to_be_in_viewport()


def test_an_own_picture_by_file_and_from_the_clipboard(visit: Any, live: str, tmp_path: Path) -> None:
    page = visit(live)
    path = tmp_path / "<img src=x onerror=alert(1)>.png"
    Image.fromarray((pictures(M, 1)[0][5, 0].numpy() * 255).astype(np.uint8)).save(path)
    page.set_input_files("#upload", path)
    expect(title(page)).to_have_text("Your own sample")
    expect(page.locator(".card")).to_have_count(10)
    assert page.locator("#pair-concepts").count() == 0
    page.select_option("#target", "1")
    expect(page.locator(".side h3").first).to_contain_text("dot")

    page.click("#tests [data-test='1']")
    expect(title(page)).to_have_text("Test sample 1")
    page.evaluate(
        """async () => {
          const canvas = Object.assign(document.createElement("canvas"), { width: 30, height: 20 });
          const blob = await new Promise((done) => canvas.toBlob(done));
          const held = new DataTransfer();
          held.items.add(new File([blob], "p.png", { type: "image/png" }));
          document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData: held, bubbles: true }));
        }"""
    )
    expect(title(page)).to_have_text("Your own sample")


DROP = """([where, name, type, text, kind]) => {
  const dataTransfer = new DataTransfer(), target = document.querySelector(where);
  dataTransfer.items.add(new File([text], name, { type }));
  const event = new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true });
  target.dispatchEvent(event);
  return event.defaultPrevented;
}"""
"""Drags a file over a part of a page, or drops it there."""


def test_an_upload_that_fails_leaves_the_page(browser: Any, live: str) -> None:
    # Not by ``visit``: Chromium itself writes refused requests to the console.
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(live)
    page.wait_for_selector(".card")
    page.set_input_files("#upload", {"name": "x.png", "mimeType": "image/png", "buffer": b"nonsense"})
    expect(page.locator("#own-image .own-note")).to_contain_text("“x.png”: The image cannot be read")
    expect(title(page)).to_have_text("Test sample 0")
    assert page.locator(".card").count() == 10

    page.evaluate(DROP, ["#explanation", "notes.pdf", "application/pdf", "x", "dragenter"])
    expect(page.locator("html.dropping #shown.over")).to_have_count(1)
    page.evaluate(DROP, ["#explanation", "notes.pdf", "application/pdf", "x", "drop"])
    note = page.locator("#shown > .own-note")
    expect(note).to_contain_text("“notes.pdf” is no image that can be read. This model takes images: PNG")
    expect(page.locator(".dropping, .over")).to_have_count(0)
    assert page.evaluate(DROP, ["header", "x.png", "image/png", "x", "drop"])  # the browser would open it
    expect(title(page)).to_have_text("Test sample 0")
    note.locator("button").click()
    expect(note).to_have_count(0)
    page.click("#tests [data-test='2']")
    expect(title(page)).to_have_text("Test sample 2")
    page.close()


def test_marks_are_saved_and_what_would_change(visit: Any, fresh: str, own: Explorer) -> None:
    page = visit(f"{fresh}#test=0")
    why = own.explain(0)
    gone, other = why["pairs"][0]["index"], why["pairs"][1]
    expect(page.locator("#tray")).to_be_hidden()
    page.locator(".card button").first.click()
    page.click("#remove")
    expect(page.locator(f".card[data-pair='{gone}'] .mark")).to_have_text("removed")
    page.locator(".card button").nth(1).click()
    label = (other["label"] + 1) % 3
    page.select_option("#relabel", str(label))
    expect(page.locator("#tray")).to_contain_text("1 removed, 1 relabelled")
    page.click("#solve")
    expect(page.locator(".answer")).to_be_in_viewport()
    expected = what_if(own, WhatIfRequest(test=0, remove=[gone], relabel={other["index"]: label}))
    logit = f"{expected['after']['logit']:+.3g}".replace("-", "−")
    expect(page.locator(".answer tr:nth-child(2) td:last-child")).to_have_text(logit)
    expect(page.locator(".answer")).to_contain_text("Solved exactly in")
    page.click("#tests [data-test='1']")
    expect(title(page)).to_have_text("Test sample 1")
    expect(page.locator(".answer")).to_have_count(0)  # it was the other test's
    page.click("#undo")
    expect(page.locator("#tray")).to_contain_text("1 removed")
    page.reload()
    expect(page.locator("#tray")).to_contain_text("1 removed")
    assert own.project.work.marks().remove == [gone]
    page.goto(f"{fresh}#test=0&pair={gone}")
    page.click("#remove")  # takes it back
    expect(page.locator(".card.marked")).to_have_count(0)


def test_labels_are_marked_by_pointer_and_saved(visit: Any, fresh: str, own: Explorer) -> None:
    ranking = own.solved.wrong_labels.result()
    tenths = np.ceil(10 * ranking.scores) / 10  # the least score of all likely ones is offered unrounded
    own.solved.wrong_labels = Background(lambda: replace(ranking, scores=tenths))
    page = visit(f"{fresh}#tab=audit", ready=".queue > li[data-index]")
    rows = own.training.suspects(0, 30)["rows"]
    items = page.locator(".queue > li")
    expect(items).to_have_count(24)
    items.nth(0).get_by_role("button", name="is right").click()
    items.nth(1).get_by_role("button", name="flag").click()
    third = (set(range(3)) - {rows[2]["label"], rows[2]["suggested"]}).pop()
    items.nth(2).locator("select").select_option(str(third))
    page.click("#audit >> text=later")
    expect(items.first).to_have_attribute("data-index", str(rows[24]["index"]))
    items.nth(0).get_by_role("button", name="flag").click()
    expect(page.locator("#audit .pager [role=status]")).to_have_text("4 marked")
    items.nth(0).get_by_role("button", name="flag").click()  # taken back
    page.reload()
    expect(page.locator("#audit .pager [role=status]")).to_have_text("3 marked")
    page.click("#audit >> text=earlier")
    expect(items.nth(1).get_by_role("button", name="flag")).to_have_attribute("aria-pressed", "true")
    marks = own.project.work.marks()
    assert [marks.of(action).tolist() for action in ("keep", "flag")] == [[row["index"]] for row in rows[:2]]
    assert marks.relabel == {rows[2]["index"]: third}

    likely = [row for row in rows if row["score"] > rows[4]["score"] and row["suggested"] != row["label"]]
    offered = page.input_value("#above")
    page.fill("#above", str(rows[4]["score"]))
    page.click("#take-all")
    expect(page.locator("#tray")).to_contain_text(f"{len(likely)} relabelled")

    page.fill("#above", offered)  # none of them is left out
    page.click("#take-all")
    expect(page.locator("#tray")).to_contain_text(f"{ranking.likely.sum()} relabelled")


def test_marks_of_a_report_and_their_export(visit: Any, report: str, explorer: Explorer) -> None:
    page = visit(report)
    page.click("#tab-audit")
    rows = explorer.training.suspects(0, 30)["rows"]
    items = page.locator(".queue > li")
    expect(items).to_have_count(24)
    expect(page.locator("#export")).to_be_disabled()
    items.nth(0).get_by_role("button", name="is right").click()
    items.nth(1).get_by_role("button", name="flag").click()
    third = (set(range(3)) - {rows[2]["label"], rows[2]["suggested"]}).pop()
    items.nth(2).locator("select").select_option(str(third))
    items.nth(3).get_by_role("button", name="flag").click()
    items.nth(3).get_by_role("button", name="flag").click()  # taken back
    with page.expect_download() as saved:
        page.click("#export")
    assert saved.value.suggested_filename == "labels.csv"
    names = explorer.names
    with open(saved.value.path(), newline="", encoding="utf-8") as file:
        found = {int(row["index"]): row for row in csv.DictReader(file)}
    assert {index: row["decision"] for index, row in found.items()} == {
        rows[0]["index"]: "keep",
        rows[1]["index"]: "flag",
        rows[2]["index"]: "relabel",
    }
    assert found[rows[2]["index"]]["label"] == names[rows[2]["label"]]
    assert found[rows[2]["index"]]["new_label"] == names[third]
    page.reload()
    expect(page.locator("#audit .pager [role=status]")).to_have_text("3 marked")


@pytest.mark.parametrize("which", ["live", "report"])
def test_classes_and_tabs_by_keys(visit: Any, which: str, request: pytest.FixtureRequest) -> None:
    page = visit(request.getfixturevalue(which))
    between = 4 if which == "live" else 2  # the map and duplicates are live
    page.locator("#tab-explore").focus()
    for _ in range(between):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-classes")).to_be_focused()
    expect(page.locator("#classes section")).to_have_count(3)
    expect(page.locator("#classes h3").first).to_have_text("bar")
    expect(page.locator("#explore")).to_be_hidden()
    no_sideways_scrolling(page)
    for _ in range(between):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#explore")).to_be_visible()


@pytest.mark.parametrize("which", ["live", "report"])
def test_filters_pages_search_and_keys(
    visit: Any, which: str, request: pytest.FixtureRequest, explorer: Explorer
) -> None:
    page = visit(request.getfixturevalue(which))
    total = M if which == "live" else 26
    rows = explorer.tests.rows(Wanted(limit=total))["rows"][:total]
    tests, counted = page.locator("#tests button"), page.locator("#range")
    expect(counted).to_have_text(f"1–24 of {total}")
    page.click("#later")
    expect(counted).to_have_text(f"25–{total} of {total}")
    page.click("#earlier")
    for name in ("label", "predicted"):
        page.select_option(f"#{name}", "1")
        wanted = [row for row in rows if row["truth" if name == "label" else "predicted"] == 1]
        expect(tests).to_have_count(len(wanted))
        page.select_option(f"#{name}", "")
    page.check("#wrong")
    expect(tests).to_have_count(sum(row["truth"] != row["predicted"] for row in rows))
    page.uncheck("#wrong")
    page.check("#disagree")
    expect(tests).to_have_count(sum(row["surrogate_class"] != row["predicted"] for row in rows))
    page.uncheck("#disagree")

    page.locator("body").press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("17")
    expect(tests).to_have_count(1)
    page.keyboard.press("Enter")
    expect(title(page)).to_have_text("Test sample 17")
    page.fill("#search", "FRAME")
    expect(tests).to_have_count(sum(2 in (row["truth"], row["predicted"]) for row in rows))
    page.fill("#search", "no such class")
    expect(counted).to_have_text("no match")
    page.fill("#search", "")
    expect(counted).to_have_text(f"1–24 of {total}")

    tests.nth(22).click()
    expect(title(page)).to_have_text("Test sample 22")
    for key, test in (
        ("j", 23),
        ("j", 24),
        ("k", 23),
        ("ArrowLeft", 22),
        ("ArrowRight", 23),
    ):  # over the end of a page and back
        title(page).click()
        page.keyboard.press(key)
        expect(title(page)).to_have_text(f"Test sample {test}")


def test_a_report_from_disk(visit: Any, report: str, explorer: Explorer) -> None:
    page = visit(report)
    expect(title(page)).to_have_text("Test sample 0")
    expect(page.locator(".summary")).to_be_hidden()
    expect(page.locator(".concepts section")).to_have_count(3)
    expect(page.locator(".chart")).to_have_count(2)
    expect(page.locator(".card")).to_have_count(6)
    assert page.locator("#upload, #target, #tray").count() == 0
    expect(page.locator("#strip")).to_be_hidden()
    page.click("#tests [data-test='4']")
    expect(title(page)).to_have_text("Test sample 4")
    strongest = explorer.explain(4, 3)["pairs"][0]["index"]
    expect(page.locator("#strip h3")).to_contain_text(f"training sample {strongest}")
    title(page).click()
    page.keyboard.press("n")
    page.keyboard.press("n")
    expect(page.locator("#pair h3")).to_have_text("Pair 2 of 6")


def test_a_report_with_effects(visit: Any, explorer: Explorer, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(report_page(explorer, range(3), k=3, n_audit=5, effects=True), encoding="utf-8")
    page = visit(f"{path.as_uri()}#test=2")
    expect(title(page)).to_have_text("Test sample 2")
    expect(page.locator(".card .other-score").first).to_contain_text("effect")
    page.locator("#would-change").check(force=True)
    expect(page.locator(".side h3").first).to_contain_text("raises the logit of")
    expect(page.locator(".card .other-score").first).to_contain_text("score")
    page.reload()
    expect(page.locator("#would-change")).to_be_checked()
    no_sideways_scrolling(page)
    plain = visit(path.as_uri(), 380, java_script_enabled=False, ready=".summary tbody tr")
    strongest = explorer.explain(2, 3, question="would change")["pairs"][0]
    expect(plain.locator(".summary tbody tr").nth(2)).to_contain_text(f"sample {strongest['index']}")
    expect(plain.locator(".summary thead")).to_contain_text("raises the logit most")


def test_a_report_without_scripts(visit: Any, report: str, explorer: Explorer) -> None:
    page = visit(report, 380, java_script_enabled=False, ready=".summary tbody tr")
    expect(page.locator(".summary tbody tr")).to_have_count(26)
    cells = page.locator(".summary tbody tr").nth(3)
    expect(cells).to_be_visible()
    strongest = explorer.explain(3, 3)["pairs"][0]["index"]
    expect(cells).to_contain_text(f"sample {strongest}")
    expect(page.locator("main")).to_be_hidden()
    expect(page.locator("nav")).to_be_hidden()
    box = page.locator(".page").bounding_box()
    assert box["width"] <= 380


def test_nothing_jumps_while_an_explanation_comes(visit: Any, live: str) -> None:
    page = visit(live)
    parts = (".top figure .picture", ".waterfall", ".card .picture", "#details", "#tests")

    def boxes() -> Any:
        return [page.locator(part).first.bounding_box() for part in parts]

    before = boxes()
    held: list[Any] = []
    page.route("**/explanation?*", lambda route: held.append(route))
    page.click("#tests [data-test='3']")
    while not held:
        page.wait_for_timeout(20)
    expect(page.locator("#explanation")).to_have_attribute("aria-busy", "true")
    assert boxes() == before
    held[0].continue_()
    expect(title(page)).to_have_text("Test sample 3")
    after = boxes()
    assert [box["width"] for box in after] == [box["width"] for box in before]
    # The sentences above the pictures may break elsewhere; the pictures have their room from the start.
    assert after[0]["height"] == before[0]["height"]
    shift = page.evaluate(
        """() => new Promise((done) => new PerformanceObserver((list) => done(
             list.getEntries().filter((e) => !e.hadRecentInput).reduce((sum, e) => sum + e.value, 0)))
             .observe({ type: "layout-shift", buffered: true }) || setTimeout(() => done(0), 1000))"""
    )
    assert shift < 0.1  # what is called good by those who measure it


def test_how_typical_a_test_is_stands_next_to_its_prediction(visit: Any, live: str) -> None:
    page = visit(live)
    page.locator("#novel").check()
    expect(page.locator("#tests .wrong", has_text="novel").first).to_be_visible()
    page.locator("#tests button").first.click()
    unfold(page)
    expect(page.locator("#typicality")).to_contain_text("Nearest training samples")
    expect(page.locator("#typicality .neighbours li")).to_have_count(5)


def test_everything_has_a_name_and_the_focus_is_seen(visit: Any, live: str) -> None:
    page = visit(live)
    assert page.locator("img:not([alt]), img[alt='']").count() == 0
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, textarea")]
             .filter((e) => !e.closest("[hidden]"))
             .filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length))
             .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    seen = []
    page.locator("body").press("Tab")
    for _ in range(16):
        style = page.evaluate(
            "(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle; })()"
        )
        assert style != "none"
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.dataset.test"))
        page.keyboard.press("Tab")
    assert seen[:5] == ["skip", "tab-explore", "words", "keys", None]  # the last folds the filters
    assert seen[5:12] == ["search", "label", "predicted", "wrong", "disagree", "novel", "order"]
    assert seen[12:14] == ["0", "later"]  # a list is one stop


def test_hostile_names_are_shown_as_they_are(visit: Any, tmp_path: Path) -> None:
    hostile = Explorer(picture_project(names=HOSTILE, path='x"><script>alert(2)<.whence'))
    path = tmp_path / "report.html"
    path.write_text(report_page(hostile, [0, 1], k=2, n_audit=12), encoding="utf-8")
    with served(hostile) as address:
        for where in (f"{address}#test=0", path.as_uri()):
            page = visit(where)
            assert HOSTILE[0] in page.locator("#label").inner_text()
            page.click("#tab-classes")
            expect(page.locator("#classes h3").first).to_have_text(HOSTILE[0])
            page.click("#tab-audit")
            expect(page.locator(".queue > li[data-index]")).not_to_have_count(0)
            for item in page.locator(".queue > li").all()[:12]:
                item.get_by_role("button", name="flag").click()
            assert page.locator("main script, main img[src='x']").count() == 0
            if where.startswith("http"):
                continue
            with page.expect_download() as saved:
                page.click("#export")
            text = Path(saved.value.path()).read_bytes().decode()
            rows = list(csv.reader(text.splitlines()))
            labels = {row[1] for row in rows[1:]}
            assert labels <= {HOSTILE[0], HOSTILE[1], "'" + HOSTILE[2]}
            assert len(labels) > 1


def test_texts(visit: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    texts = Explorer(text_project())
    with served(texts) as address:
        page = visit(f"{address}#test=0")
        written = texts_of(M, 1)[0][0]
        expect(page.locator(".top figure .tokens")).to_have_text(written)  # without [CLS], with its blanks
        assert page.locator(".card .tokens .for, .card .tokens .against").count() > 0
        page.fill("#text", "The coach said <b>goal</b>")
        page.click("#own-text button")
        expect(title(page)).to_have_text("Your own sample")
        expect(page.locator(".top figure .tokens")).to_contain_text("coach said")
        page.evaluate(
            """() => {
              const clipboardData = new DataTransfer();
              clipboardData.setData("text/plain", "shares of the bank rose");
              document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
            }"""
        )
        expect(page.locator(".top figure .tokens")).to_contain_text("shares of the bank rose")
        page.evaluate(DROP, ["#tests", "cat.png", "image/png", "x", "drop"])
        expect(page.locator("#tests-list > .own-note")).to_contain_text("is no text")
        page.evaluate(DROP, ["#tests", "vote.txt", "text/plain", "the party won the vote", "drop"])
        expect(page.locator(".top figure .tokens")).to_contain_text("the party won the vote")
        expect(page.locator(".own-note")).to_have_count(0)
        for width in (380, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            no_sideways_scrolling(page)
