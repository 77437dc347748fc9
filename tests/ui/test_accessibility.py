"""No view of the explorer has a serious fault by axe-core, at three widths and in both schemes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.browsing import CHROMIUM, no_sideways_scrolling
from whence.ui.explorer import Explorer

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

READY = {
    "start": ".confusion td a",
    "explore": ".card",
    "audit": ".queue > li[data-index]",
    "map": "#map canvas",
    "duplicates": "#duplicates h2",
    "classes": "#classes section",
    "concepts": ".concept",
    "whatif": ".training button",
}


def faults(page: Any) -> list[str]:
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light"), (1920, "dark")])
def test_views_have_no_serious_faults(visit: Any, fresh: str, own: Explorer, width: int, scheme: str) -> None:
    own.project.work.add("remove", [0, 1], why="blurred")
    own.project.work.save_slice("first", "training", "0-9")
    page = visit(fresh, width, ready=READY["start"], color_scheme=scheme)
    for view, ready in READY.items():
        page.click(f"#tab-{view}")
        page.wait_for_selector(ready)
        if view == "explore":
            page.locator(".card button").first.click()
            for fold in page.locator("details.more:visible > summary").all():
                fold.click()
            page.click("#solve")
            page.wait_for_selector(".tray-answer .answer")
        assert faults(page) == [], view
        no_sideways_scrolling(page)
    page.click("#words")
    assert faults(page) == []
