"""How typical tests are of the training set of an explainer, with the training samples that are nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from whence.attribution.fitted import Fitted
from whence.attribution.training_features import training_features
from whence.core.checks import check_is
from whence.errors import InvalidInputError
from whence.explanation import Neighbour, Typicality
from whence.features import Novelty
from whence.pages.samples import as_samples
from whence.relevance.sources import one_of


def make_novelty(fitted: Fitted, training: Any, k: int, quantile: float, seed: int) -> Novelty:
    """Make what tests are compared with; ``DualDA.novelty`` says what is given."""
    X = training_features(fitted, training, "training")
    return Novelty(X, np.flatnonzero(fitted.used), k, quantile, seed)


def check_novelty(fitted: Fitted, novelty: Novelty) -> Novelty:
    """Return what tests are compared with, or raise where it is not the explainer's."""
    check_is("novelty", novelty, Novelty, "what novelty() of the explainer returns, or None")
    width = fitted.require_surrogate().stored.shape[1]
    if novelty.width != width:
        raise InvalidInputError(
            f"'novelty' must be of the explainer's own features, of which there are {width}. Got one of "
            f"{novelty.width}."
        )
    return novelty


def typicality_of(fitted: Fitted, novelty: Novelty, features: Tensor, input: str = "") -> list[Typicality]:
    """Compare tests with features (B, d) with the training set; ``input`` is what is shown of several."""
    near = novelty.of(fitted.check_features(features))
    places = sorted({int(i) for i in near.neighbours.ravel()})
    inputs = fitted.require_data().take(places)
    tokenizer = fitted.require_model().prepare.find_tokenizer()
    shown = as_samples(one_of(inputs, input) if input else inputs, tokenizer)
    samples = dict(zip(places, shown, strict=True))
    return [
        Typicality(
            novel=bool(near.novel[b]),
            share=float(near.shares[b]),
            quantile=novelty.quantile,
            n_compared=novelty.n_compared,
            neighbours=tuple(
                Neighbour(i, fitted.task.label_text(fitted.labels[i]), float(distance), samples[i])
                for i, distance in zip(near.neighbours[b].tolist(), near.distances[b], strict=True)
            ),
        )
        for b in range(len(features))
    ]
