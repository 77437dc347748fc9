"""The routes of the map, whose places and colours are binary arrays, and of near-duplicates."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from fastapi import FastAPI, Query, Response
from fastapi.responses import StreamingResponse

from whence.core.arrays import Floats
from whence.errors import InvalidInputError
from whence.ui.duplicates import Copies
from whence.ui.explorer import Explorer
from whence.ui.landscape import Colouring, Landscape
from whence.ui.requests import Answer, Paged
from whence.ui.routes import follow

Method = Annotated[str, Query(pattern="^(pca|umap)$", description="How features are laid out in the plane")]
Listed = Annotated[
    str, Query(max_length=2_000, pattern=r"^(\d{1,9}(,\d{1,9})*)?$", description="Such as 3,17")
]

MOST_SAMPLES = 48
"""Samples that are shown at a time."""


def add_map_routes(app: FastAPI, explorer: Explorer) -> None:
    """Add the routes of the map."""
    landscape = Landscape(explorer)

    @app.post("/api/map")
    def make(method: Method = "pca") -> StreamingResponse:
        """Make a map; JSON lines: progress, then its header."""
        run = landscape.projection(method).begin()
        lines = follow(run, lambda _: landscape.header(method))
        return StreamingResponse(lines, media_type="application/x-ndjson")

    @app.get("/api/map")
    def header(method: Method = "pca") -> Answer:
        """What is on the map; fast after POST."""
        return landscape.header(method)

    @app.get("/api/map/points")
    def points(method: Method = "pca") -> Response:
        """The places (n_train + n_tests, 2), little-endian float32; NaN for unreadable samples."""
        return _binary(landscape.points(method))

    @app.get("/api/map/colours")
    def colours(by: Colouring, test: int | None = None) -> Response:
        """What points (n_train + n_tests,) are coloured by, little-endian float32; NaN where unknown."""
        return _binary(landscape.colours(by, test))

    @app.get("/api/map/samples")
    def samples(training: Listed = "", tests: Listed = "") -> Answer:
        """Some samples with pictures, labels and predictions."""
        chosen = [[int(i) for i in listed.split(",") if i] for listed in (training, tests)]
        if sum(map(len, chosen)) > MOST_SAMPLES:
            raise InvalidInputError(
                f"'training' and 'tests' may name {MOST_SAMPLES} samples. Got {sum(map(len, chosen))}."
            )
        return landscape.samples(*chosen)

    @app.get("/api/map/supported/{index}")
    def supported(index: int) -> Answer:
        """The tests whose predictions a training sample supports."""
        return landscape.supported(index)


def add_duplicate_routes(app: FastAPI, explorer: Explorer) -> None:
    """Add the routes of near-duplicates."""
    copies = Copies(explorer)

    @app.post("/api/duplicates")
    def find() -> StreamingResponse:
        """Compare all samples; JSON lines: progress, then how many groups there are."""
        lines = follow(copies.search().begin(), lambda found: {"total": len(found)})
        return StreamingResponse(lines, media_type="application/x-ndjson")

    @app.get("/api/duplicates")
    def groups(page: Annotated[Paged, Query()]) -> Answer:
        """A page of groups of near-duplicates; fast after POST."""
        return copies.rows(page.offset, page.limit)


def _binary(values: Floats) -> Response:
    return Response(np.ascontiguousarray(values, "<f4").tobytes(), media_type="application/octet-stream")
