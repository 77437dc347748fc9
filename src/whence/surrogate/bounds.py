"""What a duality gap says about weights and logits: how far they are from those of the optimum at most."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from whence.core.arrays import Doubles
from whence.surrogate.scores import Contrast
from whence.surrogate.surrogate import Surrogate


def weight_bound(surrogate: Surrogate) -> float | None:
    """Return √(2 · gap · P(W)), the largest distance ‖W − W*‖ from the optimal weights; None for regression.

    P is strongly convex with modulus 1, so that ½‖W − W*‖² ≤ P(W) − P(W*) ≤ P(W) − D(λ) = gap · P(W). For
    surrogates with hinge losses P = D/(1 − gap) and D = Σ_i λ_{i,y_i} − ½‖W‖², of several labels
    Σ_ic |λ_ic| − ½‖W‖².
    """
    if surrogate.task.label_kind == "number":
        return None
    if surrogate.gap >= 1:
        return math.inf
    linear = float(surrogate.task.label_weights(surrogate.lam[surrogate.support]).sum())
    d = surrogate.stored.shape[1]
    weight: Doubles = surrogate.coef[:, :d]
    square = float(np.vdot(weight, weight))
    if surrogate.bias:  # which counts as a weight on the constant
        square += float(np.square(surrogate.coef[:, d] / surrogate.constant).sum())
    primal = (linear - 0.5 * square) / (1 - surrogate.gap)
    return math.sqrt(2 * max(surrogate.gap, 0.0) * max(primal, 0.0))


def logit_bound(surrogate: Surrogate, features: Tensor, contrast: Contrast) -> float | None:
    """Return the largest distance of a test's logit from that of the optimum, ‖z‖√(2 · gap · P).

    Of a difference of two logits it is √2 times that, since ‖Δw_a − Δw_b‖ ≤ √2 ‖ΔW‖. ``features`` (1, d) are
    raw; ‖z‖ includes the constant of the bias.
    """
    far = weight_bound(surrogate)
    if far is None:
        return None
    square = float(surrogate.stored.transform(features).double().square().sum()) + surrogate.constant**2
    return far * math.sqrt(square * (1 if contrast.against is None else 2))


def typical_bound(surrogate: Surrogate) -> float | None:
    """Return the bound for a sample of typical length, b√2; None for regression or without a bias.

    The constant b of the bias is the root mean square of the training samples' lengths.
    """
    far = weight_bound(surrogate)
    return None if far is None or not surrogate.bias else far * surrogate.constant * math.sqrt(2)
