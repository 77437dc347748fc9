"""A training set that changes: an updated explainer against a fit of the changed set, and a generic QP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, TensorDataset

import whence
from whence import DualDA
from whence.errors import InvalidInputError, NotFittedError, StoreError
from whence.features import FeatureBank, extract
from whence.methods import Effects

N, MORE, D, K = 90, 12, 5, 3


def problem(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, N + MORE)
    return (np.eye(K, D)[y] * 2 + rng.normal(size=(N + MORE, D))).astype(np.float32), y


def changed() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All features, the labels after the change, and which samples are left."""
    X, y = problem()
    y = y.copy()
    y[7], y[8] = (y[7] + 1) % K, (y[8] + 1) % K
    left = np.ones(N + MORE, bool)
    left[[3, 50]] = False
    return X, y, left


def fitted(X: np.ndarray, y: np.ndarray, **options: Any) -> DualDA:
    return DualDA(tol=1e-10, show_progress=False, **options).fit(features=FeatureBank.of(X, y))


def updated(C: float = 0.05, bias: bool = True) -> DualDA:
    X, y = problem()
    new = changed()[1]
    explainer = fitted(X[:N], y[:N], C=C, bias=bias)
    return explainer.update(
        add=(X[N:], y[N:]), remove=[3, 50], relabel={7: int(new[7]), 8: int(new[8])}, features=X[:N]
    )


