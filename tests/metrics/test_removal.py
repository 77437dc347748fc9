"""Removal tests, on models whose losses are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap
from sklearn.linear_model import Ridge

from whence.errors import InvalidInputError
from whence.metrics import query_loss_difference, removal_test, without_top


def test_the_highest_scores_are_removed() -> None:
    scores = np.random.default_rng(0).standard_normal((5, 200))
    kept = without_top(scores, 0.1)
    assert (kept.sum(axis=1) == 180).all()
    for t in range(5):
        assert scores[t, ~kept[t]].min() > scores[t, kept[t]].max()
    assert (~without_top(scores[:, :7])).sum(axis=1).tolist() == [1] * 5  # 1 % of 7, and at least one
    np.testing.assert_array_equal(without_top(np.zeros((1, 4)), 0.5), [[False, False, True, True]])


def test_what_samples_add_is_what_is_lost() -> None:
    helps = np.abs(np.random.default_rng(1).standard_normal((6, 50)))
    found = removal_test(helps, lambda used: 100 - helps @ used, share=0.1, n_random=400, show_progress=False)
    top = np.sort(helps, axis=1)[:, -5:].sum(axis=1)
    np.testing.assert_allclose(found.removed, 100 - helps.sum(axis=1) + top)
    # On average, a random tenth takes a tenth of the sum away.
    np.testing.assert_allclose(found.random, 100 - 0.9 * helps.sum(axis=1), rtol=0.01)
    assert found.mean == pytest.approx(np.mean(found.removed - found.random))
    assert found.low < found.mean < found.high


def test_better_scores_find_what_ridge_regression_needs() -> None:
    rng = np.random.default_rng(2)
    X, tests = rng.standard_normal((80, 3)), rng.standard_normal((8, 3))
    y, wanted = X @ [1.0, -2.0, 0.5], tests @ [1.0, -2.0, 0.5]
    calls = []

    def retrain(used: np.ndarray) -> np.ndarray:
        calls.append(used.sum())
        return (Ridge(alpha=50.0).fit(X[used], y[used]).predict(tests) - wanted) ** 2

    everything = retrain(np.ones(80, bool))
    leaving_one_out = np.array([retrain(np.arange(80) != i) - everything for i in range(80)]).T
    calls.clear()
    good = removal_test(leaving_one_out, retrain, share=0.05, show_progress=False)
    sets = {used.tobytes() for used in without_top(leaving_one_out, 0.05)}
    assert calls == [76] * (len(sets) + 5)  # and five random trainings
    bad = removal_test(-leaving_one_out, retrain, share=0.05, show_progress=False)
    assert good.low > 0 > bad.high


def test_tests_with_the_same_samples_share_a_training() -> None:
    calls = []
    scores = np.vstack([np.arange(20.0)] * 4)
    removal_test(scores, lambda used: calls.append(1) or np.zeros(4), n_random=1, show_progress=False)
    assert len(calls) == 2


def test_the_interval_is_that_of_scipy() -> None:
    rng = np.random.default_rng(3)
    removed, random = rng.exponential(1.0, 60), rng.exponential(0.5, (3, 60))
    found = query_loss_difference(removed, random, draws=4_000)
    difference = removed - random.mean(axis=0)
    np.testing.assert_allclose(found.difference, difference)
    theirs = bootstrap(
        (difference,), np.mean, n_resamples=4_000, method="percentile", rng=0
    ).confidence_interval
    np.testing.assert_allclose([found.low, found.high], [theirs.low, theirs.high], atol=0.03)
    assert found.error == pytest.approx(difference.std(ddof=1) / np.sqrt(60))
    assert found.columns()["difference"] == difference.tolist()
    assert "mean=" in repr(found)


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: without_top(np.zeros((2, 5)), 1.0), r"'share' must be a number in \(0, 1\)"),
        (lambda: without_top(np.zeros(5)), r"'scores' must have shape \(any, any\)"),
        (lambda: removal_test(np.zeros((2, 5)), "retrain"), "'retrain' must be a function of a mask"),
        (
            lambda: removal_test(np.zeros((2, 5)), lambda used: np.zeros(3), show_progress=False),
            r"'losses returned by retrain' must have shape \(2,\)\. Got \(3,\)",
        ),
        (lambda: query_loss_difference([1.0], [[1.0]]), "at least 2 tests"),
        (lambda: query_loss_difference([1.0, 2.0], [[1.0]]), r"'random' must have shape \(any, 2\)"),
    ],
)
def test_bad_calls_are_refused(call, rule: str) -> None:
    with pytest.raises(InvalidInputError, match=rule):
        call()
