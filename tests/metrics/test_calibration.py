"""Forecasts of outputs and their calibration, compared with scikit-learn, scipy and simulated retrainings."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LinearRegression
from sklearn.metrics import brier_score_loss

from whence.errors import InvalidInputError
from whence.metrics import calibration, coverage, fit_forecast, predicted_sums, random_subsets

M, N, T = 60, 40, 200


def simulated(seed: int = 0) -> tuple[np.ndarray, ...]:
    """Summed scores, and margins that follow them up to each test's own noise; to fit, and to judge."""
    rng = np.random.default_rng(seed)
    scores = 0.3 * rng.standard_normal((T, N))
    noise = rng.uniform(0.2, 2.0, T)
    sums = predicted_sums(scores, random_subsets(N, 2 * M, seed=seed))
    margins = rng.standard_normal(T) + 2.5 * sums + noise * rng.standard_normal((2 * M, T))
    return sums[:M], margins[:M], sums[M:], margins[M:]


def test_sums_are_over_the_samples_of_each_subset() -> None:
    scores, subsets = np.array([[1.0, 2.0, 4.0]]), np.array([[True, False, True], [False, True, False]])
    np.testing.assert_array_equal(predicted_sums(scores, subsets), [[5.0], [2.0]])


def test_the_forecast_of_one_test_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((20, 1))
    y = 3 + 2 * x + rng.standard_normal((20, 1))
    found, theirs = fit_forecast(x, y), LinearRegression().fit(x, y.ravel())
    assert found.slope == pytest.approx(theirs.coef_[0])
    np.testing.assert_allclose(found.expected(x).ravel(), theirs.predict(x))
    residuals = y.ravel() - theirs.predict(x)
    deviation = np.sqrt((residuals**2).sum() / 19)
    assert found.deviation[0] == pytest.approx(deviation)
    expected = student.cdf((1.0 - theirs.predict(x)) / (deviation * np.sqrt(1 + 1 / 20)), 19)
    np.testing.assert_allclose(found.probability_below(x, 1.0).ravel(), expected)


def test_forecasts_of_networks_to_come_are_calibrated() -> None:
    sums, margins, new, truth = simulated()
    found = fit_forecast(sums, margins)
    assert found.slope == pytest.approx(2.5, abs=0.05)
    probability = found.probability_below(new)
    diagram = calibration(probability, truth < 0)
    assert diagram.error < 0.02
    assert diagram.brier < 0.8 * diagram.base
    for level in (0.5, 0.9):
        assert coverage(found, new, truth, level) == pytest.approx(level, abs=0.015)
    ignorant = fit_forecast(np.zeros_like(sums), margins)
    assert diagram.brier < calibration(ignorant.probability_below(new), truth < 0).brier


def test_scores_of_another_unit_or_of_no_use_are_scaled() -> None:
    sums, margins, new, truth = simulated()
    probability = fit_forecast(sums, margins).probability_below(new)
    np.testing.assert_allclose(fit_forecast(-7 * sums, margins).probability_below(-7 * new), probability)
    noise = np.random.default_rng(5).standard_normal((2, M, T))
    found = fit_forecast(noise[0], margins)
    assert abs(found.slope) < 0.05
    assert coverage(found, noise[1], truth) == pytest.approx(0.9, abs=0.015)


def test_outputs_that_never_change_are_certain() -> None:
    found = fit_forecast(np.arange(4.0)[:, None], np.full((4, 1), -1.0))
    assert found.probability_below([[9.0]]).item() == 1.0
    assert found.probability_below([[9.0]], -2.0).item() == 0.0


def test_the_diagram_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(2)
    probability = rng.random(500)
    happened = rng.random(500) < probability**2
    found = calibration(probability, happened, bins=7)
    observed, forecast = calibration_curve(happened, probability, n_bins=7)
    np.testing.assert_allclose(found.columns()["observed"], observed)
    np.testing.assert_allclose(found.columns()["forecast"], forecast)
    assert found.brier == pytest.approx(brier_score_loss(happened, probability))
    assert found.base == pytest.approx(happened.var())
    assert sum(found.columns()["forecasts"]) == found.n == 500
    assert calibration([0.0, 1.0], np.array([False, True])).columns()["observed"] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (
            lambda: fit_forecast(np.zeros((2, 3)), np.zeros((2, 3))),
            "'outputs' must be of at least 3 networks",
        ),
        (lambda: fit_forecast(np.zeros((4, 3)), np.zeros((4, 2))), r"'outputs' must have shape \(4, 3\)"),
        (lambda: calibration([1.5], np.array([True])), r"'probabilities' must lie in \[0, 1\]"),
        (lambda: calibration([0.5], np.array([1])), "'happened' must be booleans"),
        (
            lambda: fit_forecast(np.eye(3), np.eye(3)).expected([[1.0]]),
            r"'predicted' must have shape \(any, 3\)",
        ),
    ],
)
def test_bad_calls_are_refused(call, rule: str) -> None:
    with pytest.raises(InvalidInputError, match=rule):
        call()
