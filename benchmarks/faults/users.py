"""Scripted users of the page, who look for a kind of problem and count their clicks."""

from __future__ import annotations

import base64
import io
import re
import shutil
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.faults.planting import SQUARE, Planting

PATIENCE = 120_000  # milliseconds
ENOUGH = 3  # planted samples in the first row of cards, or among the supporting samples
MOST_PAGES, MOST_TESTS = 10, 40
_FIRST_ROW = """cards => {
  const top = cards[0]?.getBoundingClientRect().top;
  return cards.filter(card => card.getBoundingClientRect().top === top).map(card => +card.dataset.index);
}"""


class User:
    """A user at Start, whose clicks are counted."""

    def __init__(self, page: Any) -> None:
        self.page, self.clicks, self.started = page, 0, 0.0
        self.wait("#start .confusion table")

    def click(self, where: str, **which: Any) -> None:
        """Click on the page; the clock starts with the first click."""
        self._count()
        self.page.locator(where, **which).first.click()

    def choose(self, where: str, value: str) -> None:
        """Choose in a list."""
        self._count()
        self.page.select_option(where, value)

    def wait(self, where: str) -> None:
        """Wait until something is on the page."""
        self.page.wait_for_selector(where, timeout=PATIENCE)

    def settle(self, where: str, before: str) -> str:
        """Wait until a text is another one, and return it."""
        self.page.wait_for_function(
            "([where, before]) => { const text = document.querySelector(where)?.textContent ?? '';"
            " return text && text !== before; }",
            arg=[where, before],
            timeout=PATIENCE,
        )
        return str(self.page.text_content(where))

    def so_far(self) -> dict[str, float]:
        """Return the clicks and the seconds up to now."""
        return {"clicks": self.clicks, "seconds": round(time.perf_counter() - self.started, 1)}

    def _count(self) -> None:
        self.started = self.started or time.perf_counter()
        self.clicks += 1


@contextmanager
def visiting(port: int) -> Iterator[Any]:
    """Open the page in a browser of its own."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1920, "height": 1080})
        page.set_default_timeout(PATIENCE)
        page.goto(f"http://127.0.0.1:{port}/")
        yield page
        browser.close()


def find_wrong_labels(user: User, planting: Planting) -> dict[str, Any]:
    """Look for wrong labels, and take all suggested ones."""
    planted = set(planting.train.tolist())
    user.click("#start .task a", has_text="Labels to check")
    shown = "#audit .queue > li[data-index]"
    user.wait(shown)
    row = _first_row(user, shown)
    first = planted & set(row)
    found = None
    for _ in range(MOST_PAGES):
        if len(planted & set(row)) >= ENOUGH:
            found = user.so_far()
            break
        before = str(row)
        user.click("#audit button", has_text="later")
        user.page.wait_for_function(
            f"before => JSON.stringify(({_FIRST_ROW})([...document.querySelectorAll('{shown}')]))"
            " !== before", arg=before.replace(" ", ""),
        )  # fmt: skip
        row = _first_row(user, shown)
    listed = _fetch(user, "api/audit?offset=0&limit=200")
    likely, rows = listed["likely_wrong"], listed["rows"]
    for offset in range(200, likely, 200):
        rows += _fetch(user, f"api/audit?offset={offset}&limit=200")["rows"]
    likely_planted = planted & {row["index"] for row in rows[:likely]}
    if likely:
        user.click("#take-all")
        user.wait("#tray:not([hidden])")
    spans = _fetch(user, "api/changes")["marks"]["relabel"]
    marked = {index for text in spans.values() for index in _indices(text)}
    right = {i for label, text in spans.items() for i in _indices(text) if planting.truth[i] == int(label)}
    return {
        "planted": len(planted), "row": len(row), "planted_in_first_row": len(first), "found": found,
        "marked": {**user.so_far(), "planted": len(planted & marked), "all": len(marked)},
        "likely": likely, "likely_planted": len(likely_planted),
        "likely_planted_marked": len(likely_planted & marked),
        "planted_with_their_true_label": len(planted & right),
    }  # fmt: skip


def find_shortcut(user: User, planting: Planting) -> dict[str, Any]:
    """Look for a mark that the supporting samples of a wrong prediction share."""
    planted, marked_tests = set(planting.train.tolist()), set(planting.tests.tolist())
    user.click("#start .task a", has_text="Wrong predictions")
    user.wait("#explore .cards .card")
    title, seen = user.settle("#explanation h2", ""), 1
    while len(planted & set(_supporting(user))) < ENOUGH and seen < MOST_TESTS:
        user.click("#next-test")
        title, seen = user.settle("#explanation h2", title), seen + 1
    found = user.so_far() if len(planted & set(_supporting(user))) >= ENOUGH else None
    test = int(title.split()[-1])
    relevance = None
    if found is not None:
        user.choose("#maps", "beside")
        user.wait("#explanation .card .twin")
        why = _fetch(user, f"api/tests/{test}/explanation?k=5")
        support = [pair for pair in why["pairs"] if pair["index"] in planted and pair["score"] > 0]
        relevance = {
            "clicks": user.clicks,
            "test": _in_corner(why["logit_map"]),
            "training": round(float(np.mean([_in_corner(pair["train_map"]) for pair in support])), 3),
        }
    wrong = _fetch(user, "api/tests?wrong=true&limit=1")["total"]
    return {
        "planted": len(planted), "wrong_predictions": wrong, "tests_seen": seen, "found": found,
        "test_has_the_mark": test in marked_tests, "relevance_in_corner": relevance,
        "pixels_in_corner": round(SQUARE**2 / 28**2, 3),
    }  # fmt: skip


def find_leaks(user: User, planting: Planting) -> dict[str, Any]:
    """Look for tests that are also training samples."""
    planted = set(zip(planting.tests.tolist(), planting.train.tolist(), strict=True))
    user.click("#tab-duplicates")
    user.wait("#duplicates .dup")
    first, shown = user.so_far(), set()
    while True:
        groups = user.page.eval_on_selector_all("#duplicates .dup", _GROUPS)
        leaking = [group for group in groups if group["tests"]]
        shown |= {(test, i) for group in leaking for test in group["tests"] for i in group["training"]}
        later = user.page.locator("#duplicates button", has_text="later").first
        if len(leaking) < len(groups) or not later.is_visible() or later.is_disabled():
            break
        before = str(user.page.text_content("#duplicates .dup summary + ul"))
        user.click("#duplicates button", has_text="later")
        user.settle("#duplicates .dup summary + ul", before)
    listed = len(planted & shown)
    return {
        "planted": len(planted), "found": first if listed else None, "all_seen": user.so_far(),
        "listed_planted": listed, "listed": len(shown),
        "recall": round(listed / len(planted), 3),
        "precision": round(listed / len(shown), 3) if shown else None,
        "alike": [_difference(planting, *pair) for pair in sorted(shown - planted)],
    }  # fmt: skip


_GROUPS = """groups => groups.map(group => ({
  tests: [...group.querySelectorAll("li a")].map(link => +link.textContent.split(" ").at(-1)),
  training: [...group.querySelectorAll("li[data-training]")].map(item => +item.dataset.training),
}))"""


def _first_row(user: User, shown: str) -> list[int]:
    row: list[int] = user.page.eval_on_selector_all(shown, _FIRST_ROW)
    return row


def _fetch(user: User, path: str) -> Any:
    """Read what the page was answered, without a click."""
    return user.page.evaluate(
        "path => fetch(path, {headers: {'x-whence': '1'}}).then(answer => answer.json())", path
    )


def _indices(ranges: str) -> Iterator[int]:
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _in_corner(view: Any) -> float:
    """Return the share of a map's absolute relevance in the square."""
    picture = Image.open(io.BytesIO(base64.b64decode(view["src"].partition(",")[2]))).convert("L")
    relevance = np.abs(np.asarray(picture, float) - 128)
    return round(float(relevance[:SQUARE, :SQUARE].sum() / max(relevance.sum(), 1)), 3)


