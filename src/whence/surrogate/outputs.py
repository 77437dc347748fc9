"""Which output of a surrogate an effect is on, as a function of its logits."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Output = Literal["logit", "margin", "log_prob"]
"""The target's logit; that less the largest other; the logarithm of the target's probability."""


def values(output: Output, logits: Tensor, classes: Tensor) -> Tensor:
    """Return the output (B,) of logits (B, K) for classes (B,)."""
    own = classes[:, None].to(logits.device)
    if output == "log_prob":
        return logits.log_softmax(1).gather(1, own)[:, 0]
    target = logits.gather(1, own)[:, 0]
    return target if output == "logit" else target - _others(logits, own).amax(1)


def slopes(output: Output, logits: Tensor, classes: Tensor) -> Tensor:
    """Return the derivative (B, K) of the output by the logits (B, K)."""
    own = classes[:, None].to(logits.device)
    found = torch.zeros_like(logits).scatter_(1, own, 1.0)
    if output == "margin":
        found.scatter_(1, _others(logits, own).argmax(1, keepdim=True), -1.0)
    elif output == "log_prob":
        found = found - logits.softmax(1)
    return found


def _others(logits: Tensor, own: Tensor) -> Tensor:
    """Return logits (B, K) in which the own class never comes first."""
    return logits.scatter(1, own, -torch.inf)
