"""The explorer, live: the page and its interface on this machine."""

from __future__ import annotations

import io
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from importlib import resources
from queue import Empty, Queue
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse

from whence import __version__
from whence.errors import InvalidInputError, WhenceError
from whence.ui import schema
from whence.ui.explorer import Explorer
from whence.ui.pages import live_page, policy

MOST_BYTES = 8 << 20
"""The largest upload."""
MOST_PIXELS = 16_000_000
"""The largest picture that is decoded."""
MOST_PAIRS = 50

STATIC = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}

Chosen = Annotated[int | None, Query(ge=0, description="Class to explain; the model's own if none")]
Pairs = Annotated[int, Query(ge=1, le=MOST_PAIRS, description="Proponents and opponents")]
Strength = Annotated[float | None, Query(gt=0, description="One of the C of /api/info")]


def create_app(explorer: Explorer, *, hosts: tuple[str, ...], token: str | None = None) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    explorer
        What is shown.
    hosts
        The names that requests may be addressed to, against pages elsewhere that point their own name here.
    token
        Where one is given, every request must carry it, in the address or as a cookie.
    """
    app = FastAPI(title="whence explorer", version=__version__, docs_url=None, redoc_url=None)
    allowed = set(hosts)

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Any]) -> Response:
        host = (request.headers.get("host") or "").rsplit(":", 1)[0].strip("[]")
        if host not in allowed:
            return JSONResponse({"detail": "This address is not served here."}, status_code=421)
        if token is not None and not _knows(request, token):
            return JSONResponse({"detail": "Open the address that 'whence serve' printed."}, status_code=401)
        if request.method == "POST" and request.headers.get("x-whence") != "1":
            # A page elsewhere cannot send this header without being asked first, which is refused.
            return JSONResponse({"detail": "Requests must carry the header X-Whence: 1."}, status_code=403)
        response: Response = await call_next(request)
        response.headers.update(
            {
                "content-security-policy": policy(),
                "x-content-type-options": "nosniff",
                "referrer-policy": "no-referrer",
                "cache-control": "no-store",
                "cross-origin-resource-policy": "same-origin",
            }
        )
        if token is not None and request.query_params.get("token") == token:
            response.set_cookie("whence", token, httponly=True, samesite="strict")
        return response

    @app.exception_handler(WhenceError)
    async def mistaken(request: Request, error: WhenceError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=422)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def page() -> str:
        return live_page(explorer)

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        # Only names that the package itself lists: nothing of a request reaches the file system.
        files = {item.name: item for item in resources.files("whence.ui").joinpath("static").iterdir()}
        kind = STATIC.get(name[name.rfind(".") :])
        if name not in files or kind is None:
            raise HTTPException(404)
        return Response(files[name].read_bytes(), media_type=kind)

    _routes(app, explorer)
    return app


def _routes(app: FastAPI, explorer: Explorer) -> None:
    @app.get("/api/info")
    def info() -> schema.Info:
        """What holds for all tests."""
        return schema.Info(**explorer.info())

    @app.get("/api/tests")
    def tests(
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 24,
        label: Annotated[int | None, Query(ge=0)] = None,
        predicted: Annotated[int | None, Query(ge=0)] = None,
        wrong: bool = False,
        disagree: bool = False,
    ) -> schema.Rows:
        """A page of the test samples that fit."""
        return schema.Rows(
            **explorer.rows(
                offset=offset, limit=limit, label=label, predicted=predicted, wrong=wrong, disagree=disagree
            )
        )

    @app.get("/api/tests/{test}/explanation")
    def explanation(test: int, k: Pairs = 5, target: Chosen = None, C: Strength = None) -> schema.Explained:
        """Where the prediction of a test sample comes from."""
        return schema.Explained(**explorer.explain(test, k, target, C))

    @app.get("/api/tests/{test}/concepts")
    def concepts(
        test: int, pair: int | None = None, target: Chosen = None, kind: str = "components"
    ) -> schema.Strip:
        """Take the score of a pair apart into concepts."""
        return schema.Strip(**explorer.concepts(test, pair, target, kind))

    @app.post("/api/explanation")
    def own(
        request: Request,
        body: Annotated[bytes, Depends(_body)],
        k: Pairs = 5,
        target: Chosen = None,
        C: Strength = None,
    ) -> schema.Explained:
        """Explain an input of one's own: a picture (image/*) or a text (text/plain) as the body."""
        x = _own_input(explorer, request.headers.get("content-type", ""), body)
        return schema.Explained(**explorer.explain_own(x, k, target, C))

    @app.get("/api/audit")
    def audit(
        offset: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=1, le=200)] = 24
    ) -> schema.Suspects:
        """Training samples whose labels may be wrong, the likeliest first."""
        return schema.Suspects(**explorer.suspects(offset, limit))

    @app.get("/api/classes")
    def classes() -> list[schema.ClassFacts]:
        """The classes of the surrogate, and the samples that carry them."""
        return [schema.ClassFacts(**facts) for facts in explorer.classes()]

    @app.post("/api/whatif")
    def what_if(question: schema.Question) -> StreamingResponse:
        """Solve the surrogate anew; lines of JSON: progress while it works, then the answer."""
        return StreamingResponse(
            _streamed(
                lambda: schema.Answer(
                    **explorer.what_if(question.test, question.remove, question.relabel, question.target)
                ).model_dump()
            ),
            media_type="application/x-ndjson",
        )

    @app.post("/api/path")
    def path() -> StreamingResponse:
        """Solve the surrogate at every C on offer; a line of JSON for each one that is ready."""

        def work(say: Callable[[Any], None]) -> dict[str, Any]:
            for C in explorer.Cs():
                found = explorer.at(C)
                say({"C": C, "n_support": len(found.support_), "gap": found.gap_})
            return {"done": True}

        return StreamingResponse(_streamed_with(work), media_type="application/x-ndjson")


