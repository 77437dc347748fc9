"""XDA: relevance maps on both samples of a pair of a test and a training sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from whence.core.naming import import_named
from whence.errors import ModelError
from whence.model.bound import BoundModel
from whence.model.extractor import Extractor
from whence.model.passes import Pass
from whence.relevance.captum import Captum, attributed
from whence.relevance.lrp import trace
from whence.relevance.presets import Rules, as_rules
from whence.relevance.rules import RULES, Rule

Kind = TypeVar("Kind")
Method = str | Rules | Rule | Captum | type
"""How relevance is propagated: named rules, ``Rules``, a layer's rule, or a captum method."""


class PairMaps(NamedTuple):
    """Relevance of m pairs on their inputs.

    Attributes
    ----------
    logit : (…) of the surrogate's logit, on the test sample
    test, train : (m, …) of each pair, on the test and on the training sample
    """

    logit: Tensor
    test: Tensor
    train: Tensor


def start(model: BoundModel | Extractor, inputs: Any, method: Method | None = None, first: int = 0) -> Pass:
    """Run a model once on a batch with a graph for relevance.

    Parameters
    ----------
    model
        Extractor of the model; for a fitted model, errors name test ``first`` and later ones.
    inputs
        A batch as the model takes it.
    method
        How relevance is propagated; None chooses rules by the model's operations, see ``default_rules``.
    """
    if isinstance(model, BoundModel):
        with model.running(first) as extractor:
            return start(extractor, inputs, method)
    chosen = None if method is None else as_method(method)
    if isinstance(chosen, Captum):
        return attributed(model, inputs, chosen)
    return trace(model, inputs, chosen)


def as_method(method: Method) -> Rules | Captum:
    """Return how relevance is propagated, from a name, rules or a method of captum, or raise."""
    if isinstance(method, str) and ":" in method:
        method = import_named("method", method)
    if callable(method) and not RULES.accepts(method):
        method = Captum(method)
    return method if isinstance(method, Captum) else as_rules(method, "method")


def pair_maps(
    test: Pass, train: Pass, on_test: Tensor, on_train: Tensor, weight: Tensor
) -> dict[str, PairMaps]:
    """Explain pairs of one test sample and m training samples, with maps for each input by name.

    A score is e_i·f(x) and also t_i·f(x_i), each with a part of the bias. Relevance at feature j is
    e_ij f(x)_j on the test sample and t_ij f(x_i)_j on the training sample; for τ, with e_i = λ_ic f(x_i) and
    t_i = λ_ic f(x), they are the same. Either goes to its sample's input. On the test sample that is linear
    in e_i: maps of pairs whose e_i sum to w sum to that of the surrogate's logit w·f(x).

    Parameters
    ----------
    test, train
        Passes of the test sample (1, d) and of the training samples (m, d).
    on_test, on_train : (m, d)
        Vectors e_i and t_i.
    weight : (d,)
        The surrogate's weight w_c of the target class c, without the bias.
    """
    f = test.features
    coefficients = torch.cat([weight.to(f)[None], on_test.to(f)])  # (1 + m, d)
    test_maps = test.maps(coefficients[:, None])
    train_maps = train.maps(on_train.to(f))
    if len(test_maps) == len(train_maps) == 1:  # the same input, with or without a name
        train_maps = dict(zip(test_maps, train_maps.values(), strict=True))
    both = [name for name in test_maps if name in train_maps]
    if not both:
        raise ModelError(
            "A test sample must have the inputs of the training samples, by the same names. Got "
            f"{', '.join(test_maps)}, and {', '.join(train_maps)} of the training samples."
        )
    return {name: PairMaps(test_maps[name][0, 0], test_maps[name][1:, 0], train_maps[name]) for name in both}


def only(maps: Mapping[str, Kind]) -> Kind:
    """Return the maps of a model's only input, or raise."""
    if len(maps) != 1:
        raise ModelError(
            f"Concepts and measures of maps need a model with one input. Got {', '.join(maps)}. Use explain."
        )
    return next(iter(maps.values()))