def _difference(planting: Planting, test: int, train: int) -> float:
    """Return the mean absolute difference of a test's and a training sample's pixels, of a range of 1."""
    data = planting.data
    return round(float((data.test_images[test] - data.train_images[train]).abs().mean()), 4)


def correct_all(user: User, planting: Planting, folder: Path) -> dict[str, Any]:
    """Go from a wrong prediction to the corrected training set, which is unpacked into a folder."""
    planted, seen = set(planting.train.tolist()), 1
    user.click("#start .task a", has_text="Wrong predictions")
    user.wait("#explore .cards .card")
    title = user.settle("#explanation h2", "")
    while not (behind := planted & set(_supporting(user))) and seen < MOST_TESTS:
        user.click("#next-test")
        title, seen = user.settle("#explanation h2", title), seen + 1
    index = min(behind or set(_supporting(user)))
    user.click(f'#explanation .card[data-pair="{index}"] button')
    user.wait("#relabel")
    user.choose("#relabel", str(planting.truth[index]))
    user.click("#solve")
    user.wait("#tray .tray-answer .close")
    here = user.so_far()
    user.click("#tab-audit")
    user.click("#take-all")
    user.wait("#audit .queue > li.marked")
    user.click("#tray a.button")
    user.click("#solve-all")
    user.wait("#whatif .outcome")
    words = str(user.page.text_content("#whatif .outcome p"))
    outcome = {what: int(n) for what, n in re.findall(r"(now right|now wrong) (\d+)", words)}
    with user.page.expect_download() as started:
        user.click("#export")
    with zipfile.ZipFile(started.value.path()) as archive:
        archive.extractall(folder)
    return {
        "tests_seen": seen, "behind_a_wrong_prediction": bool(behind), "what_would_change_here": here,
        "exported": user.so_far(), "surrogate": outcome,
        "changed": _fetch(user, "api/changes")["counts"]["changed"],
    }  # fmt: skip


def _supporting(user: User) -> list[int]:
    cards: list[int] = user.page.eval_on_selector_all(
        "#explanation .side:first-child .card", "cards => cards.map(card => +card.dataset.pair)"
    )
    return cards
