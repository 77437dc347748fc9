"""Metrics on score matrices (test, train) and labels: positive is evidence for the target class.

Where a metric is a mean over tests, the function gives one value per test. The published number is their
mean; ``whence_studies.comparison`` has its uncertainty, and which methods are tied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whence.core.arrays import Array, Doubles, Mask
from whence.core.checks import check_count, check_seed, check_that, is_integer
from whence.core.display import displayed
from whence.metrics.arrays import classes, numbers, split_mask

_LARGEST = 1 << 28  # random scores at a time, 2 GB
_BLOCK = 1 << 22  # scores per block


def identical_class(scores: Any, target: Any, train_labels: Any, k: int = 5) -> Doubles:
    """Return the share of each test's k highest-scored training samples with the explained class, (T,).

    (1/k) Σ_{i among the k largest τ(x, i)} [y_i = c(x)], in [0, 1]; 1 is best, and chance is the share of
    the class among the training samples. Where several samples share the k-th score, each counts as much as
    it would on average in a random order: zeros of a sparse method neither gain nor lose by the order
    in which samples are stored.

    Parameters
    ----------
    scores : (T, N)
    target : (T,)
        The explained class, typically the predicted one.
    train_labels : (N,)
    k
        Number of top samples.

    Examples
    --------
    >>> import numpy as np
    >>> identical_class(np.array([[3.0, 2.0, -1.0, 0.5]]), np.array([1]), np.array([1, 0, 1, 1]), k=2)
    array([0.5])
    """
    return _hits_among_top(scores, ("target", target), ("train_labels", train_labels), k)


def identical_subclass(scores: Any, subclass_test: Any, subclass_train: Any, k: int = 5) -> Doubles:
    """Return the share of each test's k highest-scored training samples that have its true subclass, (T,).

    As ``identical_class``, for a model that was trained on groups of classes (``group_classes``) and saw only
    the groups. In [0, 1]; 1 is best. Scores that know the group but not the subclass reach the subclass's
    share of its group, 0.5 for pairs of equal size.

    Parameters
    ----------
    scores : (T, N)
        Scores for the group that the model predicts.
    subclass_test : (T,)
        True classes before the grouping.
    subclass_train : (N,)
    k
        Number of top samples.
    """
    return _hits_among_top(scores, ("subclass_test", subclass_test), ("subclass_train", subclass_train), k)


def _hits_among_top(scores: Any, tests: tuple[str, Any], trains: tuple[str, Any], k: int) -> Doubles:
    k = check_count("k", k)
    values = numbers("scores", scores, (None, None))
    T, N = values.shape
    check_that(k <= N, "k", f"be at most the {N} training samples", k)
    ours, theirs = classes(*tests, T), classes(*trains, N)
    rows = max(1, _BLOCK // N)
    parts = [
        _expected_hits(values[start : start + rows], ours[start : start + rows, None] == theirs, k)
        for start in range(0, T, rows)
    ]
    return np.concatenate(parts) / k


def _expected_hits(scores: Array, hit: Mask, k: int) -> Doubles:
    """Return hits (B,) among the k largest of scores (B, N), averaged over the order of ties."""
    least = np.partition(scores, -k, axis=1)[:, -k, None]
    above, equal = scores > least, scores == least
    places = k - above.sum(axis=1)
    share = (hit & equal).sum(axis=1) / equal.sum(axis=1)
    hits: Doubles = (hit & above).sum(axis=1) + places * share
    return hits


@displayed()
class Curve(NamedTuple):
    """A curve over shares of the training set: ``inspected`` (N + 1,) and ``found`` (N + 1,), from 0 to 1."""

    inspected: Doubles
    found: Doubles


def mislabeling_curve(self_influence: Any, flipped_mask: Any) -> Curve:
    """Return the share of wrong labels found when samples are inspected by falling self-influence.

    Samples with equal self-influence are inspected in random order: between them the curve is straight.

    Parameters
    ----------
    self_influence : (N,)
        Score of each training sample for its own label at itself.
    flipped_mask : (N,)
        True if the label is wrong.

    Examples
    --------
    >>> import numpy as np
    >>> mislabeling_curve(np.array([0.1, 0.9, 0.5, 0.0]), np.array([False, True, False, True])).found
    array([0. , 0.5, 0.5, 0.5, 1. ])
    """
    influence, flipped = _checked(self_influence, flipped_mask)
    order = np.argsort(-influence, kind="stable")
    ranked = influence[order]
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]) + 1, len(ranked))
    shares = np.cumsum(flipped[order])[ends - 1] / flipped.sum()
    places = np.arange(len(ranked) + 1)
    return Curve(places / len(ranked), np.interp(places, np.append(0, ends), np.append(0.0, shares)))


def mislabeling_auc(self_influence: Any, flipped_mask: Any) -> float:
    """Return the area under ``mislabeling_curve``, scaled to 1 for the best order and 0 for the worst.

    A random order has 0.5 on average, with variance (N + 1)/(12 n (N − n)) for n wrong labels among N. The
    scaled area is the area under the ROC curve of self-influence as a detector of wrong labels: both are
    linear in the sum of the wrong labels' ranks, with the same ends.

    Parameters
    ----------
    self_influence : (N,)
    flipped_mask : (N,)

    Examples
    --------
    >>> import numpy as np
    >>> mislabeling_auc(np.array([0.1, 0.9, 0.5, 0.0]), np.array([False, True, False, True]))
    0.5
    """
    # Imported here: scikit-learn would dominate the import time of whence.
    from sklearn.metrics import roc_auc_score

    influence, flipped = _checked(self_influence, flipped_mask)
    return float(roc_auc_score(flipped, influence))


def mislabeling_placements(self_influence: Any, flipped_mask: Any) -> Doubles:
    """Return the share of correctly labelled samples below each wrong label (n,), by self-influence.

    Equal ones count half. The mean over the wrong labels is ``mislabeling_auc``; the single values show how
    sure it is.

    Parameters
    ----------
    self_influence : (N,)
    flipped_mask : (N,)

    Examples
    --------
    >>> import numpy as np
    >>> mislabeling_placements(np.array([0.1, 0.9, 0.5, 0.0]), np.array([False, True, False, True]))
    array([1., 0.])
    """
    influence, flipped = _checked(self_influence, flipped_mask)
    right = np.sort(influence[~flipped])
    below, up_to = (np.searchsorted(right, influence[flipped], side=side) for side in ("left", "right"))
    return (below + up_to) / (2 * len(right))


def _checked(self_influence: Any, flipped_mask: Any) -> tuple[Array, Mask]:
    influence = numbers("self_influence", self_influence, (None,))
    return influence, split_mask("flipped_mask", flipped_mask, len(influence))


def fooled(before: Any, after: Any, true_labels: Any, shortcut_class: int) -> Mask:
    """Return the tests that a shortcut flipped to its class, (T,), on which detection is measured.

    True where the model predicts ``shortcut_class`` with the shortcut and not without it, and it is not the
    true class: then the shortcut is the reason. A test that is taken for the class anyway is no evidence.

    Parameters
    ----------
    before, after : (T,)
        Predicted classes of the tests without and with the shortcut.
    true_labels : (T,)
    shortcut_class
        Class that has the shortcut in the training set.
    """
    check_that(is_integer(shortcut_class), "shortcut_class", "be a class", shortcut_class)
    labels = classes("true_labels", true_labels)
    clean, perturbed = classes("before", before, len(labels)), classes("after", after, len(labels))
    flipped: Mask = (labels != shortcut_class) & (clean != shortcut_class) & (perturbed == shortcut_class)
    return flipped


def shortcut_ap(scores: Any, poisoned_mask: Any) -> Doubles:
    """Compute the average precision of each test's scores for the training samples with the shortcut, (T,).

    In [0, 1]; 1 is best. A random order has about the share n/N of samples with the shortcut; exactly,
    (H_N + (n − 1)(N − H_N)/(N − 1))/N on average, with the harmonic number H_N. Samples of equal score are
    taken together, at the precision that the last of them has.

    Parameters
    ----------
    scores : (T, N)
        Scores for the shortcut's class, only of tests that the shortcut flipped to it (``fooled``).
        One row with the sum over tests is the measure of the paper's text experiment.
    poisoned_mask : (N,)
        True if a training sample has the shortcut.

    Examples
    --------
    >>> import numpy as np
    >>> shortcut_ap(np.array([[4.0, 3.0, 2.0, 1.0]]), np.array([True, False, True, False])).round(4)
    array([0.8333])
    """
    from sklearn.metrics import average_precision_score

    values = numbers("scores", scores, (None, None))
    poisoned = split_mask("poisoned_mask", poisoned_mask, values.shape[1])
    return np.array([average_precision_score(poisoned, row) for row in values])


def random_scores(n_tests: int, n_train: int, seed: int = 0) -> Doubles:
    """Return random scores (test, train), standard normal: chance level for tables, at most 2²⁸ of them.

    Examples
    --------
    >>> random_scores(2, 3).shape
    (2, 3)
    """
    n_tests = check_count("n_tests", n_tests)
    n_train = check_count("n_train", n_train, most=_LARGEST)
    most = _LARGEST // n_train
    check_that(n_tests <= most, "n_tests", f"be at most {most:,} for {n_train} training samples", n_tests)
    return np.random.default_rng(check_seed(seed)).standard_normal((n_tests, n_train))


def negative_ratio(scores: Any) -> Doubles:
    """Return the ratio of negative to positive attribution of each test, Σ max(−τ, 0) / Σ max(τ, 0).

    It is NaN for tests without positive attribution. By construction it is 1 for scores that sum to 0.

    Parameters
    ----------
    scores
        Scores (n_test, n_train).

    Examples
    --------
    >>> negative_ratio([[3.0, -1.0, 1.0], [2.0, 0.0, 0.0]])
    array([0.25, 0.  ])
    """
    values = numbers("scores", scores, (None, None)).astype(np.float64)
    against, favour = np.maximum(-values, 0).sum(axis=1), np.maximum(values, 0).sum(axis=1)
    ratio: Doubles = np.divide(against, favour, out=np.full(len(values), np.nan), where=favour > 0)
    return ratio


@displayed()
class SparsityCurve(NamedTuple):
    """Shares of attribution of the top x % of training samples, means over the tests.

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
    """Return the share of the attribution that the top x % of training samples hold.

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
    values = numbers("scores", scores, (None, None))
    x = numbers("shares", shares, (None,)).astype(np.float64)
    check_that(x.min() >= 0 and x.max() <= 1, "shares", "lie in [0, 1]", x.tolist())
    held = np.array([_held(row.astype(np.float64), x) for row in values])  # (T, 3, S)
    tests = np.isfinite(held).sum(axis=0)
    means = np.divide(np.nansum(held, axis=0), tests, out=np.full(tests.shape, np.nan), where=tests > 0)
    return SparsityCurve(x, *means)


def _held(row: Array, x: Doubles) -> list[Doubles]:
    """Return shares of absolute, positive and negative attribution in the top x of scores (N,), or NaN."""
    order = np.argsort(-np.abs(row))
    ranked = row[order]
    size = np.abs(ranked)
    # Knots only where |τ| changes: ties have no order.
    ends = np.append(np.flatnonzero(size[1:] != size[:-1]) + 1, len(row))
    knots = np.append(0, ends) / len(row)
    curves = []
    for part in (size, np.maximum(ranked, 0), np.maximum(-ranked, 0)):
        running = np.append(0.0, np.cumsum(part)[ends - 1])
        curves.append(np.interp(x, knots, running / (running[-1] or np.nan)))
    return curves
