"""XDA: relevance maps on both samples of a pair of a test and a training sample."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from whence.core.naming import named
from whence.errors import ModelError
from whence.model.extractor import Extractor
from whence.relevance.captum import Attributed, Captum
from whence.relevance.lrp import Maps, trace
from whence.relevance.presets import Rules, as_rules
from whence.relevance.rules import RULES, Rule

Method = str | Rules | Rule | Captum | type
"""How relevance goes from features to inputs: named rules, ``Rules``, a layer's rule, or a captum method."""


class Backward(Protocol):
    """A forward pass whose features' relevance can be brought back to the inputs."""

    features: Tensor

    def maps(self, coefficients: Tensor) -> Maps:
        """Relevance of the inputs where that of the features is ``coefficients`` times the features."""


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


def start(extractor: Extractor, inputs: Any, method: Method) -> Backward:
    """Run the extractor on a batch such that relevance can be brought back by a method."""
    if isinstance(method, str) and ":" in method:
        method = named("method", method)
    if callable(method) and not RULES.accepts(method):
        method = Captum(method)
    if isinstance(method, Captum):
        return Attributed(extractor, inputs, method)
    return trace(extractor, inputs, as_rules(method, "method"))


def pair_maps(test: Backward, train: Backward, on_test: Tensor, on_train: Tensor, weight: Tensor) -> PairMaps:
    """Explain pairs of one test sample and m training samples.

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
    test_maps = only(test.maps(coefficients[:, None]))[:, 0]
    train_maps = only(train.maps(on_train.to(f)))
    return PairMaps(test_maps[0], test_maps[1:], train_maps)


def only(maps: Maps) -> Tensor:
    """Give the map of a model's one input, or raise."""
    if len(maps) != 1:
        raise ModelError(
            f"Explanations are of models with one input. Got {', '.join(maps)}. Use whence.relevance.lrp."
        )
    return next(iter(maps.values()))
