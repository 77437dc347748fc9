"""Promise: in any units of the features there is a finite result, the same one, or a typed error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from whence import DualDA, Effects, OneClass, WhenceError
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


@pytest.mark.parametrize("power", [-120, -100, -66, 40])
@pytest.mark.parametrize(
    ("method", "options"),
    [
        (DualDA, {"metric": "raw"}),
        (DualDA, {"metric": "centred"}),
        (OneClass, {}),
        (OneClass, {"by": "whole"}),
    ],
)
def test_a_power_of_two_as_unit_changes_nothing_but_c(
    method: type, options: dict[str, str], power: int
) -> None:
    X, y = features()
    head = torch.eye(3, 5), torch.zeros(3)
    at = {"C": 0.1} if method is DualDA else {}  # a choice of C may fall on a neighbour of it
    plain, scaled = (
        method(show_progress=False, **options, **{name: C / unit**2 for name, C in at.items()}).fit(
            features=FeatureBank.of(X * np.float32(unit), y, head=(head[0] / unit, head[1]))
        )
        for unit in (1.0, 2.0**power)
    )
    tests = X[:3], X[:3] * np.float32(2.0**power)
    for one, other in (
        (plain.attribute(features=tests[0]), scaled.attribute(features=tests[1])),
        (plain.self_influence(), scaled.self_influence()),
    ):
        assert one.abs().max() > 0
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4 * float(one.abs().max()))


@pytest.mark.parametrize("power", [-110, -72])
def test_maps_of_tiny_features_are_those_of_other_units(power: int) -> None:
    X, y = features()
    model, maps = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(5, 3)), []
    for unit in (1.0, 2.0**power):
        inputs = torch.from_numpy(X * np.float32(unit))
        explainer = DualDA(metric="raw", C=0.1 / unit**2, show_progress=False).fit(model, (inputs, y))
        maps.append([pair.test_map for pair in explainer.explain(inputs[:1], k=2, target=0)[0].pairs])
    np.testing.assert_allclose(maps[1], maps[0], rtol=1e-3, atol=1e-6)


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
