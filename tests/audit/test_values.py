"""Values of training samples for a validation set."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.audit.cases import around_centres, dualda
from whence import Effects
from whence.audit import values
from whence.errors import InvalidInputError, UnsupportedError
from whence.features import FeatureBank


def clusters(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return around_centres(np.eye(3, 5), y, 0.4, rng).astype(np.float32), y


X, Y = clusters(60, 0)
TESTS, TRUTH = clusters(25, 1)


def fitted(output: str = "log_prob", **options) -> Effects:
    defaults = {"show_progress": False, "batch_size": 7}
    return Effects(output=output, **{**defaults, **options}).fit(features=FeatureBank.of(X, Y))


@pytest.mark.parametrize("output", ["logit", "margin", "log_prob"])
def test_values_are_the_mean_effects_for_the_true_classes(output):
    explainer = fitted(output)
    found = values(explainer, features=TESTS, y=TRUTH)
    expected = explainer.attribute(features=TESTS, target=TRUTH).double().mean(0).numpy()
    np.testing.assert_allclose(found.values, expected[found.indices], rtol=1e-5, atol=2e-6)
    assert (np.diff(found.values) <= 0).all()
    assert sorted(found.indices.tolist()) == list(range(60))
    np.testing.assert_array_equal(found.labels, Y[found.indices])


def test_wrong_labels_are_worth_least():
    wrong = np.array([3, 20, 41])
    y = Y.copy()
    y[wrong] = (y[wrong] + 1) % 3
    explainer = Effects(output="log_prob", show_progress=False).fit(features=FeatureBank.of(X, y))
    found = values(explainer, features=TESTS, y=TRUTH)
    assert set(wrong) <= set(found.indices[-10:].tolist())
    assert (found.values[np.isin(found.indices, wrong)] < 0).all()


def test_inputs_of_a_model_and_names_of_samples(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3)).eval()
    explainer = Effects(show_progress=False).fit(model, (torch.tensor(X), torch.tensor(Y)))
    ids = [f"image-{i}" for i in range(60)]
    found = values(explainer, torch.tensor(TESTS), TRUTH, ids=ids)
    expected = explainer.attribute(torch.tensor(TESTS), TRUTH).mean(0).numpy()
    np.testing.assert_allclose(found.values, expected[found.indices], rtol=1e-5, atol=2e-6)
    found.to_csv(tmp_path / "values.csv")
    lines = (tmp_path / "values.csv").read_text().splitlines()
    assert lines[0] == "index,id,label,value"
    assert lines[1].split(",")[:2] == [str(found.indices[0]), ids[found.indices[0]]]
    assert found.to_dict()["n_tests"] == 25


def test_what_cannot_be_valued():
    with pytest.raises(UnsupportedError, match="'explainer' must be a fitted Effects"):
        values(dualda(X, Y), features=TESTS, y=TRUTH)
    explainer = fitted()
    for options, message in (
        ({}, "'y' must be the true classes"),
        ({"y": TRUTH[:3]}, "'y' must"),
        ({"y": TRUTH, "ids": ["one"]}, "'ids'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            values(explainer, features=TESTS, **options)
