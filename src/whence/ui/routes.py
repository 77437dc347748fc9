"""The explorer's interface: what each address answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import StreamingResponse

from whence.errors import WhenceError
from whence.explanation.wording import Question
from whence.ui.background import Run
from whence.ui.changes import what_changes, what_if
from whence.ui.classes import classes, compare
from whence.ui.explorer import Explorer
from whence.ui.gallery import gallery
from whence.ui.requests import Answer, Changes, Paged, Wanted, WantedTraining
from whence.ui.requests import Question as Asking
from whence.ui.uploads import own_input

MOST_PAIRS = 50

Chosen = Annotated[int | None, Query(ge=0, description="Class to explain; the model's own if none")]
Pairs = Annotated[int, Query(ge=1, le=MOST_PAIRS, description="Proponents and opponents")]
Strength = Annotated[float | None, Query(gt=0, description="One of the C of /api/info")]
Asked = Annotated[Question | None, Query(description="One of those of /api/info; the first of them if none")]
Page = Annotated[Paged, Query()]


def add_routes(app: FastAPI, explorer: Explorer) -> None:
    """Add what the page asks for: the tests, the training set, and what is solved for it."""
    _tests(app, explorer)
    _own(app, explorer)
    _training(app, explorer)
    _solved(app, explorer)


def _tests(app: FastAPI, explorer: Explorer) -> None:
    @app.get("/api/info")
    def info() -> Answer:
        """What was loaded, and what holds for all tests."""
        return explorer.info()

    @app.get("/api/tests")
    def tests(wanted: Annotated[Wanted, Query()]) -> Answer:
        """A page of the test samples that fit."""
        return explorer.tests.rows(wanted)

    @app.get("/api/tests/{test}/explanation")
    def explanation(
        test: int, k: Pairs = 5, target: Chosen = None, C: Strength = None, question: Asked = None
    ) -> Answer:
        """Where the prediction of a test sample comes from, or what would change it."""
        return explorer.explain(test, k, target, C, question)

    @app.get("/api/tests/{test}/stability")
    def stability(test: int, k: Pairs = 5, target: Chosen = None) -> Answer:
        """In how many halves of the training set the strongest samples stay so; solved when first asked."""
        return explorer.doubt(test, k, target)

    @app.get("/api/tests/{test}/typicality")
    def typicality(test: int) -> Answer:
        """How typical a test sample is of the training set, whose features are read when first asked."""
        return explorer.typicality(test)

    @app.get("/api/tests/{test}/concepts")
    def concepts(test: int, pair: int | None = None, target: Chosen = None, C: Strength = None) -> Answer:
        """Split the score of a pair into concepts; that of the strongest proponent if none is named."""
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
    ) -> Answer:
        """Explain an input of one's own: a picture (image/*) or a text (text/plain) as the body."""
        x = own_input(explorer, request.headers.get("content-type", ""), body)
        return explorer.explain_own(x, k, target, C, question)

    @app.post("/api/typicality")
    def own_typicality(request: Request, body: Annotated[bytes, Depends(_body)]) -> Answer:
        """How typical an input of one's own is, sent as for /api/explanation."""
        return explorer.typicality_own(own_input(explorer, request.headers.get("content-type", ""), body))


def _training(app: FastAPI, explorer: Explorer) -> None:
    @app.get("/api/training")
    def training(wanted: Annotated[WantedTraining, Query()]) -> Answer:
        """A page of the training samples that fit."""
        return explorer.training.rows(wanted)

    @app.get("/api/audit")
    def audit(page: Page) -> Answer:
        """Training samples whose labels may be wrong, the likeliest first; after /api/ranking at once."""
        return explorer.training.suspects(page.offset, page.limit)

    @app.get("/api/classes")
    def all_classes(page: Page) -> Answer:
        """A page of the classes of the surrogate, their strongest samples, and which are confused."""
        return classes(explorer, page.offset, page.limit)


def _solved(app: FastAPI, explorer: Explorer) -> None:
    @app.post("/api/whatif")
    def one_test(question: Asking) -> StreamingResponse:
        """Solve the surrogate with changes, for one test; lines of JSON: progress, then the answer."""
        return _answered(Run(lambda: what_if(explorer, question)))

    @app.post("/api/whatif/tests")
    def all_tests(changes: Changes) -> StreamingResponse:
        """Solve the surrogate with changes, for all tests; lines of JSON: progress, then which change."""
        return _answered(Run(lambda: what_changes(explorer, changes)))

    @app.post("/api/path")
    def path(C: Annotated[float, Query(gt=0, description="One of the C of /api/info")]) -> StreamingResponse:
        """Solve the surrogate at a C on offer; lines of JSON: progress, then the surrogate."""
        run = Run(lambda: explorer.solved.at(C))
        return _answered(run, lambda at: {"C": at.C_, "n_support": len(at.support_), "gap": at.gap_})

    @app.post("/api/gallery")
    def concepts(page: Page) -> StreamingResponse:
        """A page of the concepts that the classes use; lines of JSON: progress, then the page."""
        return _answered(Run(lambda: gallery(explorer, page.offset, page.limit)))

    @app.post("/api/comparison")
    def comparison(one: int, other: int | None = None) -> StreamingResponse:
        """Compare a class with another, or with all; lines of JSON: progress, then the comparison."""
        return _answered(Run(lambda: compare(explorer, one, other)))

    @app.post("/api/ranking")
    def ranking() -> StreamingResponse:
        """Rank the labels of the training set; lines of JSON: progress, then how many are ranked."""
        return _answered(explorer.solved.wrong_labels.begin(), lambda ranking: {"total": len(ranking)})

    @app.post("/api/novelty")
    def novelty() -> StreamingResponse:
        """Compare tests with the training set; lines of JSON: progress, then how many are novel."""
        run = explorer.solved.novelty.begin()
        return _answered(run, lambda _: {"novel": int(explorer.tests.novel.sum())})

    @app.post("/api/effects")
    def effects() -> StreamingResponse:
        """Fit effects; lines of JSON: progress, then how they are predicted."""
        run = explorer.solved.effects.begin()
        return _answered(
            run, lambda fitted: {"description": fitted.effect_.description, "seconds": fitted.fit_seconds_}
        )

    @app.post("/api/effects/stop")
    def stop() -> None:
        """Stop fitting effects, at the next step; who waits for them gets an error."""
        explorer.solved.effects.stop()


def _answered(run: Run[Any], data: Callable[[Any], Any] = lambda result: result) -> StreamingResponse:
    return StreamingResponse(followed(run, data), media_type="application/x-ndjson")


def followed(run: Run[Any], data: Callable[[Any], Any], beat: float = 0.5) -> Iterator[str]:
    """Return every ``beat`` seconds how far work is, whoever began it, and then its result."""
    while not run.ends_within(beat):
        yield json.dumps(run.progress._asdict()) + "\n"
    try:
        line = {"result": data(run.result())}
    except WhenceError as error:
        line = {"error": str(error)}
    except Exception as error:  # the page must hear of it, whatever it is
        line = {"error": f"{type(error).__name__}: {error}"}
    yield json.dumps(line) + "\n"


async def _body(request: Request) -> bytes:
    return await request.body()