class Net(nn.Module):
    """Counts the samples that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(D, 8), nn.Linear(8, K)
        self.seen = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += len(x)
        return self.head(self.body(x).relu())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("C", [1e-4, 0.05, 2.0])
def test_it_is_a_fit_of_the_changed_set(C: float, bias: bool) -> None:
    X, y, left = changed()
    explainer = updated(C, bias)
    fresh = fitted(X[left], y[left], C=C, bias=bias)
    assert explainer.gap_ <= 1e-10
    assert explainer.constant_ == pytest.approx(fresh.constant_)
    np.testing.assert_allclose(explainer.coef_, fresh.coef_, atol=2e-5 * np.abs(fresh.coef_).max())
    tests = X[:6] + 0.1
    scores = explainer.attribute(features=tests, target=1)
    assert scores.shape == (6, N + MORE)
    assert not scores[:, ~left].any()
    expected = fresh.attribute(features=tests, target=1).numpy()
    np.testing.assert_allclose(scores[:, left], expected, atol=2e-3 * np.abs(expected).max())
    torch.testing.assert_close(
        scores.sum(1).double(),
        explainer.surrogate_.logits(torch.as_tensor(tests))[:, 1],
        rtol=1e-4,
        atol=1e-5,
    )


def test_places_and_history() -> None:
    _, y = problem()
    explainer = updated()
    new = changed()[1]
    assert explainer.n_train_ == N + MORE
    assert explainer.skipped_.tolist() == [3, 50]
    assert explainer.labels_[[3, 7, N]].tolist() == [-1, new[7], y[N]]
    (change,) = explainer.history_
    assert change.removed == ((3, y[3]), (50, y[50]))
    assert change.relabelled == ((7, y[7], new[7]), (8, y[8], new[8]))
    assert str(change).endswith(": 12 samples added, 2 samples removed, 2 samples relabelled")
    with pytest.raises(InvalidInputError, match=r"'remove' .*Got 3\."):
        explainer.update(remove=[3], features=problem()[0])


def test_changes_one_after_the_other_are_one_change() -> None:
    X, y = problem()
    new = changed()[1]
    explainer = DualDA(C=0.05, tol=1e-10, show_progress=False).fit(features=FeatureBank.of(X[:N], y[:N]))
    explainer.update(remove=[3, 50], features=X[:N])
    explainer.update(add=FeatureBank.of(X[N:], y[N:]), features=X[:N])
    explainer.update(relabel={7: int(new[7]), 8: int(new[8])}, features=X)
    np.testing.assert_allclose(explainer.coef_, updated().coef_, atol=1e-5)
    assert len(explainer.history_) == 3


def test_it_comes_back_from_a_file_with_its_history(tmp_path: Path) -> None:
    explainer = updated()
    explainer.save(tmp_path / "x.whence")
    back = whence.load(tmp_path / "x.whence")
    assert back.history_ == explainer.history_
    X = problem()[0]
    assert torch.equal(back.attribute(features=X[:3]), explainer.attribute(features=X[:3]))
    again, other = (e.what_if(remove=[20], training_features=X).explainer for e in (back, explainer))
    assert again.agreement_ == other.agreement_
    back.update(relabel={20: 0 if back.labels_[20] else 1}, features=X)
    assert len(back.history_) == 2


def test_samples_that_had_no_part_in_choosing_C_are_known_after_loading(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, D)).astype(np.float32), rng.integers(0, 2, 400)
    X[:, 0] += 3 * y
    head = np.array([[-1.0, 0, 0, 0, 0], [1.0, 0, 0, 0, 0]]), np.array([1.5, -1.5])
    explainer = DualDA(tol=1e-6, show_progress=False).fit(
        features=FeatureBank.of(X[:300], y[:300], head=head)
    )
    path = explainer.C_path_
    explainer.update(add=(X[300:], y[300:]), remove=range(40), relabel={77: int(1 - y[77])}, features=X[:300])
    assert explainer.C_path_ is path
    explainer.save(tmp_path / "x.whence")
    back = whence.load(tmp_path / "x.whence")
    assert (
        back.what_if(C=0.01, training_features=X).explainer.agreement_
        == explainer.what_if(C=0.01, training_features=X).explainer.agreement_
    )
    # What was added had no part in it, and is measured on.
    assert explainer.agreement_ is not None


def test_only_what_is_added_goes_through_the_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(0, K, 3000))
    X = torch.eye(K, D)[y] * 2 + torch.from_numpy(rng.normal(size=(3000, D)).astype(np.float32))
    model = Net()
    explainer = DualDA(C=0.05, tol=1e-9, show_progress=False)
    explainer.fit(model, (X[:2980], y[:2980]), cache_dir=tmp_path)
    model.seen = 0
    explainer.update(add=(X[2980:], y[2980:]), remove=[3, 50], cache_dir=tmp_path)
    assert model.seen < 700  # a look at some of those that are known, a few times
    left = torch.ones(3000, dtype=torch.bool)
    left[[3, 50]] = False
    fresh = DualDA(C=0.05, tol=1e-9, show_progress=False).fit(model, (X[left], y[left]))
    np.testing.assert_allclose(explainer.coef_, fresh.coef_, atol=5e-5 * np.abs(fresh.coef_).max())
    (why,) = explainer.explain(X[2990:2991], k=3)
    for pair in (*why.proponents, *why.opponents):
        assert pair.index not in (3, 50)
        assert pair.label == y[pair.index]
        torch.testing.assert_close(torch.as_tensor(pair.sample.values), X[pair.index])


def test_another_method_is_fitted_on_the_changed_set() -> None:
    X, y = map(torch.from_numpy, problem())
    model = Net()
    explainer = DualDA(C=0.05, show_progress=False).fit(model, (X[:N], y[:N]))
    explainer.update(add=(X[N:], y[N:]), remove=[3])
    bank = extract(model, explainer.data_, show_progress=False)
    assert bank.skipped.tolist() == [3]
    with torch.no_grad():
        expected = model.body(X).relu()
    np.testing.assert_allclose(bank.features, expected, rtol=1e-5, atol=1e-6)
    effects = Effects(show_progress=False).fit(model, explainer.data_)
    assert effects.attribute(X[:2]).shape == (2, N + MORE)
    assert not effects.attribute(X[:2])[:, 3].any()


def test_a_loaded_explainer_takes_the_sets_one_after_the_other(tmp_path: Path) -> None:
    X, y = map(torch.from_numpy, problem())
    model = Net()
    explainer = DualDA(C=0.05, show_progress=False).fit(model, (X[:N], y[:N]))
    label = int((y[7] + 1) % K)
    explainer.update(add=(X[N:], y[N:]), relabel={7: label}).save(tmp_path / "x.whence")
    both = ConcatDataset([TensorDataset(X[:N], y[:N]), TensorDataset(X[N:], y[N:])])
    back = whence.load(tmp_path / "x.whence", model, both)
    assert len(back.explain(X[:1], k=2)) == 1
    back.update(remove=[4])  # features of all samples, with their labels as they are now
    assert back.labels_[[4, 7]].tolist() == [-1, label]
    with pytest.raises(InvalidInputError, match=r"102 samples\. Got 90"):
        whence.load(tmp_path / "x.whence", model, (X[:N], y[:N]))
    wrong = y.clone()
    wrong[9] = (y[9] + 1) % K
    with pytest.raises(InvalidInputError, match="sample 9 has"):
        whence.load(tmp_path / "x.whence", model, (X, wrong))


@pytest.mark.parametrize("source", ["bank", "model"])
def test_features_of_the_fit_are_kept_for_all_that_asks_for_them(source: str) -> None:
    X, y = problem()
    model = nn.Linear(D, K)

    def fit(method: Any) -> Any:
        if source == "model":
            return method.fit(model, torch.from_numpy(X[:N]), y[:N])
        return method.fit(features=FeatureBank.of(X[:N], y[:N]))

    explainer = fit(DualDA(C=0.05, tol=1e-10, show_progress=False))
    for ask in (
        lambda **given: whence.audit.wrong_labels(explainer, **given).scores,
        lambda **given: whence.audit.shortcuts(explainer, target=1, **given).mean,
        lambda **given: explainer.stability(halves=3, **given).top_k(features=X[:4], k=3).proponents,
    ):
        np.testing.assert_array_equal(ask(), ask(features=X[:N]))
    assert not np.shares_memory(explainer.bank_.features, X) or source == "bank"
    effects, options = fit(Effects(show_progress=False)), {"features": X[:5], "remove": [0, 4]}
    np.testing.assert_array_equal(
        effects.effect_of(**options).exact, effects.effect_of(**options, training_features=X[:N]).exact
    )
    add = torch.from_numpy(X[N:]) if source == "model" else X[N:]
    explainer.update(add=(add, y[N:]), remove=[3])
    explainer.update(relabel={7: (int(y[7]) + 1) % K})
    by_hand = fit(DualDA(C=0.05, tol=1e-10, show_progress=False))
    by_hand.update(add=(add, y[N:]), remove=[3], relabel={7: (int(y[7]) + 1) % K}, features=X[:N])
    np.testing.assert_allclose(explainer.coef_, by_hand.coef_, atol=1e-4)


def test_features_that_changed_since_the_fit_are_refused() -> None:
    X, y = problem()
    explainer = DualDA(C=0.05, show_progress=False).fit(features=FeatureBank.of(X, y))
    X *= 2
    with pytest.raises(InvalidInputError, match="samples have other features"):
        whence.audit.wrong_labels(explainer)


def test_what_goes_wrong_leaves_the_explainer_as_it_was(tmp_path: Path) -> None:
    X, y = problem()
    explainer = DualDA(C=0.05, show_progress=False).fit(features=FeatureBank.of(X[:N], y[:N]))
    before = explainer.coef_.copy()
    bad: list[tuple[dict[str, Any], str]] = [
        ({}, "One of 'add', 'remove' and 'relabel'"),
        ({"relabel": {2: int(y[2])}}, "Got nothing that does"),
        ({"remove": [N]}, rf"Got {N}"),
        ({"relabel": {2: K}}, "'relabel' must give"),
        ({"add": X[N:]}, "'add' must be features and labels"),
        ({"add": (X[N:, :3], y[N:])}, "'add' must have 5 features"),
        ({"add": (X[N:], y[N:] + K)}, "must be"),
    ]
    for options, message in bad:
        with pytest.raises(InvalidInputError, match=message):
            explainer.update(features=X[:N], **options)
    explainer.save(tmp_path / "e.whence")
    with pytest.raises(InvalidInputError, match="'features' must be given"):
        whence.load(tmp_path / "e.whence").update(remove=[1])
    with pytest.raises(InvalidInputError, match="other features"):
        explainer.update(remove=[1], features=X[:N] * 2)
    with pytest.raises(NotFittedError):
        DualDA().update(remove=[1])
    np.testing.assert_array_equal(explainer.coef_, before)
    assert explainer.history_ == ()


def test_a_file_with_a_history_of_another_set_is_refused(tmp_path: Path) -> None:
    from whence.core import store

    updated().save(tmp_path / "x.whence")
    arrays, manifest = store.read(tmp_path / "x.whence")
    for change in (
        {"added": N + MORE}, {"removed": [[N + MORE, 0]]}, {"removed": [[0, K]]}, {"removed": [[0, "no"]]},
        {"removed": [[-1, 0]]}, {"added": -1}, {"when": 3}, {"who": "me"},
    ):  # fmt: skip
        crafted = {**manifest, "history": [{**manifest["history"][0], **change}]}
        store.write(tmp_path / "y.whence", arrays, crafted)
        with pytest.raises(StoreError):
            whence.load(tmp_path / "y.whence")
