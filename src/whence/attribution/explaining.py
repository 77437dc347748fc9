"""Explaining a batch of inputs, and what explains one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from whence.attribution.fitted import Fitted
from whence.attribution.members import MembersExplainer
from whence.attribution.pairs import PairExplainer
from whence.core.arrays import Ints
from whence.core.checks import check_count, check_places, is_integer
from whence.core.progress import bar
from whence.data import as_new
from whence.errors import InvalidInputError
from whence.explanation import Explanations
from whence.features import Novelty
from whence.model.inputs import check_batch
from whence.relevance.xda import Method


def explain(
    fitted: Fitted,
    x: Any,
    k: int,
    target: Any,
    index: int | Sequence[int] | None,
    truth: Any,
    method: Method | None,
    novelty: Novelty | None,
) -> Explanations:
    """Explain a batch of inputs; ``Attributor.explain`` says what is given."""
    k = min(check_count("k", k), fitted.n_train)
    x = as_new(x)
    n, among = check_batch(x), _check_index(fitted, index)
    wanted = [None] * n if target is None else fitted.task.check_target(target, n).tolist()
    truths = [None] * n if truth is None else fitted.task.check_truth(truth, n)
    explainer = make_explainer(fitted, k, method, novelty)
    batches = explainer.model.batches(x, 1)
    tests = bar("Explaining", n, "tests", parts=batches, show=fitted.show_progress and n >= 4)
    numbered = zip(range(n), tests, wanted, truths, strict=True)
    return Explanations([explainer(*test, among) for test in numbered])


def make_explainer(
    fitted: Fitted, k: int, method: Method | None = None, novelty: Novelty | None = None
) -> PairExplainer | MembersExplainer:
    """Return what explains one test sample, by the k strongest pairs of either sign."""
    return (MembersExplainer if fitted.members else PairExplainer)(fitted, k, method, novelty)


def _check_index(fitted: Fitted, index: int | Sequence[int] | None) -> Ints | None:
    """Return the training samples to explain by, or raise where one can have no score."""
    if index is None:
        return None
    places = check_places("index", [index] if is_integer(index) else index, fitted.n_train)
    never = places[~np.isin(places, fitted.scoring)]
    if not len(places) or len(never):
        got = f"{never[0]}, whose scores are all 0" if len(never) else "none"
        raise InvalidInputError(
            f"'index' must name training samples that can score, of which there are "
            f"{len(fitted.scoring):,}. Got {got}."
        )
    return places
