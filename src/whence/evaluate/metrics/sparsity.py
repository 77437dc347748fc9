"""How few training samples hold how much of the attribution."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whence.core.arrays import Array, Doubles
from whence.errors import InvalidInputError
from whence.evaluate.metrics.arrays import numbers


class SparsityCurve(NamedTuple):
    """Shares of attribution held by the top x % of training samples, means over the tests.

    Attributes
    ----------
    shares : (S,) of the training set
    absolute, positive, negative : (S,) of the sum of |τ|, of max(τ, 0) and of max(−τ, 0); NaN where no test
        has any
    """

    shares: Doubles
    absolute: Doubles
    positive: Doubles
    negative: Doubles


def sparsity_curve(scores: Any, shares: Any) -> SparsityCurve:
    """Tell which share of the attribution the top x % of training samples hold.

    For each test, samples are sorted by |τ|, largest first, for all three curves. Between whole samples the
    curves are straight, and among equal |τ| too, so that the order of storage does not matter. Tests without
    any attribution of a sign are left out of its mean. The diagonal is the least sparse that is possible for
    ``absolute``; scores that know nothing lie above it (standard normal ones hold 0.44 in the top 20 %).

    Parameters
    ----------
    scores : (T, N)
    shares : (S,)
        Shares x of the training set, in [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> sparsity_curve(np.array([[6.0, -3.0, 1.0, 0.0]]), [0.25, 0.5]).absolute
    array([0.6, 0.9])
    """
    found = numbers("scores", scores, (None, None))
    x = numbers("shares", shares, (None,))
    x = x.astype(np.float64)
    if x.min() < 0 or x.max() > 1:
        raise InvalidInputError(f"'shares' must lie in [0, 1]. Got {x.min()} to {x.max()}.")
    total, tests = np.zeros((3, len(x))), np.zeros((3, 1))
    for row in found:
        for kind, held in enumerate(_held(row.astype(np.float64), x)):
            if held is not None:
                total[kind] += held
                tests[kind] += 1
    means = np.divide(total, tests, out=np.full_like(total, np.nan), where=tests > 0)
    return SparsityCurve(x, *means)


def _held(row: Array, x: Doubles) -> list[Doubles | None]:
    """Shares of absolute, positive and negative attribution in the top x of one test's scores (N,)."""
    order = np.argsort(-np.abs(row))
    ranked = row[order]
    size = np.abs(ranked)
    # Knots only where |τ| changes: equal samples are passed in no particular order.
    ends = np.append(np.flatnonzero(size[1:] != size[:-1]) + 1, len(row))
    knots = np.append(0, ends) / len(row)
    curves: list[Doubles | None] = []
    for part in (size, np.maximum(ranked, 0), np.maximum(-ranked, 0)):
        running = np.append(0.0, np.cumsum(part)[ends - 1])
        curves.append(np.interp(x, knots, running / running[-1]) if running[-1] > 0 else None)
    return curves
