"""The explorer, live: the page and its interface, at a free and guarded address of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable
from os import PathLike
from typing import Any
from urllib.parse import urlencode

import h11
import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from whence import __version__
from whence.attribution.base import Attributor
from whence.core import store
from whence.core.checks import check_count, check_flag, check_is, check_path
from whence.errors import InvalidInputError, WhenceError
from whence.project import Project
from whence.ui.background import start_thread
from whence.ui.explorer import Explorer
from whence.ui.map_routes import add_duplicate_routes, add_map_routes
from whence.ui.pages import live_look, live_page, report_page
from whence.ui.routes import add_routes
from whence.ui.solved import compares
from whence.ui.viewed import Viewed
from whence.ui.work_routes import add_work_routes
from whence.ui.writing import Writing, add_writing

MOST_BYTES = 8 << 20
"""The largest upload."""

LEAST_LETTERS = 16
"""The shortest token."""
REQUEST_SECONDS = 30.0
"""How long a whole request may take to arrive, from the connection on."""
IDLE_SECONDS = 75
"""How long a connection is kept open between requests: longer than people look at an answer."""
LEAVE_SECONDS = 2
"""How long answers under way are waited for at the end."""
_REPORTED = 20  # training samples that a report shows where no tests are given

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_POLICY = "content-security-policy"
HEADERS = {
    _POLICY: f"{live_look().policy}; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
"""Of every answer."""


def create_app(explorer: Explorer | Viewed, *, hosts: tuple[str, ...], token: str | None = None) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    explorer : what is shown
    hosts : the names that requests may be addressed to, against pages elsewhere that point their own name
        here. With a token, which such a page does not know, every name is taken
    token : where one is given, every request must carry it, in the address or as a cookie
    """
    check_token(token)
    app = FastAPI(title="whence explorer", version=__version__, docs_url=None, redoc_url=None)

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Any]) -> Response:
        refused = _refusal(request, hosts, token)
        response: Response = await call_next(request) if refused is None else refused
        policy = response.headers.get(_POLICY, HEADERS[_POLICY])
        response.headers.update({**HEADERS, _POLICY: policy})
        if token is not None and refused is None and "token" in request.query_params:
            response.set_cookie("whence", token, httponly=True, samesite="strict")
        return response

    @app.exception_handler(WhenceError)
    async def mistaken(request: Request, error: WhenceError) -> Response:
        return _detail(str(error), 422)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        # Without what was sent, which need not be anything that JSON can hold.
        return _detail([{"loc": one["loc"], "msg": one["msg"]} for one in error.errors()], 422)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        answer = _detail(f"{type(error).__name__}: {error}", 500)
        answer.headers.update(HEADERS)
        return answer

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def page(request: Request) -> Response:
        if "token" in request.query_params:  # the cookie has it from now on, and no bookmark should
            return RedirectResponse("./", status_code=303)
        return (
            RedirectResponse("write", status_code=303)
            if explorer.writes
            else HTMLResponse(live_page(explorer))
        )

    if not explorer.scores_only and explorer.writes:
        add_writing(app, Writing(explorer.project), lambda request: _from_here(request, token))
        tests = app.get("/explorer", response_class=HTMLResponse, include_in_schema=False)
        tests(lambda: live_page(explorer))

    add_routes(app, explorer)
    if not explorer.scores_only:
        add_work_routes(app, explorer)
        add_map_routes(app, explorer)
        add_duplicate_routes(app, explorer)
    return app


def _refusal(request: Request, hosts: tuple[str, ...], token: str | None) -> Response | None:
    """Say why a request is not taken; None where it is."""
    names = "|".join(re.escape(f"[{host}]" if ":" in host else host) for host in hosts)
    # Any port: the address may be forwarded from another one.
    if token is None and not re.fullmatch(f"({names})(:[0-9]{{1,5}})?", request.headers.get("host", "")):
        return _detail("This address is not served here.", 421)
    if token is not None and not _knows(request, token):
        return _detail("Open the address that 'whence serve' printed.", 401)
    computes = request.method == "POST" or request.url.path.startswith(("/api/", "/other/"))
    if computes and request.headers.get("x-whence") != "1":
        # A page elsewhere cannot send this header without being asked first, which is refused.
        return _detail("Requests must carry the header X-Whence: 1.", 403)
    if request.method != "POST":
        return None
    size = request.headers.get("content-length", "")
    if not size.isdecimal():
        return _detail("Requests must state their length.", 411)
    if len(size) > 12 or int(size) > MOST_BYTES:
        return _detail(f"An upload may have {MOST_BYTES >> 20} MiB.", 413)
    return None


def _from_here(request: Request, token: str | None) -> bool:
    """Return whether the visitor asks, and not a page elsewhere that links here.

    Browsers say so in a header of every request to this machine, or over https. Without it, a token decides:
    its cookie is not sent for pages elsewhere.
    """
    site = request.headers.get("sec-fetch-site")
    asked = site in ("same-origin", "none") or (site is None and token is not None)
    return asked or request.headers.get("x-whence") == "1"


def _detail(detail: Any, status: int) -> Response:
    """Say what is wrong, in plain ASCII: what was sent may hold halves of characters."""
    return Response(json.dumps({"detail": detail}), status, media_type="application/json")


def _knows(request: Request, token: str) -> bool:
    given = request.query_params.get("token") or request.cookies.get("whence") or ""
    return secrets.compare_digest(given.encode(), token.encode())


