"""Photograph every view of the explorer, or of a report, at four widths in light and dark, to look at.

    whence serve whence-demo/demo.whence --port 8765 &
    python -m tools.screens http://127.0.0.1:8765/ screens
    python -m tools.screens whence-demo/index.html screens

It needs playwright and Chromium, as the tests of the page do.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

WIDTHS = (380, 768, 1280, 1920)
LIVE = {
    "start": ("#tab=start", ".spine"),
    "predictions": ("#test=0", ".card .stability"),
    "would-change": ("#test=0&view=would-change", "#would-change:checked"),
    "labels": ("#tab=audit", ".queue > li[data-index]"),
    "classes": ("#tab=classes", "#classes h3"),
    "compared": ("#tab=classes&one=0&other=6", ".comparison"),
    "concepts": ("#tab=concepts", ".concept"),
    "map": ("#tab=map", "#map canvas"),
    "duplicates": ("#tab=duplicates", "#duplicates h2"),
    "changes": ("#tab=whatif", ".training button"),
}
FILED = {name: LIVE[name] for name in ("predictions", "labels", "classes")}


def photograph(address: str, folder: Path) -> list[Path]:
    """Write the pictures of all views of a page; return their paths."""
    from playwright.sync_api import Error, sync_playwright

    live = address.startswith("http")
    where = address if live else Path(address).resolve().as_uri()
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for scheme in ("light", "dark"):
            for width in WIDTHS:
                size = {"width": width, "height": 900}
                page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
                for name, (part, ready) in (LIVE if live else FILED).items():
                    page.goto("about:blank")
                    page.goto(where + part)
                    try:
                        page.wait_for_selector(ready, timeout=60_000, state="attached")
                    except Error:
                        print(f"{name} at {width}: no {ready}", file=sys.stderr)
                    page.wait_for_timeout(700)  # for pictures and what comes later
                    wide = page.evaluate("document.documentElement.scrollWidth")
                    if wide > width:
                        print(f"{name} at {width}: scrolls sideways, {wide} wide", file=sys.stderr)
                    made.append(folder / f"{'live' if live else 'file'}-{name}-{width}-{scheme}.png")
                    page.screenshot(path=made[-1], full_page=True)
                page.context.close()
        browser.close()
    return made


if __name__ == "__main__":
    print(*photograph(sys.argv[1], Path(sys.argv[2])), sep="\n")
