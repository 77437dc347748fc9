"""The smallest set that flips a prediction, against every subset of tiny problems."""

from __future__ import annotations

import warnings
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from whence import Effects
from whence.errors import InvalidInputError, UnsupportedError
from whence.features import FeatureBank

N, K, D = 12, 3, 2


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Overlapping classes, and tests near where they meet."""
    rng = np.random.default_rng(seed)
    y = np.arange(N) % K
    centres = 1.5 * rng.normal(size=(K, D))
    X = (centres[y] + rng.normal(size=(N, D))).astype(np.float32)
    return X, y, (centres.mean(0) + 0.7 * rng.normal(size=(2, D))).astype(np.float32)


def predicted(X: np.ndarray, y: np.ndarray, tests: np.ndarray, constant: float, C: float) -> np.ndarray:
    """Return the classes that a softmax regression predicts, solved by L-BFGS."""
    F, T = (np.c_[some.astype(np.float64), np.full(len(some), constant)] for some in (X, tests))

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = flat.reshape(K, -1)
        logs = log_softmax(F @ W.T, axis=1)
        rest = np.exp(logs)
        rest[np.arange(len(y)), y] -= 1.0
        losses = -logs[np.arange(len(y)), y].sum()
        return 0.5 * float(flat @ flat) + C * losses, (W + C * rest.T @ F).ravel()

    options = {"gtol": 1e-9, "ftol": 1e-15}
    found = minimize(objective, np.zeros(K * (D + 1)), jac=True, method="L-BFGS-B", options=options)
    return (T @ found.x.reshape(K, -1).T).argmax(1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sets_are_as_small_as_those_of_a_search_through_all(seed: int) -> None:
    X, y, tests = problem(seed)
    effects = Effects(C=1.0, show_progress=False).fit(features=FeatureBank.of(X, y))
    b = effects.constant_
    flips = effects.find_flips(features=tests, limit=4)
    assert any(flip.found for flip in flips)
    for place, flip in enumerate(flips):
        test = tests[place : place + 1]
        before = predicted(X, y, test, b, 1.0)[0]
        assert flip.before == str(before)
        smallest = next(
            (
                size
                for size in range(1, 5)
                for gone in combinations(range(N), size)
                if predicted(np.delete(X, gone, 0), np.delete(y, gone), test, b, 1.0)[0] != before
            ),
            None,
        )
        if not flip.found:
            assert smallest is None
            continue
        gone = list(flip.removed)
        assert flip.after == str(predicted(np.delete(X, gone, 0), np.delete(y, gone), test, b, 1.0)[0])
        assert smallest <= len(gone) <= smallest + 1
        for kept in gone:  # every sample is needed
            rest = [sample for sample in gone if sample != kept]
            assert predicted(np.delete(X, rest, 0), np.delete(y, rest), test, b, 1.0)[0] == before


def test_the_answer_is_in_words() -> None:
    X = np.array([[-2.0], [-1.0], [1.0], [1.2]], np.float32)
    names = ["left", "right"]
    bank = FeatureBank.of(X, np.array([0, 0, 1, 1]))
    effects = Effects(show_progress=False).fit(features=bank, class_names=names)
    both = effects.find_flips(features=np.array([[0.5], [-0.8]], np.float32))
    assert sorted(both[0].removed) == [2, 3]
    start = "Removing these 2 training samples changes the prediction from right to left: "
    assert str(both[0]).startswith(start)
    assert (both[1].before, both[1].after) == ("left", "right")
    one = effects.find_flips(features=np.array([[0.5]], np.float32), limit=1)[0]
    assert not one.found
    assert str(one) == "No set of up to 1 training sample was found that changes the prediction right."


def test_wrong_arguments_are_refused() -> None:
    X, y, tests = problem(0)
    effects = Effects(C=1.0, show_progress=False).fit(features=FeatureBank.of(X, y))
    with pytest.raises(InvalidInputError, match="'limit' must be an integer of at least 1"):
        effects.find_flips(features=tests, limit=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = Effects(show_progress=False).fit(features=FeatureBank.of(X, X[:, 0], task="regression"))
    with pytest.raises(UnsupportedError, match="must have classes"):
        numbers.find_flips(features=tests)
