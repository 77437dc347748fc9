"""The routes of the explorer's API."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import StreamingResponse

from whence.core.naming import optional_import
from whence.errors import InvalidInputError, WhenceError
from whence.explanation.wording import Question
from whence.ui.background import Run
from whence.ui.changes import what_changes, what_if
from whence.ui.classes import classes, compare, confusion, gallery
from whence.ui.compared import Compared
from whence.ui.explorer import Explorer
from whence.ui.requests import (
    Answer,
    Changes,
    Other,
    Paged,
    Wanted,
    WantedComparison,
    WantedTraining,
    WhatIfRequest,
)
from whence.ui.viewed import Viewed

Result = TypeVar("Result")

MOST_PAIRS = 50
MOST_WAITING = 8
"""What-ifs, solutions of the path, galleries and comparisons that run or wait at once."""
MOST_PIXELS = 16_000_000
"""The largest picture that is decoded."""
MOST_LETTERS = 20_000
"""The longest text that is accepted, the same as in the page: tokenizers read all of a text first."""

Chosen = Annotated[int | None, Query(ge=0, description="Class to explain; the predicted one by default")]
Pairs = Annotated[int, Query(ge=1, le=MOST_PAIRS, description="Proponents and opponents")]
Strength = Annotated[float | None, Query(gt=0, description="One of the values of C in /api/info")]
Asked = Annotated[Question | None, Query(description="One of the questions in /api/info; default the first")]
Over = Annotated[Other, Query()]
Page = Annotated[Paged, Query()]


def add_routes(app: FastAPI, explorer: Explorer | Viewed) -> None:
    """Add the routes of the page: tests, training set, and computations; of scores alone only their tests."""
    if explorer.scores_only:
        _scores(app, explorer)
        return
    _tests(app, explorer)
    _own(app, explorer)
    _training(app, explorer)
    _solved(app, explorer)
    if explorer.other is not None and explorer.compared is not None:
        _compared(app, explorer.compared)
        below = APIRouter(prefix="/other")
        _tests(below, explorer.other)
        app.include_router(below)


def _scores(app: FastAPI, viewed: Viewed) -> None:
    @app.get("/api/info")
    def info() -> Answer:
        """What was loaded."""
        return viewed.info()

    @app.get("/api/tests")
    def tests(wanted: Annotated[Wanted, Query()]) -> Answer:
        """A page of the test samples that match."""
        return viewed.rows(wanted)

    @app.get("/api/tests/{test}/explanation")
    def explanation(test: int, k: Pairs = 5) -> Answer:
        """The training samples with the strongest scores of a test."""
        return viewed.explain(test, k)


def _compared(app: FastAPI, compared: Compared) -> None:
    @app.get("/api/compare")
    def rows(wanted: Annotated[WantedComparison, Query()]) -> Answer:
        """A page of the tests of two explainers, those that differ most first."""
        return compared.rows(wanted)

    @app.get("/api/compare/{test}")
    def outputs(test: int) -> Answer:
        """The outputs of both models for a test."""
        return compared.outputs(test)

    @app.post("/api/compare/overlap")
    def overlap() -> StreamingResponse:
        """Compare the strongest training samples of all tests; JSON lines: progress, then their mean."""
        return _answered(compared.overlap.begin(), lambda shared: {"mean": float(shared.mean())})


def _tests(app: FastAPI | APIRouter, explorer: Explorer) -> None:
    @app.get("/api/info")
    def info() -> Answer:
        """What was loaded, and statistics over all tests."""
        return explorer.info()

    @app.get("/api/tests")
    def tests(wanted: Annotated[Wanted, Query()]) -> Answer:
        """A page of the test samples that match."""
        return explorer.tests.rows(wanted)

    @app.get("/api/tests/{test}/explanation")
    def explanation(
        test: int,
        k: Pairs = 5,
        target: Chosen = None,
        C: Strength = None,
        question: Asked = None,
        against: Over = None,
    ) -> Answer:
        """Where the prediction of a test sample comes from, or what would change it."""
        return explorer.explain(test, k, target, C, question, against)

    @app.get("/api/tests/{test}/stability")
    def stability(test: int, k: Pairs = 5, target: Chosen = None) -> Answer:
        """In how many halves of the training set the strongest samples stay so; solved on first use."""
        return explorer.stability(test, k, target)

    @app.get("/api/tests/{test}/typicality")
    def typicality(test: int) -> Answer:
        """How typical a test sample is of the training set, whose features are computed on first use."""
        return explorer.typicality(test)

    @app.get("/api/tests/{test}/concepts")
    def concepts(test: int, pair: int | None = None, target: Chosen = None, C: Strength = None) -> Answer:
        """Split the score of a pair into concepts; by default the pair with the strongest proponent."""
        return explorer.concepts(test, pair, target, C)


def _own(app: FastAPI, explorer: Explorer) -> None:
    @app.post("/api/explanation")
    def own(
        request: Request,
        body: Annotated[bytes, Depends(_body)],
        k: Pairs = 5,
        target: Chosen = None,
        C: Strength = None,
        question: Asked = None,
        against: Over = None,
    ) -> Answer:
        """Explain your own input: an image (image/*) or a text (text/plain) as the body."""
        x = read_upload(explorer, request.headers.get("content-type", ""), body)
        return explorer.explain_own(x, k, target, C, question, against)

    @app.post("/api/typicality")
    def own_typicality(request: Request, body: Annotated[bytes, Depends(_body)]) -> Answer:
        """How typical your own input is, sent as for /api/explanation."""
        return explorer.typicality_own(read_upload(explorer, request.headers.get("content-type", ""), body))


def _training(app: FastAPI, explorer: Explorer) -> None:
    @app.get("/api/training")
    def training(wanted: Annotated[WantedTraining, Query()]) -> Answer:
        """A page of the training samples that match."""
        return explorer.training.rows(wanted)

    @app.get("/api/audit")
    def audit(page: Page) -> Answer:
        """Training samples whose labels may be wrong, the most likely first; fast after /api/ranking."""
        return explorer.training.suspects(page.offset, page.limit)

    @app.get("/api/confusion")
    def confusions() -> Answer:
        """How often tests of each class are predicted as each class."""
        return confusion(explorer)

    @app.get("/api/classes")
    def all_classes(page: Page) -> Answer:
        """A page of the classes of the surrogate, with their strongest samples and confusions."""
        return classes(explorer, page.offset, page.limit)


def _solved(app: FastAPI, explorer: Explorer) -> None:
    waiting = threading.BoundedSemaphore(MOST_WAITING)

    @app.post("/api/whatif")
    def one_test(question: WhatIfRequest) -> StreamingResponse:
        """Re-solve the surrogate with changes, for one test; JSON lines: progress, then the answer."""
        return _answered(_queued(waiting, lambda: what_if(explorer, question)))

    @app.post("/api/whatif/tests")
    def all_tests(changes: Changes) -> StreamingResponse:
        """Re-solve the surrogate with changes, for all tests; JSON lines: progress, then changed tests."""
        return _answered(_queued(waiting, lambda: what_changes(explorer, changes)))

    @app.post("/api/path")
    def path(
        C: Annotated[float, Query(gt=0, description="One of the values of C in /api/info")],
    ) -> StreamingResponse:
        """Solve the surrogate at one of the offered C; JSON lines: progress, then the surrogate."""
        run = _queued(waiting, lambda: explorer.solved.at(C))
        return _answered(run, lambda at: {"C": at.C_, "n_support": len(at.support_), "gap": at.gap_})

    @app.post("/api/gallery")
    def concepts(page: Page) -> StreamingResponse:
        """A page of the concepts that the classes use; JSON lines: progress, then the page."""
        return _answered(_queued(waiting, lambda: gallery(explorer, page.offset, page.limit)))

    @app.post("/api/comparison")
    def comparison(one: int, other: int | None = None) -> StreamingResponse:
        """Compare a class with another, or with all; JSON lines: progress, then the comparison."""
        return _answered(_queued(waiting, lambda: compare(explorer, one, other)))

    @app.post("/api/ranking")
    def ranking() -> StreamingResponse:
        """Rank the labels of the training set; JSON lines: progress, then how many are ranked."""
        return _answered(explorer.solved.wrong_labels.begin(), lambda ranking: {"total": len(ranking)})

    @app.post("/api/novelty")
    def novelty() -> StreamingResponse:
        """Compare tests with the training set; JSON lines: progress, then how many are novel."""
        run = explorer.solved.novelty.begin()
        return _answered(run, lambda _: {"novel": int(explorer.tests.novel.sum())})

    @app.post("/api/effects")
    def effects() -> StreamingResponse:
        """Fit effects; JSON lines: progress, then how effects are predicted."""
        run = explorer.solved.effects.begin()
        return _answered(
            run, lambda fitted: {"description": fitted.effect_.description, "seconds": fitted.fit_seconds_}
        )

    @app.post("/api/effects/stop")
    def stop() -> None:
        """Stop fitting effects at the next step; requests that wait for them get an error."""
        explorer.solved.effects.stop()


def _queued(waiting: threading.BoundedSemaphore, work: Callable[[], Result]) -> Run[Result]:
    """Start work unless as much as allowed is under way; its place is free when it ends, whoever listens."""
    if not waiting.acquire(blocking=False):
        raise HTTPException(
            503,
            f"{MOST_WAITING} computations are running or wait. Ask again when one has ended.",
        )

    def freed() -> Result:
        try:
            return work()
        finally:
            waiting.release()

    return Run(freed)


def _answered(run: Run[Any], data: Callable[[Any], Any] = lambda result: result) -> StreamingResponse:
    return StreamingResponse(follow(run, data), media_type="application/x-ndjson")


def follow(run: Run[Any], data: Callable[[Any], Any], beat: float = 0.5) -> Iterator[str]:
    """Yield the progress of a run every ``beat`` seconds, then its result."""
    while not run.ends_within(beat):
        yield json.dumps(run.progress._asdict()) + "\n"
    try:
        line = {"result": data(run.result())}
    except WhenceError as error:
        line = {"error": str(error)}
    except Exception as error:  # the page shows any error
        line = {"error": f"{type(error).__name__}: {error}"}
    yield json.dumps(line) + "\n"


async def _body(request: Request) -> bytes:
    return await request.body()


# Uploads: images and texts, converted into inputs of the model


def read_upload(explorer: Explorer, kind: str, body: bytes) -> Any:
    """Convert an upload into a batch of one, by its content type."""
    if kind.startswith("text/plain"):
        return text_input(explorer, body)
    if kind.startswith("image/"):
        return image_input(explorer, decode_picture(body))
    raise InvalidInputError(f"An upload must be an image or plain text. Got {kind or 'no content type'}.")


def text_input(explorer: Explorer, body: bytes) -> Any:
    """Convert a text in UTF-8 into a batch of one."""
    try:
        text = body.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise InvalidInputError("A text must be UTF-8.") from None
    if not text:
        raise InvalidInputError("A text must not be empty.")
    if len(text) > MOST_LETTERS:
        raise InvalidInputError(f"A text may have at most {MOST_LETTERS:,} characters. Got {len(text):,}.")
    prepare = explorer.project.attributor.fitted_.require_model().prepare
    if prepare.preprocess is None and prepare.tokenizer is None:
        raise InvalidInputError(
            "Explaining a text needs the tokenizer that the explainer was fitted with. Fit with --tokenizer."
        )
    return [text]


def image_input(explorer: Explorer, pixels: Any) -> Any:
    """Convert an image (height, width, 3) of bytes into a batch of one with the training samples' shape."""
    from PIL import Image

    explainer = explorer.project.attributor
    if explainer.fitted_.require_model().prepare.preprocess is not None:
        return [Image.fromarray(pixels)]
    rows = np.linspace(0, explainer.n_train_ - 1, 16).astype(int).tolist()
    like = np.asarray(explainer.fitted_.require_data().take(rows), dtype=np.float32)
    if like.ndim != 4 or like.shape[1] not in (1, 3):
        raise InvalidInputError("An image needs an image model. The inputs of this model have another shape.")
    if like.min() < 0 or (1 < like.max() < 32) or like.max() > 255:
        raise InvalidInputError(
            "The scaling of the training samples is unknown. Fit with --preprocess, which then also scales "
            "uploaded images."
        )
    _, channels, height, width = like.shape
    picture = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
    values = np.asarray(picture.convert("L" if channels == 1 else "RGB"), dtype=np.float32)
    planes = values[None] if channels == 1 else np.moveaxis(values, -1, 0)
    return torch.from_numpy((planes if like.max() > 1 else planes / 255)[None].copy())


def decode_picture(body: bytes) -> Any:
    """Decode an image to bytes (height, width, 3), or raise."""
    with optional_import("Images need Pillow. Install whence[images]."):
        from PIL import Image, ImageOps, UnidentifiedImageError
    try:
        with Image.open(io.BytesIO(body), formats=("PNG", "JPEG", "WEBP", "BMP", "GIF")) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                size = f"{opened.width}×{opened.height}"
                most = MOST_PIXELS // 1_000_000
                raise InvalidInputError(f"An image may have at most {most} megapixels. Got {size}.")
            return np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    except InvalidInputError:
        raise
    except UnidentifiedImageError:
        raise InvalidInputError(
            "The image cannot be read: it is no PNG, JPEG, WebP, BMP or GIF. Save it as one of these."
        ) from None
    except Exception as error:
        raise InvalidInputError(f"The image cannot be read: {error}.") from None
