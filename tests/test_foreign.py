"""An explainer knows its training set again, wherever features or data come back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import whence
from tests.helpers.explored import NAMES, M, N, network, pictures
from whence.audit import shortcuts, wrong_labels
from whence.data import as_training_set
from whence.errors import InvalidInputError
from whence.features import FeatureBank, extract
from whence.project import Configuration, Project
from whence.surrogate.identity import check_sketch, make_sketch
from whence.ui.changes import what_if
from whence.ui.classes import classes
from whence.ui.explorer import Explorer
from whence.ui.requests import WhatIfRequest

Pair = tuple[torch.Tensor, torch.Tensor]


def fit(data: Any = None) -> whence.DualDA:
    explainer = whence.DualDA(metric="raw", C=0.05, tol=1e-9, batch_size=64, show_progress=False)
    return explainer.fit(network(), pictures(N, 0) if data is None else data, class_names=NAMES)


def features(data: Any = None, **options: Any) -> Any:
    return extract(network(), pictures(N, 0) if data is None else data, show_progress=False, **options)


def swapped(x: torch.Tensor, y: torch.Tensor) -> Pair:
    """Two samples of one class, neither of them a support vector, in each other's place."""
    explainer = fit()
    label = int(np.bincount(y[np.setdiff1d(np.arange(N), explainer.support_)]).argmax())
    free = [i for i in np.flatnonzero(y == label) if i not in explainer.support_][:2]
    x[free] = x[free[::-1]]
    return x, y


