"""How far effects can be trusted: whether those of some halves foretell what other halves say."""

from __future__ import annotations

import numpy as np
import torch

from whence.attributors.effects.halves import Halves, members
from whence.attributors.effects.shift import Solved
from whence.attributors.effects.shifts import Shifts
from whence.core.arrays import Doubles, Ints, Mask

_POINTS = 100  # training samples at which effects are compared
_FEWEST = 8  # halves, below which there is nothing to correlate


def reliability(halves: Halves, solved: list[Solved]) -> float | None:
    """Correlate what effects foretell of a surrogate's logits with what they are.

    The halves are divided in two. The effects of either part, summed over the members of a half of the other,
    foretell how its surrogate's logit of a training sample, for its label, differs from half to half. Only
    samples outside a half are asked about, since those inside know their own label.

    Returns
    -------
    The correlation, each sample's mean over the halves taken off, or None for fewer than 8 halves.
    """
    if len(solved) < _FEWEST:
        return None
    n, features = len(halves.labels), halves.extended
    points = np.random.default_rng(halves.seed).permutation(n)[:_POINTS]
    tests, labels = features[points].astype(np.float64), halves.labels[points]
    inside = np.array([members(n, halves.seed, j) for j in range(len(solved))])
    found = np.array([(tests @ one.weight.T)[np.arange(len(points)), labels] for one in solved])
    foretold = np.empty_like(found)
    shifts = Shifts.of(solved, features, None)
    given = torch.as_tensor(features[points]), torch.as_tensor(labels)
    for part in (0, 1):
        effects = shifts.scores(*given, "logit", 1.0, n, slice(part, None, 2))
        foretold[1 - part :: 2] = inside[1 - part :: 2] @ effects.double().numpy().T
    outside = ~inside[:, points]
    a, b = (_centred(each, outside) for each in (foretold, found))
    length = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / length if length > 0 else 0.0


def _centred(values: Doubles, counted: Mask) -> Doubles:
    """Take off the mean of each column, over the rows that count; the others become 0."""
    total = counted.sum(axis=0)
    mean = (values * counted).sum(axis=0) / np.maximum(total, 1)
    centred: Doubles = (values - mean) * counted
    return centred


def out_of_bag(halves: Halves, solved: list[Solved]) -> tuple[Doubles, Ints]:
    """Logits (n, K) of samples outside the halves, of all halves one after the other, and their labels."""
    features, N = halves.extended, len(halves.labels)
    outside = [~members(N, halves.seed, j) for j in range(len(solved))]
    logits = [
        features[some].astype(np.float64) @ one.weight.T for some, one in zip(outside, solved, strict=True)
    ]
    return np.concatenate(logits), np.concatenate([halves.labels[some] for some in outside])
