"""Specificity: cases by hand, an independent count, chance, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist

import whence.metrics
from whence.errors import InvalidInputError
from whence.metrics import cancellation, specificity

RNG = np.random.default_rng(3)


def test_a_case_by_hand() -> None:
    lists = np.array([[0, 1], [0, 2], [3, -1], [0, 4], [-1, -1]])
    found = specificity(indices=lists, target=np.array([0, 0, 0, 1, 1]))
    assert found.n_tests == 5
    assert found.distinct == pytest.approx(3 / 5)  # 0, 3, and the empty list
    assert found.distinct_listed == pytest.approx(5 / 7)  # 0, 1, 2, 3, 4 in seven entries
    # Sample 0 leads two of three lists of class 0; the two lists of class 1 differ, and the first is counted.
    assert found.each_most_frequent[:3].tolist() == [1, 1, 0]
    assert found.each_most_frequent[3:].sum() == 1
    assert found.most_frequent == pytest.approx(3 / 5)
    assert found.near is None
    assert found.each_near is None


def test_near_by_hand_with_ties_and_padding() -> None:
    """On a line, tests at 0; class 0 at 1, 2, 2, 4, and one sample of class 1 at 3."""
    train, labels = np.array([[1.0], [2.0], [2.0], [4.0], [3.0]]), np.array([0, 0, 0, 0, 1])
    lists = np.array([[0, -1], [1, -1], [3, 4], [-1, -1]])
    found = specificity(
        indices=lists,
        target=np.zeros(4, int),
        train_labels=labels,
        test_vectors=np.zeros((4, 1)),
        train_vectors=train,
    )
    # The nearest; one of three others nearer and one as near; the farthest, and one of class 1; chance.
    by_hand = [0, (1 + 0.5) / 3, (1 + 3 / 4) / 2, 0.5]
    np.testing.assert_allclose(found.each_near, by_hand)
    assert found.near == pytest.approx(np.mean(by_hand))


@pytest.mark.parametrize("kind", ["dense", "tensor", "sparse"])
def test_numbers_are_those_of_an_independent_count(kind: str) -> None:
    T, N, K, k = 30, 200, 3, 4
    target, labels = RNG.integers(K, size=T), RNG.integers(K, size=N)
    X, queries = RNG.integers(0, 3, (N, 12)).astype(float), RNG.integers(0, 3, (T, 12)).astype(float)
    X[10:20] = X[:10]  # duplicates
    scores = RNG.standard_normal((T, N))
    make = {"dense": np.array, "tensor": torch.tensor, "sparse": csr_matrix}
    found = specificity(
        torch.from_numpy(scores),
        target=target,
        k=k,
        train_labels=labels,
        test_vectors=make[kind](queries),
        train_vectors=make[kind](X),
    )
    lists = np.argsort(-scores, axis=1)[:, :k]
    distances = cdist(queries, X, "sqeuclidean")  # exact for integers
    shares = []
    for t in range(T):
        for i in lists[t]:
            others = [j for j in range(N) if labels[j] == target[t] and j != i]
            less = sum(distances[t, j] < distances[t, i] for j in others)
            equal = sum(distances[t, j] == distances[t, i] for j in others)
            shares.append((less + equal / 2) / len(others))
    np.testing.assert_allclose(found.each_near, np.reshape(shares, (T, k)).mean(axis=1))
    assert found.distinct == len(set(lists[:, 0])) / T
    assert found.distinct_listed == len(set(lists.ravel())) / lists.size
    usual = [max(np.bincount(lists[target == c, 0])) for c in range(K)]
    assert found.most_frequent == pytest.approx(sum(usual) / T)
    again = specificity(indices=lists, target=target)
    assert (again.distinct, again.most_frequent) == (found.distinct, found.most_frequent)


def test_the_nearest_have_0_and_random_ones_half() -> None:
    T, N = 60, 400
    X, queries, labels = RNG.standard_normal((N, 5)), RNG.standard_normal((T, 5)), np.arange(N) % 2
    target = np.arange(T) % 2
    common = {"target": target, "train_labels": labels, "test_vectors": queries, "train_vectors": X}
    of_class = labels == target[:, None]
    distances = cdist(queries, X)
    assert specificity(np.where(of_class, 1 / distances, 0), k=1, **common).near == 0
    assert specificity(np.where(of_class, distances, 0), k=1, **common).near == 1
    drawn = specificity(np.where(of_class, RNG.random((T, N)), 0), **common)
    assert drawn.near == pytest.approx(0.5, abs=0.07)
    assert drawn.each_near is not None
    assert drawn.each_near.shape == (T,)


def test_scores_that_are_not_positive_are_not_listed() -> None:
    scores = np.array([[1.0, 0.0, -1.0], [1.0, 2.0, 0.0]])
    found = specificity(scores, target=np.zeros(2, int), k=3)
    assert found.distinct_listed == pytest.approx(2 / 3)
    assert "distinct=1" in repr(found)


def test_cancellation_by_hand() -> None:
    scores = np.array(
        [[4.0, -2.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0]]
    )
    found = cancellation(scores, n=2)
    np.testing.assert_allclose(found.each_cancel, [8 / 4, 1, np.nan, np.inf])
    np.testing.assert_allclose(found.each_held, [6 / 8, 2 / 4, np.nan, 1])
    assert (found.cancel, found.held, found.n_tests) == (2, 0.75, 4)
    assert cancellation(scores, n=100).held == 1


VECTORS = {
    "train_labels": np.array([0, 0, 1]),
    "test_vectors": np.zeros((2, 4)),
    "train_vectors": np.zeros((3, 4)),
}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Either 'scores' or 'indices'.*neither"),
        ({"scores": np.ones((2, 3)), "indices": np.zeros((2, 1), int)}, "both"),
        ({"scores": np.ones((3, 3))}, r"'target' must have shape \(3,\). Got \(2,\)"),
        ({"scores": np.full((2, 3), np.nan)}, r"'scores' must be finite. Got nan at \(0, 0\)"),
        ({"scores": np.zeros((0, 3))}, "'scores' must have shape"),
        ({"scores": -np.ones((2, 3))}, "'scores' must list at least one.*must be positive to be listed"),
        ({"indices": np.full((2, 3), -1)}, "'indices' must list at least one"),
        ({"indices": np.zeros((2, 3))}, "'indices' must be integers. Got dtype float64"),
        ({"indices": np.full((2, 3), -2)}, "'indices' must be places of samples, or −1 for padding. Got -2"),
        ({"indices": np.full((2, 3), 7), **VECTORS}, "'indices' must be below 3.*Got 7"),
        ({"scores": np.ones((2, 4)), **VECTORS}, r"'train_labels' must have shape \(4,\). Got \(3,\)"),
        ({"scores": np.ones((2, 3)), "k": 0}, "'k' must be an integer of at least 1"),
        ({"scores": np.ones((2, 3)), **VECTORS, "train_labels": None}, "'train_labels' must be given"),
        ({"scores": np.ones((2, 3)), **VECTORS, "train_labels": [1, 1, 1]}, "'target' must be classes"),
        (
            {"scores": np.ones((2, 3)), **VECTORS, "test_vectors": np.zeros((2, 5))},
            "'test_vectors' must have",
        ),
        (
            {"scores": np.ones((2, 3)), **VECTORS, "train_vectors": csr_matrix([[np.inf] * 4] * 3)},
            "'train_vectors' must be finite. Got inf",
        ),
    ],
)
def test_what_is_wrong_is_said(given: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        specificity(**{"target": np.array([0, 0]), **given})


def test_cancellation_refuses_scores_of_zeros_and_an_empty_set() -> None:
    with pytest.raises(InvalidInputError, match="'scores' must differ from 0"):
        cancellation(np.zeros((2, 3)))
    with pytest.raises(InvalidInputError, match="'scores' must have shape"):
        cancellation(np.zeros((0, 3)))


def test_they_are_names_of_the_package() -> None:
    assert whence.metrics.specificity is specificity