OTHERS: dict[str, Callable[[], Pair]] = {
    "other samples": lambda: pictures(N, 5),
    "another order": lambda: (pictures(N, 0)[0].flip(0), pictures(N, 0)[1].flip(0)),
    "inputs in another order": lambda: (pictures(N, 0)[0].roll(3, 0), pictures(N, 0)[1]),
    "brighter": lambda: (1.3 * pictures(N, 0)[0], pictures(N, 0)[1]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_if_refuses_features_of_another_set(name: str) -> None:
    with pytest.raises(
        InvalidInputError, match=r"_features' must be of the training set that was fitted.* such as sample"
    ):
        fit().what_if(C=0.1, training_features=features(OTHERS[name]()).features)


def test_what_if_sees_two_samples_that_changed_places_though_neither_supports() -> None:
    with pytest.raises(InvalidInputError, match=r"2 of 90 samples have other features"):
        fit().what_if(remove=[0], training_features=features(swapped(*pictures(N, 0))).features)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_features_with_a_common_offset_are_told_apart(offset: float) -> None:
    rng = np.random.default_rng(0)
    X, y = (rng.normal(size=(200, 16)) + offset).astype(np.float32), np.arange(200) % 3
    explainer = whence.DualDA(metric="raw", C=1e-3, tol=1e-3, show_progress=False).fit(
        features=FeatureBank.of(X, y)
    )
    explainer.what_if(C=2e-3, training_features=X + np.float32(1e-4))
    with pytest.raises(InvalidInputError, match="other features"):
        explainer.what_if(C=2e-3, training_features=rng.permutation(X))


def test_rounding_and_mixed_precision_are_the_same_set() -> None:
    explainer = fit()
    for options in ({"batch_size": 7}, {"dtype": "float16"}, {"autocast": "bfloat16"}):
        bank = features(**options)
        explainer.what_if(C=0.1, training_features=np.asarray(bank.features, np.float32))
        wrong_labels(explainer, features=bank, n=3)


@pytest.mark.parametrize("name", OTHERS)
def test_audits_refuse_features_of_another_set(name: str) -> None:
    bank = features(OTHERS[name]())
    for audit in (
        lambda e: wrong_labels(e, features=bank),
        lambda e: shortcuts(e, target=1, features=bank),
    ):
        with pytest.raises(InvalidInputError, match=r"'features' must be .*that was fitted"):
            audit(fit())


def relabelled() -> Pair:
    x, y = pictures(N, 0)
    y[4] = (y[4] + 1) % 3
    return x, y


def test_audits_refuse_other_labels() -> None:
    with pytest.raises(InvalidInputError, match=r"1 of 90 samples have other labels: sample 4 has 2, was 1"):
        wrong_labels(fit(), features=features(relabelled()))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    fit().save(tmp_path / "x.whence")
    return tmp_path / "x.whence"


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    "wrap", [tuple, lambda pair: TensorDataset(*pair), lambda pair: list(zip(*pair, strict=True))]
)
def test_load_refuses_another_set(saved: Path, name: str, wrap: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"'data' must be .*that was fitted"):
        whence.load(saved, network(), wrap(OTHERS[name]()))


def test_load_refuses_other_labels_and_another_number(saved: Path) -> None:
    with pytest.raises(InvalidInputError, match="sample 4 has 2, was 1"):
        whence.load(saved, network(), relabelled())
    with pytest.raises(InvalidInputError, match=r"90 samples\. Got 89"):
        whence.load(saved, network(), tuple(part[:89] for part in pictures(N, 0)))


def test_a_question_that_was_saved_is_loaded_with_the_set_as_it_is(tmp_path: Path) -> None:
    explainer = fit()
    X = features().features
    explainer.what_if(remove=[0], relabel={4: 2}, training_features=X).explainer.save(tmp_path / "x")
    back = whence.load(tmp_path / "x", network(), pictures(N, 0))
    assert isinstance(back, whence.DualDA)
    assert back.labels_[[0, 4]].tolist() == [-1, 2]
    back.what_if(C=0.1, training_features=X)
    with pytest.raises(InvalidInputError, match="other features"):
        back.what_if(C=0.1, training_features=features(OTHERS["other samples"]()).features)


def test_labels_that_a_set_only_claims_to_have_do_not_count(saved: Path) -> None:
    class Claims(TensorDataset):
        targets = [0] * N

    whence.load(saved, network(), Claims(*pictures(N, 0)))


def test_the_explorer_refuses_another_set() -> None:
    explainer = fit()
    tests = as_training_set(pictures(M, 1), 64, names=NAMES)
    data = as_training_set(OTHERS["inputs in another order"](), 64, names=NAMES)
    explainer.fitted_ = dataclasses.replace(explainer.fitted_, data=data, bank=None)  # as after load
    explorer = Explorer(Project(Path("x.whence"), Configuration(model="", data=""), explainer, tests))
    for ask in (
        lambda: explorer.solved.at(explorer.solved.Cs()[0]),
        lambda: what_if(explorer, WhatIfRequest(test=0, remove=[1])),
        lambda: classes(explorer),
        lambda: explorer.training.suspects(0, 5),
    ):
        with pytest.raises(InvalidInputError, match="'data' must be of the training set that was fitted"):
            ask()


def test_sums_are_the_same_everywhere_and_always() -> None:
    """The first byte of SHAKE-256 of "whence" is f5, 1111 0101: a file must be known again for ever."""
    found = make_sketch(np.eye(2, dtype=np.float32), np.array([0, 1]))
    assert found.tolist() == [[-1, -1, -1, -1, 0], [1, -1, 1, -1, 1]]


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_features_beyond_all_numbers_are_not_those_that_were_fitted(value: float) -> None:
    features = np.ones((40, 6), np.float32)
    kept = make_sketch(features, np.zeros(40, int))
    features[7] = value
    with pytest.raises(InvalidInputError, match="1 of 40 samples have other features, such as sample 7"):
        check_sketch(kept, np.ones(40, bool), features, np.arange(40), "data")


def test_a_sketch_costs_five_numbers_a_sample() -> None:
    explainer = whence.DualDA(metric="raw", C=1e-3, show_progress=False).fit(
        features=FeatureBank.of(np.eye(40), np.arange(40) % 2)
    )
    assert explainer.surrogate_.arrays()["sketch"].nbytes == 40 * 5 * 4


def test_a_linear_model_of_one_class_of_features_is_known_again() -> None:
    X, y = np.ones((20, 3), np.float32), np.arange(20) % 2
    explainer = whence.DualDA(metric="raw", C=1e-3, tol=1e-3, show_progress=False)
    with pytest.warns(whence.errors.DataWarning):
        explainer.fit(features=FeatureBank.of(X, y))
    explainer.what_if(C=2e-3, training_features=X)
    with pytest.raises(InvalidInputError, match="other features"):
        explainer.what_if(C=2e-3, training_features=2 * X)
