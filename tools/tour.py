"""Take the screenshots of the tour (docs/tour.md): a scripted visit to the explorer of the demo.

    whence demo --out whence-demo
    whence serve whence-demo/demo.whence --port 8765 &
    python -m tools.tour http://127.0.0.1:8765/ docs/images

It marks samples, and takes its marks back at the end. It needs playwright and Chromium, as tests do.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image

SIZE = {"width": 1280, "height": 800}
COLOURS = 128  # of a picture's palette, which makes files small


def take(address: str, folder: Path) -> None:
    """Visit the page and write the pictures."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_context(viewport=SIZE).new_page()
        page.set_default_timeout(400_000)

        def shot(name: str) -> None:
            page.wait_for_timeout(800)
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.quantize(COLOURS).save(folder / f"tour_{name}.png", optimize=True)

        page.goto(address)
        for task in range(3):
            page.wait_for_selector(f".task >> nth={task} >> .number >> text=/^[0-9]/")
        shot("start")
        page.click(".task .spine >> nth=3")
        page.wait_for_selector(".card .stability >> text=halves")
        shot("prediction")
        page.goto(f"{address}#novel=1")
        page.wait_for_selector("#sentence >> text=unlike the training data")
        shot("novel")
        page.go_back()
        page.wait_for_selector(".verdict .wrong")
        page.click(".card.for button >> nth=0")
        page.wait_for_selector("#pair canvas[data-drawn]")
        page.locator("#pair").scroll_into_view_if_needed()
        shot("pair")
        page.click("#tab-audit")
        page.wait_for_selector("#above")
        page.fill("#above", "1")
        page.click("#take-all")
        page.wait_for_selector(".queue .marked")
        shot("labels")
        page.click("#tab-map")
        page.wait_for_selector("#map canvas")
        page.wait_for_timeout(1500)
        _lasso(page)
        shot("map")
        page.click("#tab-whatif")
        page.click("#fit-effects")
        page.wait_for_selector(".first-order >> text=Predicted")
        page.click("#solve-all")
        page.wait_for_selector(".changed > li")
        page.evaluate("scrollTo(0, 0)")
        shot("changes")
        page.click("#clear-all")
        page.wait_for_selector(".entries >> text=Nothing is marked")
        browser.close()


def _lasso(page: Any) -> None:
    """Draw around the lower left of the map."""
    box = page.locator("#map canvas").first.bounding_box()
    corners = [(0.16, 0.62), (0.4, 0.62), (0.42, 0.95), (0.16, 0.97), (0.16, 0.62)]
    page.click("#map-lasso")
    for i, (x, y) in enumerate(corners):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=8)
        if not i:
            page.mouse.down()
    page.mouse.up()
    page.wait_for_selector(".map-bars")


if __name__ == "__main__":
    take(sys.argv[1], Path(sys.argv[2]))
