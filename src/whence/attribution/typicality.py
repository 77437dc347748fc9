"""Whether tests resemble the training set of an explainer, with the training samples that are nearest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from whence.attribution.fitted import Fitted
from whence.attribution.training_features import training_features
from whence.core.checks import check_is
from whence.core.progress import bar
from whence.errors import InvalidInputError
from whence.explanation import Neighbour, Typicality
from whence.features import InputViews, Novelty, reference
from whence.model.inputs import to_model
from whence.pages.samples import as_samples
from whence.relevance.sources import floating, one_of

_K, _QUANTILE = 5, 0.99
_FEWEST, _MOST = 100, 10_000  # training samples between which ``explain`` compares tests without being asked


def make_novelty(fitted: Fitted, training: Any, k: int, quantile: float, seed: int) -> Novelty:
    """Make what tests are compared with; ``DualDA.novelty`` says what is given."""
    X = training_features(fitted, training, "training")
    return Novelty(X, np.flatnonzero(fitted.used), k, quantile, seed, _read_inputs(fitted, seed))


def default_novelty(fitted: Fitted) -> Novelty | None:
    """Make what ``explain`` compares tests with unless asked otherwise; None where that would be costly."""
    n = int(fitted.used.sum())
    cheap = n <= _MOST or fitted.reading.get("cache_dir") is not None
    if fitted.surrogate is None or fitted.model is None or fitted.data is None or fitted.task.of_documents:
        return None
    return make_novelty(fitted, None, _K, _QUANTILE, 0) if n >= _FEWEST and cheap else None


def check_novelty(fitted: Fitted, novelty: Novelty) -> Novelty:
    """Return what tests are compared with, or raise where it is not the explainer's."""
    check_is("novelty", novelty, Novelty, "what novelty() of the explainer returns, None or False")
    width = fitted.require_surrogate().stored.shape[1]
    if novelty.width != width:
        raise InvalidInputError(
            f"'novelty' must be of the explainer's own features, of which there are {width}. Got one of "
            f"{novelty.width}."
        )
    return novelty


def typicality_of(
    fitted: Fitted, novelty: Novelty, features: Tensor, tests: Any, input: str = ""
) -> list[Typicality]:
    """Compare tests with the training set.

    Parameters
    ----------
    fitted, novelty : of the explainer
    features : (B, d) of the tests
    tests : their inputs as the model takes them; None compares features alone
    input : what is shown of several
    """
    near = novelty.of(fitted.check_features(features), None if tests is None else floating(tests))
    places = sorted({int(i) for i in near.neighbours.ravel()})
    inputs = fitted.require_data().take(places)
    prepare = fitted.require_data().prepare
    shown = as_samples(one_of(inputs, input) if input else inputs, prepare)
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
            spaces=near.spaces,
            furthest=near.spaces[int(near.excess[b].argmax())],
        )
        for b in range(len(features))
    ]


def _read_inputs(fitted: Fitted, seed: int) -> InputViews | None:
    """Read the inputs of up to 20,000 training samples; None where there are none to compare.

    Tokens are not compared: only floating-point inputs, all of one shape, from a source that can be read in
    any order.
    """
    if fitted.data is None or fitted.model is None or fitted.data.is_stream or fitted.task.of_documents:
        return None
    places = np.flatnonzero(fitted.used)
    chosen = places[reference(len(places), seed)]
    model, samples = fitted.model.extractor.model, fitted.data.subset(chosen)
    first = floating(to_model(model, fitted.data.take(chosen[:1].tolist())))
    shapes = {name: x.shape[1:] for name, x in first.items()}
    even = True

    def batches() -> Iterator[dict[str, Tensor]]:
        nonlocal even
        n = -(-len(samples) // samples.batch_size)
        show = fitted.show_progress and n >= 64
        for batch in bar("Reading inputs", n, "batches", parts=samples.batches(), show=show):
            inputs = floating(to_model(model, batch.inputs))
            even = even and shapes == {name: x.shape[1:] for name, x in inputs.items()}
            if not even:
                return
            yield inputs

    if not first:
        return None
    views = InputViews(batches())
    return views if even else None
