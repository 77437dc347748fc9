"""How usual tests are for the training set of an explainer, with the training samples that are nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from whence.core.checks import check_is
from whence.errors import InvalidInputError
from whence.explanation import Neighbour, Typicality
from whence.features import Usualness
from whence.pages.samples import as_samples
from whence.relevance.sources import one_of

if TYPE_CHECKING:
    from whence.attribution.pairs import PairAttributor


def usual_of(
    explainer: PairAttributor, usualness: Usualness, features: Tensor, input: str = ""
) -> list[Typicality]:
    """Return how usual tests with features (B, d) are; ``input`` is what is shown of several inputs."""
    task, found = explainer.task_, usualness.of(explainer.check_features(features))
    wanted = sorted({int(i) for i in found.neighbours.ravel()})
    inputs = explainer.require_data().take(wanted)
    shown = as_samples(
        one_of(inputs, input) if input else inputs, explainer.require_model().prepare.find_tokenizer()
    )
    samples = dict(zip(wanted, shown, strict=True))
    told = {i: task.told(explainer.labels_[i]) for i in wanted}
    return [
        Typicality(
            novel=bool(found.strange[b]),
            share=float(found.shares[b]),
            quantile=usualness.quantile,
            n_compared=usualness.asked,
            neighbours=tuple(
                Neighbour(i, told[i], float(distance), samples[i])
                for i, distance in zip(found.neighbours[b].tolist(), found.distances[b], strict=True)
            ),
        )
        for b in range(len(features))
    ]


def check_usualness(explainer: PairAttributor, usualness: Usualness | None) -> Usualness | None:
    """Return what tests are compared with, or raise where it is not the explainer's."""
    if usualness is None:
        return None
    check_is("usualness", usualness, Usualness, "what usualness() of the explainer gives, or None")
    width = explainer.surrogate_.stored.shape[1]
    if usualness.width != width:
        raise InvalidInputError(
            f"'usualness' must be of the explainer's own features, of which there are {width}. Got one of "
            f"{usualness.width}."
        )
    return usualness
