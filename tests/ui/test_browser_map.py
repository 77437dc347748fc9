"""The map and the duplicates in a real browser: lasso, marks, keys alone, and room on every screen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.helpers.browsing import CHROMIUM, expect, no_sideways_scrolling, served
from tests.helpers.explored import M, N, connect, get, pictures, post, project
from tests.helpers.nets import train
from tests.ui.test_landscape import values
from tests.ui.test_looks import FAINT
from whence.ui.explorer import Explorer

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


@pytest.fixture(scope="module")
def copied() -> Explorer:
    """Pictures with a copy of sample 4, one of sample 8 with another label, and a test that is sample 20."""
    (x, y), (t, z) = pictures(N, 0), pictures(M, 1)
    x, y, t, z = x.clone(), y.clone(), t.clone(), z.clone()
    x[40], y[40] = x[4], y[4]
    x[50], y[50] = x[8], (y[8] + 1) % 3
    t[6], z[6] = x[20], y[20]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 3))
    train(model, x, y, 60, 1e-2)
    return Explorer(project(model.eval(), (x, y), (t, z)))


@pytest.fixture(scope="module")
def copies(copied: Explorer) -> Iterator[str]:
    with served(copied) as address:
        yield address


def places(client: Any, page: Any) -> np.ndarray:
    """Where points (N + M, 2) are on the page when the whole map is shown."""
    points = values(client, "/api/map/points").reshape(N + M, 2)
    box = page.locator(".points").bounding_box()
    low, high = points.min(0), points.max(0)
    scale = 0.92 * min(np.array([box["width"], box["height"]]) / (high - low))
    middle = np.array([box["x"] + box["width"] / 2, box["y"] + box["height"] / 2])
    return middle + (points - (low + high) / 2) * scale * [1, -1]


def test_a_lasso_selects_what_is_marked_and_saved(visit: Any, home: str, client: Any) -> None:
    page = visit(f"{home}#tab=map", ready=".map:not([hidden])")
    at = places(client, page)
    left, top = at.min(0) - 8
    right, bottom = np.median(at[:, 0]), at[:, 1].max() + 8
    inside = (at[:, 0] < right).nonzero()[0]
    training, tests = (inside < N).sum(), (inside >= N).sum()
    page.click("#map-lasso")
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom)):
        page.mouse.move(x, y, steps=4)
    page.mouse.up()
    bar = page.locator("[aria-label=Selection]")
    expect(bar).to_contain_text(f"{training} training samples, {tests} tests selected")
    expect(bar.locator(".thumbs .picture")).to_have_count(min(24, training + tests))
    labels = torch.cat([pictures(N, 0)[1], pictures(M, 1)[1]]).numpy()[inside]
    assert bar.locator(".map-bars li > :last-child").all_inner_texts() == [
        str(n) for n in sorted(np.bincount(labels).tolist(), reverse=True) if n
    ]
    bar.locator("#map-mark").select_option("remove")
    bar.locator("#map-do").click()
    expect(bar).to_contain_text(f"{training} marked")
    sent: list[Any] = []
    page.route(
        "**/api/slices", lambda route: (sent.append(route.request.post_data), route.fulfill(body="{}"))
    )
    bar.locator("#map-slice").fill("left half")
    bar.get_by_role("button", name="save training samples as slice").click()
    expect(page.locator(".map-status")).to_contain_text("left half")
    assert json.loads(sent[0])["samples"] == inside[inside < N].tolist()
    bar.get_by_role("button", name="clear").click()
    expect(bar).to_contain_text("Nothing is selected")
    page.keyboard.down("Shift")  # which does the same
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom)):
        page.mouse.move(x, y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    expect(bar).to_contain_text(f"{training} training samples, {tests} tests selected")


def test_the_keyboard_alone_is_enough(visit: Any, home: str) -> None:
    page = visit(f"{home}#tab=map", ready=".map:not([hidden])")
    page.focus(".points")
    page.get_by_label("● training samples").uncheck()
    page.focus(".points")
    page.keyboard.press("ArrowRight")
    status = page.locator(".map-status")
    expect(status).to_contain_text("Test ")
    first = status.inner_text()
    page.keyboard.press("ArrowLeft")
    expect(status).not_to_have_text(first)
    page.keyboard.press("Space")
    expect(page.locator("[aria-label=Selection]")).to_contain_text("1 test selected")
    page.keyboard.press("+")
    page.keyboard.press("0")
    test = status.inner_text().split(",")[0].split()[-1]
    page.keyboard.press("Enter")
    expect(page.locator("#explanation h2")).to_have_text(f"Test sample {test}")
    page.go_back()
    page.get_by_label("● training samples").check()
    page.get_by_label("◆ tests").uncheck()
    page.focus(".points")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowUp")
    expect(status).to_contain_text("Training sample")
    page.keyboard.press("Enter")
    expect(page.locator("[aria-label=Sample] h3")).to_contain_text("Training sample")
    expect(page.locator("[aria-label=Sample]")).to_contain_text("upports")


def test_colours_have_a_legend_and_an_address(visit: Any, home: str) -> None:
    page = visit(f"{home}#tab=map&test=3", ready=".map:not([hidden])")
    legend = page.locator("[aria-label=Colours]")
    expect(legend.locator("[aria-pressed=true]")).to_have_count(3)
    legend.get_by_role("button", name="dot").click()
    expect(legend.locator("[aria-pressed=true]")).to_have_count(2)
    for by, words in {
        "score": "for test 3",
        "self-influence": "Self-influence",
        "label doubt": "Doubt",
    }.items():
        page.select_option("#map-by", by)
        expect(legend.locator("h3")).to_contain_text(words, ignore_case=True)
        expect(legend.locator(".map-ramp")).to_be_visible()
    page.reload()
    expect(page.locator("#map-by")).to_have_value("label doubt")


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light"), (1920, "dark")])
def test_there_is_room_on_every_screen(visit: Any, copies: str, width: int, scheme: str) -> None:
    page = visit(f"{copies}#tab=map", width, ready=".map:not([hidden])", color_scheme=scheme)
    no_sideways_scrolling(page)
    assert page.evaluate(FAINT) == []
    box = page.locator(".points").bounding_box()
    assert box["width"] > 0.6 * min(width, 1200)
    if width >= 1280:
        assert box["y"] + box["height"] <= 900
    page.click("#tab-duplicates")
    page.wait_for_selector(".dup")
    no_sideways_scrolling(page)
    assert page.evaluate(FAINT) == []


def test_copies_are_shown_leaks_first_and_marked_at_once(visit: Any, copies: str, copied: Explorer) -> None:
    client = connect(copied)
    assert post(client, "/api/duplicates")["result"]["total"] >= 3
    answer = get(client, "/api/duplicates")

    def group(*members: tuple[bool, int]) -> Any:
        whole = [{(one["test"], one["index"]) for one in row["members"]} for row in answer["rows"]]
        (found,) = (row for row, own in zip(answer["rows"], whole, strict=True) if own >= set(members))
        return found

    assert group((True, 6), (False, 20))["leak"]
    assert group((False, 8), (False, 50))["different"]
    assert 40 in group((False, 4), (False, 40))["extra"]
    assert {20, 40} <= set(answer["extra"])
    assert not {8, 50} & set(answer["extra"])
    assert [row["leak"] for row in answer["rows"]] == sorted(
        (r["leak"] for r in answer["rows"]), reverse=True
    )
    page = visit(f"{copies}#tab=duplicates", ready=".dup")
    expect(page.locator(".dup").first).to_contain_text("Leak")
    page.click("#mark-copies")
    expect(page.locator("[data-training='40']")).to_have_class("marked")
    expect(page.locator("[data-training='20']")).to_have_class("marked")
    expect(page.locator("[data-training='50']")).not_to_have_class("marked")
    expect(page.locator("#mark-copies")).to_be_disabled()
    page.locator(".dup:has([data-training='50']) button").last.click()
    expect(page.locator("[data-training='50']")).to_have_class("marked")
