"""The explorer, live: the page and its interface on this machine."""

from __future__ import annotations

import json
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from queue import Empty, Queue
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse

from whence import __version__
from whence.errors import WhenceError
from whence.explanation.view import Strip, Usual
from whence.explanation.wording import Question
from whence.tasks import Tokens
from whence.ui import schema
from whence.ui.background import beside
from whence.ui.explorer import Explorer
from whence.ui.listening import LOOPBACK, address, check_token, run
from whence.ui.pages import live_look, live_page
from whence.ui.uploads import own_input
from whence.ui.writing import Writing, add_writing

MOST_BYTES = 8 << 20
"""The largest upload."""
MOST_PAIRS = 50

_POLICY = "content-security-policy"
HEADERS = {
    _POLICY: f"{live_look().policy}; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
"""Of every answer."""

Chosen = Annotated[int | None, Query(ge=0, description="Class to explain; the model's own if none")]
Pairs = Annotated[int, Query(ge=1, le=MOST_PAIRS, description="Proponents and opponents")]
Strength = Annotated[float | None, Query(gt=0, description="One of the C of /api/info")]
Asked = Annotated[Question, Query(description="What the logit is made of, or what would change")]


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
    writes = isinstance(explorer.task, Tokens)
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
        return RedirectResponse("write", status_code=303) if writes else HTMLResponse(live_page(explorer))

    if writes:
        add_writing(app, Writing(explorer.project))
        tests = app.get("/explorer", response_class=HTMLResponse, include_in_schema=False)
        tests(lambda: live_page(explorer))

    _routes(app, explorer)
    return app


def _routes(app: FastAPI, explorer: Explorer) -> None:
    @app.get("/api/info")
    def info() -> schema.Info:
        """What holds for all tests."""
        return explorer.info()

    @app.get("/api/tests")
    def tests(wanted: Annotated[schema.Wanted, Query()]) -> schema.Rows:
        """A page of the test samples that fit."""
        return explorer.rows(wanted)

    @app.get("/api/tests/{test}/explanation")
    def explanation(
        test: int, k: Pairs = 5, target: Chosen = None, C: Strength = None, question: Asked = "made of"
    ) -> schema.Explained:
        """Where the prediction of a test sample comes from, or what would change it."""
        return explorer.explain(test, k, target, C, question)

    @app.get("/api/tests/{test}/stability")
    def stability(test: int, k: Pairs = 5, target: Chosen = None) -> schema.Doubt:
        """In how many halves of the training set the strongest samples stay so; solved when first asked."""
        return explorer.doubt(test, k, target)

    @app.get("/api/tests/{test}/usual")
    def usual(test: int) -> Usual:
        """How usual a test sample is for the training set; features of that are read when first asked."""
        return explorer.usual(test)

    @app.get("/api/tests/{test}/concepts")
    def concepts(test: int, pair: int | None = None, target: Chosen = None, C: Strength = None) -> Strip:
        """Take the score of a pair apart into concepts; that of the strongest proponent if none is named."""
        return explorer.concepts(test, pair, target, C)

    @app.post("/api/explanation")
    def own(
        request: Request,
        body: Annotated[bytes, Depends(_body)],
        k: Pairs = 5,
        target: Chosen = None,
        C: Strength = None,
        question: Asked = "made of",
    ) -> schema.Explained:
        """Explain an input of one's own: a picture (image/*) or a text (text/plain) as the body."""
        x = own_input(explorer, request.headers.get("content-type", ""), body)
        return explorer.explain_own(x, k, target, C, question)

    @app.post("/api/usual")
    def own_usual(request: Request, body: Annotated[bytes, Depends(_body)]) -> Usual:
        """How usual an input of one's own is, sent as for /api/explanation."""
        return explorer.usual_own(own_input(explorer, request.headers.get("content-type", ""), body))

    @app.get("/api/audit")
    def audit(
        offset: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=1, le=200)] = 24
    ) -> schema.Suspects:
        """Training samples whose labels may be wrong, the likeliest first."""
        return explorer.suspects(offset, limit)

    @app.get("/api/classes")
    def classes() -> list[schema.ClassFacts]:
        """The classes of the surrogate, and the samples that carry them."""
        return explorer.classes()

    @app.post("/api/whatif")
    def what_if(question: schema.Question) -> StreamingResponse:
        """Solve the surrogate again; lines of JSON: signs of life while it works, then a schema.Answer."""

        def work() -> Any:
            found = explorer.what_if(question.test, question.remove, question.relabel, question.target)
            return found.model_dump()

        return StreamingResponse(_streamed(work), media_type="application/x-ndjson")

    @app.post("/api/path")
    def path(C: Annotated[float, Query(gt=0, description="One of the C of /api/info")]) -> StreamingResponse:
        """Solve the surrogate at a C on offer; lines of JSON: signs of life, then what was found."""

        def work() -> Any:
            found = explorer.solved.at(C)
            return {"C": found.C_, "n_support": len(found.support_), "gap": found.gap_}

        return StreamingResponse(_streamed(work), media_type="application/x-ndjson")

    @app.post("/api/effects")
    def effects() -> StreamingResponse:
        """Fit what would change; lines of JSON: schema.Progress while it works, then a schema.Foretelling."""
        return StreamingResponse(_followed(explorer), media_type="application/x-ndjson")

    @app.post("/api/effects/stop")
    def stop() -> None:
        """Stop fitting what would change, at its next step; who waits for it is told."""
        explorer.solved.effects.stop()


def _followed(explorer: Explorer, beat: float = 0.5) -> Iterator[str]:
    """Tell every ``beat`` seconds how far the effects are, whoever began them, and then what they are."""
    run = explorer.solved.effects.begin()
    while not run.ends_within(beat):
        yield json.dumps(run.progress.model_dump()) + "\n"
    yield from _streamed(lambda: schema.Foretelling.of(run.result()).model_dump())


def _streamed(work: Callable[[], Any], beat: float = 0.5) -> Iterator[str]:
    """Run work beside the answer, with a sign of life every ``beat`` seconds until its result is there."""
    said: Queue[tuple[str, Any]] = Queue()
    started = time.perf_counter()

    def run() -> None:
        try:
            said.put(("result", work()))
        except WhenceError as error:
            said.put(("error", str(error)))
        except Exception as error:  # the page must hear of it, whatever it is
            said.put(("error", f"{type(error).__name__}: {error}"))

    beside(run)
    while True:
        try:
            kind, line = said.get(timeout=beat)
        except Empty:
            yield json.dumps({"seconds": round(time.perf_counter() - started, 1)}) + "\n"
        else:
            yield json.dumps({kind: line}) + "\n"
            return


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


async def _body(request: Request) -> bytes:
    return await request.body()


def _knows(request: Request, token: str) -> bool:
    given = request.query_params.get("token") or request.cookies.get("whence") or ""
    return secrets.compare_digest(given.encode(), token.encode())


def serve(explorer: Explorer, listener: socket.socket, token: str | None, say: Callable[[str], None]) -> None:
    """Serve until interrupted, at an address that ``listen`` took."""
    app = create_app(explorer, hosts=LOOPBACK, token=token)
    # Read while the first page is looked at, so that the first question of what if need not wait for them.
    beside(lambda: explorer.project.train_bank)
    say(f"Serving {explorer.project.path.name} at {address(listener, token)} (Ctrl-C ends it).")
    run(app, listener)
