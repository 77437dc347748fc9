"""Scores of any tool in the explorer, from Python."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from whence.core.checks import check_count, real_array
from whence.data import as_training_set
from whence.errors import InvalidInputError
from whence.interop.scores import ForeignScores, Orientation, of_array, open_scores
from whence.model.modules import class_names as names_of
from whence.ui.server import Live, listen, show
from whence.ui.viewed import Predictions, Viewed


def view(
    scores: Any,
    train: Any,
    tests: Any,
    *,
    model: Any = None,
    predictions: Any = None,
    orientation: Orientation | None = None,
    class_names: Sequence[str] | None = None,
    preprocess: Any = None,
    tokenizer: Any = None,
    port: int = 0,
    open_browser: bool = True,
    block: bool | None = None,
    show_progress: bool = True,
) -> Live:
    """Show scores of any attribution tool in the explorer: tests, and the strongest samples of each.

    Parameters
    ----------
    scores
        A matrix, or a file or folder that ``whence.interop.open_scores`` takes.
    train, tests
        The training set and the tests with their labels, in any form that ``DualDA.fit`` takes. Labels are
        classes.
    model
        The model, to show its predictions; None shows true labels only.
    predictions
        Instead of the model: its classes (T,) or outputs (T, K).
    orientation
        "test-train" or "train-test", needed where there are as many tests as training samples.
    class_names, preprocess, tokenizer
        As for ``DualDA.fit``.
    port, open_browser, block
        As for ``explainer.serve``.
    show_progress
        Show bars of long steps.

    Returns
    -------
    The server: ``url`` is its address, ``close()`` ends it.

    Examples
    --------
    >>> import torch, whence
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> page = whence.view(x[:5] @ x.T, (x, y), (x[:5], y[:5]), open_browser=False, block=False)
    >>> page.close()
    """
    port = check_count("port", port, 0, 65535)
    viewed = load_viewed(
        scores, train, tests, model=model, predictions=predictions, orientation=orientation,
        class_names=class_names, preprocess=preprocess, tokenizer=tokenizer, show_progress=show_progress,
    )  # fmt: skip
    return show(Live(viewed, listen("127.0.0.1", port, None)), open_browser=open_browser, block=block)


def load_viewed(
    scores: Any,
    train: Any,
    tests: Any,
    *,
    model: Any = None,
    predictions: Any = None,
    orientation: Orientation | None = None,
    class_names: Sequence[str] | None = None,
    preprocess: Any = None,
    tokenizer: Any = None,
    show_progress: bool = True,
) -> Viewed:
    """Read scores, samples and predictions; ``view`` says what is given."""
    if model is not None and predictions is not None:
        raise InvalidInputError(
            "'predictions' must be None where 'model' is given, which makes them. Got both."
        )
    names = class_names if class_names is not None or model is None else names_of(model)
    options = {"preprocess": preprocess, "tokenizer": tokenizer}
    data = as_training_set(train, names=names, **options)
    others = as_training_set(tests, names=data.class_names, task=data.task, **options)
    found = _scores(scores, len(others), len(data), orientation, show_progress)
    known = None if predictions is None else Predictions.of(predictions, len(others))
    if model is not None:
        known = Predictions.by_model(model, others, show_progress)
    return Viewed(found, data, others, known, show_progress=show_progress)


def _scores(
    scores: Any, n_tests: int, n_train: int, orientation: Orientation | None, show_progress: bool
) -> ForeignScores:
    """Open a file of scores, or take a matrix."""
    if isinstance(scores, ForeignScores):
        return scores
    if isinstance(scores, str | PathLike):
        return open_scores(scores, n_tests, n_train, orientation=orientation, show_progress=show_progress)
    values = np.asarray(real_array("scores", scores))
    return of_array(Path("scores"), values, n_tests, n_train, orientation)
