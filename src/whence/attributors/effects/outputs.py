"""Which output of a surrogate an effect is on, as a function of its logits."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import Tensor

from whence.core.arrays import Doubles, Ints

Output = Literal["logit", "margin", "log_prob"]
"""The target's logit; that less the largest other; the logarithm of the target's probability."""

_SHARPEST = 1e3  # where classes are told apart without an error, likelihood alone would go on for ever


def values(output: Output, logits: Tensor, classes: Tensor, sharpness: float) -> Tensor:
    """Give the output (B,) of logits (B, K) for classes (B,)."""
    own = classes[:, None].to(logits.device)
    if output == "log_prob":
        return (sharpness * logits).log_softmax(1).gather(1, own)[:, 0]
    target = logits.gather(1, own)[:, 0]
    return target if output == "logit" else target - _others(logits, own).amax(1)


def slopes(output: Output, logits: Tensor, classes: Tensor, sharpness: float) -> Tensor:
    """Give the derivative (B, K) of the output by the logits (B, K)."""
    own = classes[:, None].to(logits.device)
    found = torch.zeros_like(logits).scatter_(1, own, 1.0)
    if output == "margin":
        found.scatter_(1, _others(logits, own).argmax(1, keepdim=True), -1.0)
    elif output == "log_prob":
        found = sharpness * (found - (sharpness * logits).softmax(1))
    return found


def _others(logits: Tensor, own: Tensor) -> Tensor:
    """Give logits (B, K) in which the own class never comes first."""
    return logits.scatter(1, own, -torch.inf)


def sharpness_of(logits: Doubles, labels: Ints) -> float:
    """Find the β at which softmax(β s) gives labels (n,) the largest likelihood, for logits s (n, K).

    The likelihood is concave in β, so there is one best. It is 1 where the logits are no better than chance.
    """
    rows, size = np.arange(len(labels)), float(logits.std()) or 1.0

    def loss(log: float) -> float:
        return -float(log_softmax(np.exp(log) / size * logits, axis=1)[rows, labels].mean())

    found = minimize_scalar(loss, bounds=(np.log(1e-2), np.log(_SHARPEST)), method="bounded")
    return float(np.exp(found.x)) / size
