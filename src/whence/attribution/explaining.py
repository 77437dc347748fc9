"""Explaining a batch of inputs, and what explains one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from whence.attribution.feature_space import in_feature_space
from whence.attribution.fitted import Fitted
from whence.attribution.members import MembersExplainer
from whence.attribution.pairs import PairExplainer
from whence.attribution.parameters import MOST_PAIRS
from whence.core.arrays import Ints
from whence.core.checks import check_count, check_flag, check_places, is_integer, shown
from whence.core.progress import bar
from whence.errors import InvalidInputError, UnsupportedError
from whence.explanation import Explanations
from whence.explanation.record import Asked
from whence.features import Novelty
from whence.model.inputs import check_batch, take
from whence.relevance.xda import Method

if TYPE_CHECKING:
    from whence.attribution.base import Attributor


def explain(
    attributor: Attributor,
    x: Any,
    k: int,
    target: Any,
    index: int | Sequence[int] | None,
    truth: Any,
    method: Method | None,
    novelty: Novelty | Literal[False] | None,
    against: Any,
    relative: bool | None,
    features: Any = None,
) -> Explanations:
    """Explain a batch of inputs; ``Attributor.explain`` says what is given."""
    fitted = attributor.fitted_
    k = min(check_count("k", k, most=MOST_PAIRS), fitted.n_train)
    if (x is None) == (features is None):
        raise InvalidInputError(
            f"Either 'x' or 'features' must be given. Got {'neither' if x is None else 'both'}."
        )
    if features is None:
        x = fitted.as_batch(x)
    else:
        fitted, novelty = in_feature_space(fitted), False
        x = fitted.check_features(features)
    n, among = check_batch(x), _check_index(fitted, index)
    wanted = [None] * n if target is None else fitted.task.check_target(target, n).tolist()
    truths = [None] * n if truth is None else fitted.task.check_truth(truth, n)
    rivals = check_against(fitted, against, n)
    if novelty is None:
        novelty = fitted.novelty
    compared = None if novelty is False else novelty
    explainer = make_explainer(fitted, k, method, compared, check_relative(fitted, relative, default=True))
    for member in fitted.members[1:]:  # the first one's is checked where inputs are read
        member.fitted_.require_model().check_unchanged()
    batches = explainer.model.batches(x, 1) if features is None else x.split(1)
    tests = bar("Explaining", n, "tests", parts=batches, show=fitted.show_progress, leave=n >= 4)
    numbered = zip(range(n), tests, wanted, truths, rivals, strict=True)
    found = [explainer(i, test, to, known, among, rival) for i, test, to, known, rival in numbered]
    asked = [Asked(attributor, take(x, slice(i, i + 1))) for i in range(n)]
    return Explanations(
        [replace(why, asked=one) for why, one in zip(found, asked, strict=True)], Asked(attributor, x)
    )


def make_explainer(
    fitted: Fitted,
    k: int,
    method: Method | None = None,
    novelty: Novelty | None = None,
    relative: bool = True,
) -> PairExplainer | MembersExplainer:
    """Return what explains one test sample, by the k strongest pairs of either sign.

    Only scores of a dual solution can be ``relative`` to the mean training sample; others stay what they are.
    """
    for member in [each.fitted_ for each in fitted.members] or [fitted]:
        if member.layers is not None and member.layers.tangents is not None:
            raise UnsupportedError(
                "'layers' must not be \"tangent\" for relevance maps, which start at activations. "
                "Use attribute or top_k, or fit with other layers."
            )
    relative = relative and has_parts(fitted)
    return (MembersExplainer if fitted.members else PairExplainer)(fitted, k, method, novelty, relative)


def has_parts(fitted: Fitted) -> bool:
    """Whether scores are parts of a logit, which have a base value and can be compared between classes."""
    return fitted.surrogate is not None and fitted.effect is None


def check_relative(fitted: Fitted, relative: bool | None, *, default: bool) -> bool:
    """Return whether scores are relative to the mean training sample, or raise where they cannot be."""
    if relative is None:
        return default and has_parts(fitted)
    if check_flag("relative", relative) and not has_parts(fitted):
        raise UnsupportedError(
            f"'relative' must be None or False for {fitted.method}, whose scores are not parts of a logit. "
            "Got True. Use DualDA."
        )
    return bool(relative)


def check_against(fitted: Fitted, against: Any, n: int) -> list[int | Literal["runner-up"] | None]:
    """Return another class for each of n tests, over which evidence for its target is explained, or raise."""
    if against is None:
        return [None] * n
    if not has_parts(fitted):
        raise UnsupportedError(
            f"'against' must be None for {fitted.method}, whose scores are not parts of a logit. Got "
            f'{shown(against)}. Use DualDA, or Effects with output="margin".'
        )
    fitted.task.require_classes("An explanation against another class")
    if isinstance(against, str) and against == "runner-up":
        return ["runner-up"] * n
    return list(fitted.task.check_target(against, n, "against").tolist())


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