def _streamed(work: Callable[[], Any]) -> Iterator[str]:
    return _streamed_with(lambda say: work())


def _streamed_with(work: Callable[[Callable[[Any], None]], Any], beat: float = 0.5) -> Iterator[str]:
    """Run work beside the answer: what it says is sent on as it comes, and a sign of life in between."""
    said: Queue[tuple[str, Any]] = Queue()

    def run() -> None:
        try:
            said.put(("result", work(lambda line: said.put(("progress", line)))))
        except WhenceError as error:
            said.put(("error", str(error)))
        except Exception as error:  # the page must hear of it, whatever it is
            said.put(("error", f"{type(error).__name__}: {error}"))

    threading.Thread(target=run, daemon=True).start()
    while True:
        try:
            kind, line = said.get(timeout=beat)
        except Empty:
            yield json.dumps({"working": True}) + "\n"
            continue
        yield json.dumps({kind: line}) + "\n"
        if kind != "progress":
            return


async def _body(request: Request) -> bytes:
    """Read a body up to the largest size that is taken."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise HTTPException(413, f"An upload may have {MOST_BYTES >> 20} MiB.")
        parts.append(part)
    return b"".join(parts)


def _own_input(explorer: Explorer, kind: str, body: bytes) -> Any:
    """Make a batch of one of an upload."""
    if kind.startswith("text/plain"):
        try:
            text = body.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise InvalidInputError("A text must be UTF-8.") from None
        if not text:
            raise InvalidInputError("A text must not be empty.")
        return explorer.text_input(text)
    if kind.startswith("image/"):
        return explorer.image_input(_decoded(body))
    raise InvalidInputError(f"An upload must be a picture or plain text. Got {kind or 'no content type'}.")


def _decoded(body: bytes) -> Any:
    """Decode a picture, or raise."""
    try:
        from PIL import Image
    except ImportError:
        raise InvalidInputError("Pictures need Pillow. Install whence[images].") from None
    try:
        with Image.open(io.BytesIO(body), formats=("PNG", "JPEG", "WEBP", "BMP", "GIF")) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                size = f"{opened.width}×{opened.height}"
                most = MOST_PIXELS // 1_000_000
                raise InvalidInputError(f"A picture may have {most} megapixels. Got {size}.")
            return np.asarray(opened.convert("RGB"))
    except InvalidInputError:
        raise
    except Exception as error:
        raise InvalidInputError(f"The picture cannot be read: {error}.") from None


def _knows(request: Request, token: str) -> bool:
    given = request.query_params.get("token") or request.cookies.get("whence") or ""
    return secrets.compare_digest(given.encode(), token.encode())


def serve(explorer: Explorer, host: str, port: int, token: str | None, say: Callable[[str], None]) -> None:
    """Serve until interrupted; beyond this machine only with a token."""
    import uvicorn

    loopback = host in ("127.0.0.1", "localhost", "::1")
    if not loopback and token is None:
        raise InvalidInputError(
            f"'host' must be 127.0.0.1, or come with a token that visitors need. Got {host!r} alone; "
            "pass --token."
        )
    names = ("127.0.0.1", "localhost", "::1") if loopback else (host, "127.0.0.1", "localhost")
    app = create_app(explorer, hosts=names, token=token)
    shown = f"http://{host}:{port}/" + (f"?token={token}" if token else "")
    say(f"Serving {explorer.session.path.name} at {shown} (Ctrl-C ends it).")
    uvicorn.run(app, host=host, port=port, log_level="warning")
