"""The explorer, live: the page and its interface on this machine."""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse

from whence import __version__
from whence.errors import WhenceError
from whence.ui.background import beside
from whence.ui.explorer import Explorer
from whence.ui.listening import LOOPBACK, address, check_token, run
from whence.ui.pages import live_look, live_page
from whence.ui.reach import compares
from whence.ui.routes import add_routes
from whence.ui.writing import Writing, add_writing

MOST_BYTES = 8 << 20
"""The largest upload."""

_POLICY = "content-security-policy"
HEADERS = {
    _POLICY: f"{live_look().policy}; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
"""Of every answer."""


def create_app(explorer: Explorer, *, hosts: tuple[str, ...], token: str | None = None) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    explorer
        What is shown.
    hosts
        The names that requests may be addressed to, against pages elsewhere that point their own name here.
        With a token, which such a page does not know, every name is taken.
    token
        Where one is given, every request must carry it, in the address or as a cookie.
    """
    check_token(token)
    app = FastAPI(title="whence explorer", version=__version__, docs_url=None, redoc_url=None)

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Any]) -> Response:
        refused = _refusal(request, hosts, token)
        response: Response = await call_next(request) if refused is None else refused
        own = {name: response.headers[name] for name in (_POLICY,) if name in response.headers}
        response.headers.update(HEADERS | own)
        if token is not None and refused is None and "token" in request.query_params:
            response.set_cookie("whence", token, httponly=True, samesite="strict")
        return response

    @app.exception_handler(WhenceError)
    async def mistaken(request: Request, error: WhenceError) -> Response:
        return _told(str(error), 422)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        # Without what was sent, which need not be anything that JSON can hold.
        return _told([{"loc": one["loc"], "msg": one["msg"]} for one in error.errors()], 422)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        answer = _told(f"{type(error).__name__}: {error}", 500)
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

    if explorer.writes:
        add_writing(app, Writing(explorer.project))
        tests = app.get("/explorer", response_class=HTMLResponse, include_in_schema=False)
        tests(lambda: live_page(explorer))

    add_routes(app, explorer)
    return app


def _refusal(request: Request, hosts: tuple[str, ...], token: str | None) -> Response | None:
    """Say why a request is not taken; None where it is."""
    host = re.sub(r":\d+$", "", request.headers.get("host") or "").strip("[]")
    if token is None and host not in hosts:
        return _told("This address is not served here.", 421)
    if token is not None and not _knows(request, token):
        return _told("Open the address that 'whence serve' printed.", 401)
    if request.method != "POST":
        return None
    if request.headers.get("x-whence") != "1":
        # A page elsewhere cannot send this header without being asked first, which is refused.
        return _told("Requests must carry the header X-Whence: 1.", 403)
    size = request.headers.get("content-length", "")
    if not size.isdecimal():
        return _told("Requests must tell their length.", 411)
    if len(size) > 12 or int(size) > MOST_BYTES:
        return _told(f"An upload may have {MOST_BYTES >> 20} MiB.", 413)
    return None


def _told(detail: Any, status: int) -> Response:
    """Say what is wrong, in plain ASCII: what was sent may hold halves of characters."""
    return Response(json.dumps({"detail": detail}), status, media_type="application/json")


def _knows(request: Request, token: str) -> bool:
    given = request.query_params.get("token") or request.cookies.get("whence") or ""
    return secrets.compare_digest(given.encode(), token.encode())


def serve(explorer: Explorer, listener: socket.socket, token: str | None, say: Callable[[str], None]) -> None:
    """Serve until interrupted, at an address that ``listen`` took."""
    app = create_app(explorer, hosts=LOOPBACK, token=token)
    # Read while the first page is looked at, so that the first question of what if need not wait for them.
    if compares(explorer.project):
        beside(lambda: explorer.project.train_bank)
    say(f"Serving {explorer.project.path.name} at {address(listener, token)} (Ctrl-C ends it).")
    run(app, listener)
