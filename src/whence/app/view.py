"""``whence view``: scores of another tool in the explorer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from whence.app.terminal import say, show_progress
from whence.core.files import existing_path
from whence.core.naming import import_named, make_named
from whence.errors import InvalidInputError
from whence.ui.server import listen, serve
from whence.ui.view import load_viewed


def run(
    scores: Path,
    data: str,
    tests: str,
    predictions: str | None,
    orientation: Any,
    names: Mapping[str, str | None],
    host: str,
    port: int,
    token: str | None,
) -> None:
    """Serve scores until interrupted; the address is taken before anything is read."""
    existing_path(scores)
    with listen(host, port, token) as listener:
        folder = (scores if scores.is_dir() else scores.parent).resolve()
        named = {key: None if name is None else _named(key, name, folder) for key, name in names.items()}
        train, others = make_named("data", data, folder), make_named("tests", tests, folder)
        viewed = load_viewed(
            scores, train, others, orientation=orientation,
            predictions=None if predictions is None else _predictions(predictions, folder),
            show_progress=show_progress(), **named,
        )  # fmt: skip
        serve(viewed, listener, token, say)


def _named(key: str, name: str, folder: Path) -> Any:
    """Import what an option names; the preprocessing is the function itself."""
    return import_named(key, name) if key == "preprocess" else make_named(key, name, folder)


def _predictions(name: str, folder: Path) -> Any:
    """Read predictions of a .npy file, or import them."""
    if not name.endswith(".npy"):
        return make_named("predictions", name, folder)
    try:
        return np.load(existing_path(name), allow_pickle=False)
    except ValueError as error:
        raise InvalidInputError(
            f"'{name}' must be an array of numbers. It cannot be read: {error}."
        ) from error
