"""Looking at the explorer's page in a real browser."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from whence.ui.explorer import Explorer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 60_000  # milliseconds, for busy machines


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
