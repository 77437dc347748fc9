"""Removal tests: the loss of a test after retraining without the samples that scores rank highest for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.core.arrays import Doubles, Mask
from whence.core.checks import check_callable, check_count, check_seed, check_share, check_that
from whence.core.display import Columns, displayed
from whence.core.progress import bar
from whence.metrics.arrays import MOST_DRAWS, numbers
from whence.metrics.lds import interval, random_subsets

_DRAWS = 1 << 20  # numbers drawn at a time


@displayed("mean", "error", "low", "high", "level", rows="columns")
@dataclass(frozen=True, eq=False)
class RemovalTest:
    """Query loss differences: how much more tests lose by their top samples than by random ones.

    Attributes
    ----------
    removed : (T,) loss of each test, trained without its own top samples
    random : (T,) loss of each test, trained without as many random samples; the mean of such trainings
    mean : of ``removed`` − ``random`` over the tests; positive if the scores find what a test needs
    error : its standard error over the tests
    low, high : ends of the interval that holds ``level`` of the means over tests drawn with replacement
    level : of the interval
    """

    removed: Doubles
    random: Doubles
    mean: float
    error: float
    low: float
    high: float
    level: float

    @property
    def difference(self) -> Doubles:
        """The difference for each test, (T,)."""
        return self.removed - self.random

    def columns(self) -> Columns:
        """Return columns of plain values, one row per test."""
        values = {"removed": self.removed, "random": self.random, "difference": self.difference}
        return {"test": list(range(len(self.removed))), **{name: v.tolist() for name, v in values.items()}}


def without_top(scores: Any, share: float = 0.01) -> Mask:
    """Return which training samples remain for each test without its highest scores, (T, N).

    ``share`` of the samples are removed, rounded and at least one; of equal scores, the first sample's.

    Examples
    --------
    >>> without_top([[3.0, 1.0, 2.0, 0.0]], share=0.5)
    array([[False,  True, False,  True]])
    """
    array = numbers("scores", scores, (None, None))
    n = max(1, round(check_share("share", share) * array.shape[1]))
    kept = np.ones(array.shape, np.bool_)
    np.put_along_axis(kept, np.argsort(-array, axis=1, kind="stable")[:, :n], values=False, axis=1)
    return kept


def removal_test(
    scores: Any,
    retrain: Callable[[Mask], Any],
    *,
    share: float = 0.01,
    n_random: int = 5,
    level: float = 0.95,
    draws: int = 1_000,
    seed: int = 0,
    show_progress: bool = True,
) -> RemovalTest:
    """Retrain without each test's top samples, and without random ones: the query loss difference (QLD).

    There is one training per test, fewer where tests have the same top samples, and ``n_random`` more.
    Equal training seeds compare best: the difference is then not between two random initialisations.

    Parameters
    ----------
    scores : (T, N), positive for samples that help the test
    retrain
        Called with a mask (N,), True for the training samples to use; trains and returns the losses (T,) of
        all tests, in the order of the scores.
    share
        Part of the training set to remove.
    n_random
        Trainings without as many random samples, at most 1,000.
    level, draws
        As for ``query_loss_difference``.
    seed
        Of the random samples and of the bootstrap.
    show_progress
        Show a progress bar.

    Examples
    --------
    >>> helps = np.array([[3.0, 1.0, 0.5, 0.0], [0.0, 0.0, 2.0, 1.0]])  # what each sample takes off a loss
    >>> test = removal_test(helps, lambda used: 5 - helps @ used, share=0.25, show_progress=False)
    >>> test.removed
    array([3.5, 4. ])
    """
    kept = without_top(scores, share)
    check_callable("retrain", retrain, "a function of a mask of training samples that returns losses")
    T, N = kept.shape
    removed = N - int(kept[0].sum())
    chance = random_subsets(
        N, check_count("n_random", n_random, most=1_000), (N - removed) / N, check_seed(seed)
    )
    different, group = np.unique(np.vstack([kept, chance]), axis=0, return_inverse=True)
    losses = np.empty((len(different), T))
    with bar("retraining", len(different), "models", show=show_progress) as shown:
        for i, used in enumerate(different):
            losses[i] = numbers("losses returned by retrain", retrain(used.copy()), (T,))
            shown.update(1)
    rows = group.ravel()
    own = losses[rows[:T], np.arange(T)]
    return query_loss_difference(own, losses[rows[T:]], level=level, draws=draws, seed=seed)


def query_loss_difference(
    removed: Any, random: Any, *, level: float = 0.95, draws: int = 1_000, seed: int = 0
) -> RemovalTest:
    """Return the mean difference of two losses per test, with a bootstrap over the tests.

    Parameters
    ----------
    removed : (T,) loss of each test, trained without its own top samples
    random : (trainings, T) losses of the same tests, trained without as many random samples
    level
        Share of draws in the interval.
    draws, seed
        Of the bootstrap, at most 100,000 draws.

    Examples
    --------
    >>> query_loss_difference([0.5, 0.3], [[0.1, 0.1], [0.3, 0.1]]).mean
    0.25
    """
    own = numbers("removed", removed, (None,)).astype(np.float64)
    T = len(own)
    check_that(T >= 2, "removed", "be the losses of at least 2 tests", T)
    chance = numbers("random", random, (None, T)).astype(np.float64).mean(axis=0)
    level, draws = check_share("level", level), check_count("draws", draws, most=MOST_DRAWS)
    rng = np.random.default_rng(check_seed(seed))
    difference = own - chance
    sizes = [len(part) for part in np.array_split(np.arange(draws), 1 + draws * T // _DRAWS)]
    means = np.concatenate([difference[rng.integers(0, T, (size, T))].mean(axis=1) for size in sizes])
    low, high = interval(means, level)
    error = float(difference.std(ddof=1) / np.sqrt(T))
    return RemovalTest(own, chance, float(difference.mean()), error, float(low), float(high), level)
