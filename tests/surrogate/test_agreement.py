"""What a fit says about itself: agreement with the model, and what is wrong with the data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import whence
from whence.errors import AgreementWarning, DataWarning
from whence.features import FeatureBank
from whence.svm import choose_C, held_back

K, D = 3, 8


def clusters(n=300, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return (np.eye(K, D)[y] + noise * rng.normal(size=(n, D))).astype(np.float32), y


HEAD = np.eye(K, D, dtype=np.float32), None


def fitted(X, y, C=0.1, head=HEAD, **options):
    return whence.DualDA(metric="raw", C=C, show_progress=False).fit(
        features=FeatureBank.of(X, y, head=head, **options)
    )


@pytest.mark.parametrize("C", [1e-2, "auto"])
def test_agreement_is_that_of_the_returned_weights_on_rows_that_did_not_choose_C(C, tmp_path):
    X, y = clusters(noise=0.6)
    explainer = fitted(X, y, C)
    rows = held_back(y, 0)
    W = explainer.coef_
    ours = (X[rows] @ W[:, :D].T + W[:, D]).argmax(1)
    theirs = (X[rows] @ HEAD[0].T).argmax(1)
    assert explainer.agreement_ == np.mean(ours == theirs)
    explainer.save(tmp_path / "a.whence")
    assert whence.load(tmp_path / "a.whence").agreement_ == explainer.agreement_


def test_rows_held_back_do_not_move_the_choice_of_C():
    X, y = clusters()
    rows = held_back(y, 0)
    assert 60 <= len(rows) <= 100
    other = X.copy()
    other[rows] = other[rows][::-1]
    # The same norms, so that the path runs over the same C.
    assert choose_C(X, y, head=HEAD).path[3] == choose_C(other, y, head=HEAD).path[3]


def test_a_surrogate_that_names_other_classes_than_the_model_is_told():
    X, y = clusters()
    wrong = np.roll(HEAD[0], 1, axis=0), None
    says = r"predicts the model's class for \d+\.\d% of 75 training samples"
    with pytest.warns(AgreementWarning, match=rf"{says}.*The model itself is right on \d+\.\d% of them"):
        assert fitted(X, y, head=wrong).agreement_ < 0.2


def test_the_advice_is_about_what_is_low() -> None:
    X, y = clusters()
    with pytest.warns(AgreementWarning) as given:
        fitted(X, y, head=(np.roll(HEAD[0], 1, axis=0), None), C=0.01)
    assert 'C was given: try C="auto"' in str(given[0].message)
    assert "C_path_" not in str(given[0].message)


def test_a_good_surrogate_is_not_warned_of():
    X, y = clusters()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitted(X, y).agreement_ > 0.9


def test_classes_without_samples_are_told():
    X, y = clusters()
    with pytest.warns(DataWarning, match="No training sample has class 2"):
        fitted(X[y < 2], y[y < 2])


def test_one_class_only_is_told():
    X, y = clusters()
    with pytest.warns(DataWarning, match="All training samples have class 1"):
        fitted(X[y == 1], y[y == 1])


def test_collapsed_features_are_told():
    X, y = clusters()
    with pytest.warns(DataWarning, match="nearly the same"):
        fitted(np.ones_like(X) + 1e-6 * X, y)


def test_the_warning_points_at_the_users_call():
    X, y = clusters()
    model = nn.Sequential(nn.Linear(D, K))
    with pytest.warns(DataWarning) as seen:
        whence.DualDA(metric="raw", C=0.1, show_progress=False).fit(
            model, (torch.from_numpy(X[y < 2]), y[y < 2])
        )
    assert {one.filename for one in seen if issubclass(one.category, DataWarning)} == {__file__}
