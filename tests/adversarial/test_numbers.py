"""Promise: in any units of the features there is a finite result, the same one, or a typed error."""

from __future__ import annotations

import numpy as np
import pytest

from whence import DualDA, Effects, WhenceError
from whence.features import FeatureBank

UNITS = [1e-36, 1e-30, 1e-20, 1e-18, 1e-10, 1e10, 1e17]


def features() -> tuple[np.ndarray, np.ndarray]:
    """Make features around 1, and three classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)).astype(np.float32)
    return X, (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("method", [DualDA, Effects])
def test_scores_do_not_depend_on_the_units_of_features(method: type, unit: float) -> None:
    X, y = features()
    options = {"show_progress": False, "metric": "raw", "C": 1.0}
    expected = method(**options).fit(features=FeatureBank.of(X, y)).attribute(features=X[:3]).numpy()
    options["C"] = 1 / float(np.float32(unit)) ** 2
    scaled = X * np.float32(unit)
    found = method(**options).fit(features=FeatureBank.of(scaled, y)).attribute(features=scaled[:3]).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("method", [DualDA, Effects])
def test_a_choice_of_c_ends_in_finite_scores_or_an_error(method: type, unit: float) -> None:
    X, y = features()
    scaled = X * np.float32(unit)
    try:
        explainer = method(show_progress=False).fit(features=FeatureBank.of(scaled, y))
        scores = explainer.attribute(features=scaled[:3]).numpy()
    except WhenceError:
        return
    assert np.isfinite(scores).all()
    assert np.abs(scores).max() > 0


@pytest.mark.parametrize("method", [DualDA, Effects])
def test_rows_that_span_forty_decades(method: type) -> None:
    X, y = features()
    scales = 10.0 ** np.random.default_rng(1).uniform(-20, 18, size=(60, 1))
    wide = (X * scales).astype(np.float32)
    try:
        explainer = method(show_progress=False, metric="raw").fit(features=FeatureBank.of(wide, y))
        scores = explainer.attribute(features=wide[:3]).numpy()
    except WhenceError:
        return
    assert np.isfinite(scores).all()