class Live:
    """An explorer that is served from this process, until ``close`` or the end of the process.

    Attributes
    ----------
    url : the address of the page, on this machine only
    """

    def __init__(self, explorer: Explorer | Viewed, listener: socket.socket) -> None:
        self.url = address(listener, None)
        self._server = Server(_configured(create_app(explorer, hosts=LOOPBACK)))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)

    def close(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join()

    def wait(self) -> None:
        """Return when the server ends; Ctrl-C ends it."""
        try:
            while self._thread.is_alive():
                self._thread.join(0.2)
        except KeyboardInterrupt:
            self.close()

    def __repr__(self) -> str:
        state = "running" if self._thread.is_alive() else "closed"
        return f"Explorer at {self.url}, {state}; close() ends it"

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}" target="_blank">{self.url}</a>'


def serve_explainer(
    attributor: Any, tests: Any, port: int, *, compare: Any, open_browser: bool, block: bool | None
) -> Live:
    """Serve the explorer of a fitted explainer from Python; ``Attributor.serve`` says what is given."""
    other = None
    if compare is not None:
        check_is("compare", compare, Attributor, "a fitted explainer")
        other = Explorer(Project.of(compare, tests))
    live = Live(
        Explorer(Project.of(attributor, tests), compare=other),
        listen("127.0.0.1", check_count("port", port, 0, 65535), None),
    )
    return show(live, open_browser=open_browser, block=block)


def show(live: Live, *, open_browser: bool, block: bool | None) -> Live:
    """Open a page that is served in the browser, and in scripts wait until it ends."""
    if check_flag("open_browser", open_browser):
        webbrowser.open(live.url)
    interactive = hasattr(sys, "ps1") or "IPython" in sys.modules
    if not interactive if block is None else check_flag("block", block):
        print(f"Explorer at {live.url} (Ctrl-C ends it).")
        live.wait()
    return live


def report_explainer(attributor: Any, path: str | PathLike[str], tests: Any, k: int, *, effects: bool) -> str:
    """Write the explorer of a fitted explainer as one page; ``Attributor.report`` says what is given."""
    path, k = check_path("path", path), check_count("k", k)
    project = Project.of(attributor, tests, most=_REPORTED)
    valid = np.flatnonzero(project.test_bank.valid).tolist()
    store.write_text(path, report_page(Explorer(project), valid, k, effects=check_flag("effects", effects)))
    return os.fspath(path)


def serve(
    explorer: Explorer | Viewed, listener: socket.socket, token: str | None, say: Callable[[str], None]
) -> None:
    """Serve until interrupted, at an address that ``listen`` took."""
    app = create_app(explorer, hosts=LOOPBACK, token=token)
    # Read while the first page is looked at, so that the first question of what if need not wait for it.
    if not explorer.scores_only and compares(explorer.project):
        start_thread(lambda: explorer.project.train_bank)
    name = explorer.scores.path.name if explorer.scores_only else explorer.project.path.name
    say(f"Serving {name} at {address(listener, token)} (Ctrl-C ends it).")
    run(app, listener)


# The address


def listen(host: str, port: int, token: str | None) -> socket.socket:
    """Take a port, or raise where it is taken or anyone could come in.

    Parameters
    ----------
    host, port : where to listen
    token : what visitors must know; needed at every other address than this machine's own
    """
    check_token(token)
    if host not in LOOPBACK and token is None:
        raise InvalidInputError(
            f"'host' must be 127.0.0.1, or come with a token that visitors need. Got {host!r} alone; "
            f"pass --token, such as {secrets.token_hex(LEAST_LETTERS)}."
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InvalidInputError(
            f"'host' and 'port' must be an address of this machine that is free. Got {host!r} and {port} "
            f"({error.strerror or error}). Pass another --port, or end what listens there."
        ) from error


def check_token(token: str | None) -> None:
    """Raise unless a token is long enough that nobody guesses it, and can stand in an address."""
    if token is None:
        return
    if len(token) < LEAST_LETTERS or not token.isascii() or not token.isprintable():
        raise InvalidInputError(
            f"'token' must have at least {LEAST_LETTERS} characters, all of them printable ASCII. Got "
            f"{len(token)}. Pass a random one, such as {secrets.token_hex(LEAST_LETTERS)}."
        )


def address(listener: socket.socket, token: str | None) -> str:
    """Write the address that visitors open."""
    host, port = listener.getsockname()[:2]
    query = "" if token is None else f"?{urlencode({'token': token})}"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/{query}"


def run(app: Any, listener: socket.socket) -> None:
    """Answer requests until interrupted."""
    server, interrupts = Server(_configured(app)), list[tuple[Any, ...]]()

    def end(*interrupt: Any) -> None:
        # Without an exception: what the server imports and calls while it starts might swallow it.
        server.should_exit = True
        interrupts.append(interrupt)

    before = signal.signal(signal.SIGINT, end)
    try:
        server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts and callable(before):
        before(*interrupts[0])


def _configured(app: Any) -> Config:
    return Config(
        app,
        http=Prompt,
        ws="none",
        log_level="warning",
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=LEAVE_SECONDS,
    )


class Prompt(H11Protocol):
    """A connection that is closed when a request does not arrive whole in time.

    uvicorn itself waits for ever for the rest of a request.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._relax()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Wait for the rest of a request, from its first part on; not while it is answered."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._relax()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _relax(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
