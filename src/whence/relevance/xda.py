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


def pair_maps(test: Backward, train: Backward, lam: Tensor, weight: Tensor) -> PairMaps:
    """Explain pairs of one test sample and m training samples.

    The relevance of feature j of a pair is R_j = λ_i f(x)_j f(x_i)_j, which sums to the pair's score without
    the bias. It goes to the input of x, and in a second pass to the input of x_i. On the test sample it is
    linear in f(x_i): the maps of all pairs sum to that of the surrogate's logit w·f(x).

    Parameters
    ----------
    test, train
        Passes of the test sample (1, d) and of the training samples (m, d).
    lam : (m,)
        Coefficients λ_ic of the target class c.
    weight : (d,)
        The surrogate's weight w_c, without the bias.
    """
    f, lam = test.features, lam.to(test.features)
    coefficients = torch.cat([weight.to(f)[None], lam[:, None] * train.features])  # (1 + m, d)
    on_test = only(test.maps(coefficients[:, None]))[:, 0]
    on_train = only(train.maps(lam[:, None] * f))
    return PairMaps(on_test[0], on_test[1:], on_train)


def only(maps: Maps) -> Tensor:
    """Give the map of a model's one input, or raise."""
    if len(maps) != 1:
        raise ModelError(
            f"Explanations are of models with one input. Got {', '.join(maps)}. Use whence.relevance.lrp."
        )
    return next(iter(maps.values()))
