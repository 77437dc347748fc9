"""Pages, parsed, and looked at in a real browser."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from whence.ui.explorer import Explorer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 60_000  # milliseconds, for busy machines


class Page(HTMLParser):
    """The tags of a page with their attributes, the text that is seen, and that of the element ``data``."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data, self.text, self._within = "", "", ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._within = dict(attrs).get("id") or tag
        if tag == "br":
            self.text += "\n"

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "data":
            self.data += data
        elif self._within not in ("script", "style"):
            self.text += data

    def every(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


@contextlib.contextmanager
def served(explorer: Explorer) -> Iterator[str]:
    """The address of a live explorer."""
    import uvicorn

    from whence.ui.server import create_app

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    app = create_app(explorer, hosts=("127.0.0.1",))
    running = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", ws="none"))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        assert thread.is_alive()
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}/"
    running.should_exit = True
    thread.join()


def expect(locator: Any) -> Any:
    """Wait for what is expected of a part of a page."""
    from playwright.sync_api import expect as expected

    return expected(locator)


def no_sideways_scrolling(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
