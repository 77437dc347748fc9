"""An explorer of pictures, its interface, and a browser whose pages must not complain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.helpers.browsing import CHROMIUM, PATIENCE, served
from tests.helpers.explored import connect, picture_project
from whence.ui.explorer import Explorer


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    return Explorer(picture_project())


@pytest.fixture(scope="module")
def client(explorer: Explorer) -> Any:
    return connect(explorer)


@pytest.fixture(scope="module")
def home(explorer: Explorer) -> Iterator[str]:
    with served(explorer) as address:
        yield address


@pytest.fixture
def own() -> Explorer:
    """An explorer with a change list that only one test writes to."""
    return Explorer(picture_project())


@pytest.fixture
def fresh(own: Explorer) -> Iterator[str]:
    with served(own) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright import sync_api

    sync_api.expect.set_options(timeout=PATIENCE)
    with sync_api.sync_playwright() as started:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        opened = started.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens pages; at the end nothing may have been written to their consoles or asked of other machines."""
    wrong: list[str] = []
    contexts = []

    def look(request: Any) -> None:
        url = urlsplit(request.url)
        if url.scheme not in ("file", "data", "blob") and url.hostname != "127.0.0.1":
            wrong.append(f"request to {request.url}")

    def opened(address: str, width: int = 1280, *, ready: str = ".card", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        context.on("request", look)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on(
            "console", lambda line: wrong.append(line.text) if line.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
        page.goto(address)
        page.wait_for_selector(ready)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong
