"""Calibrated forecasts: how likely a prediction flips without some samples, from retrained networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from whence.core.arrays import Doubles, Ints
from whence.core.checks import (
    check_count,
    check_finite,
    check_is,
    check_number,
    check_share,
    check_that,
    to_array,
)
from whence.core.display import Columns, displayed
from whence.metrics.arrays import mask, numbers


@displayed("slope", "n_models")
@dataclass(frozen=True, eq=False)
class Forecast:
    """Outputs of networks that were not trained yet, as Student's t distributions.

    Attributes
    ----------
    slope : what one unit of a summed score changes of an output; one number for all tests
    centre : (T,) mean of the summed scores that the forecast was fitted to
    output : (T,) mean output there
    deviation : (T,) standard deviation of outputs around that line, with n_models − 1 degrees of freedom
    n_models : retrained networks that the forecast was fitted to
    """

    slope: float
    centre: Doubles
    output: Doubles
    deviation: Doubles
    n_models: int

    def expected(self, predicted: Any) -> Doubles:
        """Return the expected outputs (m, T) for summed scores (m, T)."""
        sums = numbers("predicted", predicted, (None, len(self.centre))).astype(np.float64)
        outputs: Doubles = self.output + self.slope * (sums - self.centre)
        return outputs

    def probability_below(self, predicted: Any, threshold: float = 0.0) -> Doubles:
        """Return how likely each output is below a threshold, (m, T).

        For margins of the predicted class a threshold of 0 is the border at which the prediction flips.
        """
        distance = check_number("threshold", threshold) - self.expected(predicted)
        with np.errstate(divide="ignore", invalid="ignore"):
            below: Doubles = student.cdf(distance / self._scale, self.n_models - 1)
        return np.where(self._scale > 0, below, (distance > 0).astype(np.float64))

    def interval(self, predicted: Any, level: float = 0.9) -> tuple[Doubles, Doubles]:
        """Return the ends of the central intervals with a probability of ``level``, (m, T) each."""
        share = (1 + check_share("level", level)) / 2
        expected = self.expected(predicted)
        width = student.ppf(share, self.n_models - 1) * self._scale
        return expected - width, expected + width

    @property
    def _scale(self) -> Doubles:
        """The deviation of a new output, which the estimated mean makes larger."""
        scale: Doubles = self.deviation * np.sqrt(1 + 1 / self.n_models)
        return scale


def fit_forecast(predicted: Any, outputs: Any) -> Forecast:
    """Fit outputs of retrained networks to summed scores: output = level of the test + slope × sum + noise.

    The slope is shared by all tests, weighted least squares of both sides' deviations from their means; the
    noise is each test's own. It holds for removals like those it was fitted to: of halves, it includes what
    the scores do not explain of halves, and is too wide for small sets.

    Parameters
    ----------
    predicted : (m, T) summed scores of the samples that each network was trained on, from ``predicted_sums``
    outputs : (m, T) what these networks output, best on a scale without bounds: margins or log-odds, rather
        than probabilities

    Examples
    --------
    >>> fit_forecast([[0.0, 1.0], [2.0, 1.0], [1.0, 4.0]], [[1.0, 0.5], [2.0, 0.5], [1.5, 2.0]]).slope
    0.5
    """
    sums = numbers("predicted", predicted, (None, None)).astype(np.float64)
    values = numbers("outputs", outputs, sums.shape).astype(np.float64)
    m = len(sums)
    check_that(m >= 3, "outputs", "be of at least 3 networks", m)
    centre, level = sums.mean(axis=0), values.mean(axis=0)
    x, y = sums - centre, values - level
    variance = (y * y).mean(axis=0)
    weight = np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0)
    below = float((weight * x * x).sum())
    slope = float((weight * x * y).sum()) / below if below > 0 else 0.0
    deviation = np.sqrt(((y - slope * x) ** 2).sum(axis=0) / (m - 1))
    return Forecast(slope, centre, level, deviation, m)


@displayed("brier", "base", "n", rows="columns")
@dataclass(frozen=True, eq=False)
class Calibration:
    """How far forecast probabilities are true: a Brier score and a reliability diagram.

    Attributes
    ----------
    brier : mean squared difference of probability and outcome; 0 is best
    base : that of always saying how often it happened; a forecast above it knows nothing
    n : forecasts
    counts : (bins,) forecasts in bins of equal width
    forecast : (bins,) their mean probability; nan in an empty bin
    observed : (bins,) how often it happened in truth
    """

    brier: float
    base: float
    n: int
    counts: Ints
    forecast: Doubles
    observed: Doubles

    @property
    def error(self) -> float:
        """The expected calibration error: mean |forecast − observed| over the forecasts."""
        used = self.counts > 0
        gaps = np.abs(self.forecast[used] - self.observed[used])
        return float((gaps * self.counts[used]).sum() / self.n)

    def columns(self) -> Columns:
        """Return the reliability diagram as columns, one row per bin that has forecasts."""
        used = self.counts > 0
        values = {"forecasts": self.counts, "forecast": self.forecast, "observed": self.observed}
        return {name: column[used].tolist() for name, column in values.items()}


def calibration(probabilities: Any, happened: Any, bins: int = 10) -> Calibration:
    """Compare forecast probabilities with what happened, (…) both, in at most 10,000 ``bins``.

    Examples
    --------
    >>> import numpy as np
    >>> found = calibration([0.9, 0.8, 0.1], np.array([True, True, False]))
    >>> round(found.brier, 3), round(found.base, 3)
    (0.02, 0.222)
    """
    flat = to_array("probabilities", probabilities).ravel()
    values = numbers("probabilities", flat, (None,)).astype(np.float64)
    check_that(((values >= 0) & (values <= 1)).all(), "probabilities", "lie in [0, 1]", values)
    outcomes = mask("happened", to_array("happened", happened).ravel(), (len(values),)).astype(np.float64)
    bins = check_count("bins", bins, most=10_000)
    place = np.minimum((values * bins).astype(np.int64), bins - 1)
    counts = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        forecast, observed = (np.bincount(place, each, bins) / counts for each in (values, outcomes))
    rate = outcomes.mean()
    brier = float(((values - outcomes) ** 2).mean())
    return Calibration(brier, float(rate * (1 - rate)), len(values), counts, forecast, observed)


def coverage(forecast: Forecast, predicted: Any, outputs: Any, level: float = 0.9) -> float:
    """Return the share of outputs (m, T) inside their forecast's intervals; a good forecast has ``level``."""
    check_is("forecast", forecast, Forecast, "a Forecast, from fit_forecast")
    low, high = forecast.interval(predicted, level)
    values = numbers("outputs", outputs, low.shape)
    check_finite("outputs", values)
    return float(((low <= values) & (values <= high)).mean())
