"""Standard errors of means, and tests of their differences, for grouped observations."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit
from scipy.stats import studentized_range

from whence.core.arrays import Doubles, Ints, Mask
from whence.core.checks import check_that
from whence.metrics.lds import tied


def standard_error(values: Doubles, groups: Ints) -> Doubles:
    """Return standard errors (M,) of the means of values (M, P) whose columns are correlated within groups.

    √(G/(G−1) Σ_g (Σ_{p in g} (v_p − v̄))²) / P for G groups. With one column per group this is the usual
    standard deviation over √P; equal columns of a group count as one.

    Examples
    --------
    >>> import numpy as np
    >>> standard_error(np.array([[1.0, 2.0, 3.0]]), np.arange(3)).round(4)
    array([0.5774])
    """
    sums, sizes = _by_group(values - values.mean(axis=1, keepdims=True), groups)
    G = len(sizes)
    if G < 2:
        return np.full(len(values), np.nan)
    error: Doubles = np.sqrt(G / (G - 1) * (sums**2).sum(axis=1)) / sizes.sum()
    return error


def ties(values: Doubles, groups: Ints, *, level: float = 0.95, draws: int = 4_000, seed: int = 0) -> Mask:
    """Return which rows of values (M, P) have means that cannot be distinguished, shape (M, M).

    Groups are drawn with replacement, the same for all rows. Two rows are tied if the interval with ``level``
    of the drawn differences of their means contains 0. There is no correction for multiple comparisons.
    """
    sums, sizes = _by_group(values, groups)
    G = len(sizes)
    counts = np.random.default_rng(seed).multinomial(G, np.full(G, 1 / G), size=draws)  # (draws, G)
    means = (counts @ sums.T) / (counts @ sizes)[:, None]  # (draws, M)
    return tied(means.T, level)


def ties_of_runs(values: Doubles, *, level: float = 0.95) -> Mask:
    """Return which rows of values (M, S), of M methods in the same S runs, cannot be distinguished, (M, M).

    Methods share runs, such as training seeds, so that a run's effect on all of them cancels in the
    differences d_s of two methods. Two rows are tied if the mean of their differences is at most t s_d/√S
    from 0, with s_d the standard deviation of these differences alone, and t the (1 + level)/2 quantile of
    Student's distribution with S − 1 degrees of freedom. No method's spread counts for another; there is no
    correction for multiple comparisons.

    Examples
    --------
    >>> import numpy as np
    >>> ties_of_runs(np.array([[1.0, 2.0, 3.0], [1.3, 1.8, 3.1], [5.0, 6.0, 7.1]]))[0]
    array([ True,  True, False])
    """
    S = values.shape[1]
    check_that(S >= 2, "values", "have at least two runs, to estimate their spread", S)
    apart = values[:, None] - values[None]  # (M, M, S)
    reach = stdtrit(S - 1, (1 + level) / 2) * apart.std(axis=2, ddof=1) / np.sqrt(S)
    close: Mask = np.abs(apart.mean(axis=2)) <= reach
    return close


def critical_difference(methods: int, columns: int, *, level: float = 0.95) -> float:
    """Return the critical difference of mean ranks by Nemenyi's test, q √(k(k + 1)/(6n)).

    For k methods that are ranked in n independent columns; q is the quantile of the studentised range for k
    groups and infinite degrees of freedom, over √2. Two mean ranks that are less apart cannot be
    distinguished. Columns of one data set depend on each other, so that the true value is larger.

    Examples
    --------
    >>> round(critical_difference(9, 9), 2)
    4.0
    """
    check_that(methods >= 2, "methods", "be at least 2", methods)
    check_that(columns >= 1, "columns", "be at least 1", columns)
    q = float(studentized_range.ppf(level, methods, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * columns)))


def _by_group(values: Doubles, groups: Ints) -> tuple[Doubles, Ints]:
    """Return sums (M, G) over the columns of each group, and the sizes (G,) of the groups."""
    _, places = np.unique(groups, return_inverse=True)
    sizes = np.bincount(places)
    return np.array([np.bincount(places, row) for row in values]), sizes
