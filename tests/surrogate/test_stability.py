"""Stability of the strongest samples: counted over surrogates that are solved here, half by half."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch

from tests.attribution.test_explain import cnn, images
from whence import DualDA
from whence.errors import InvalidInputError
from whence.features import extract
from whence.svm import solve


@pytest.fixture(scope="module")
def explainer() -> DualDA:
    return DualDA(metric="raw", C=0.05, tol=1e-9, show_progress=False).fit(cnn(), images())


@pytest.mark.parametrize("k", [1, 4])
def test_counts_are_those_of_a_loop_over_halves(explainer: DualDA, k: int) -> None:
    """A division has one half of 23 samples and one of 22: each sample is in one of them."""
    x, y = images()
    bank = extract(cnn(), (x, y), show_progress=False)
    found = explainer.stability(bank, halves=3).top_k(x[:4], k, target=1)
    F, b = np.asarray(bank.features, np.float64), explainer.constant_
    f = F[:4] - F.mean(axis=0)  # scores are relative to the mean of the whole training set
    expected = {1: np.zeros((4, 45), int), -1: np.zeros((4, 45), int)}
    for place in range(3):
        chosen = np.random.default_rng([explainer.seed, place]).permutation(45) < 23
        for rows in (np.flatnonzero(chosen), np.flatnonzero(~chosen)):
            lam = solve(F[rows], y[rows].numpy(), n_classes=3, C=0.05, bias=b, tol=1e-10).lam.toarray()
            tau = lam[:, 1] * (f @ F[rows].T)  # (test, half)
            for sign, counts in expected.items():
                for test in range(4):
                    order = np.argsort(-sign * tau[test])[:k]
                    counts[test, rows[order[sign * tau[test, order] > 0]]] += 1
    assert found.halves == 3
    top = explainer.top_k(x[:4], k, target=1)
    for sign, side, count in ((1, top.proponents, found.proponents), (-1, top.opponents, found.opponents)):
        indices = side.indices.numpy()
        wanted = np.where(indices >= 0, np.take_along_axis(expected[sign], indices.clip(0), 1), 0)
        np.testing.assert_array_equal(count.numpy(), wanted)


def test_features_are_computed_again_where_none_are_given(explainer: DualDA) -> None:
    x, y = images()
    bank = extract(cnn(), (x, y), show_progress=False)
    one, other = (explainer.stability(given, halves=2).top_k(x[:3], 3) for given in (None, bank))
    torch.testing.assert_close(one.proponents, other.proponents)
    torch.testing.assert_close(one.top.target, explainer.top_k(x[:3], 3).target)


def test_other_features_and_numbers_are_refused(explainer: DualDA) -> None:
    with pytest.raises(InvalidInputError, match="features"):
        explainer.stability(np.ones((45, 10), np.float32))
    with pytest.raises(InvalidInputError, match="'halves' must be"):
        explainer.stability(halves=0)
    with pytest.raises(
        InvalidInputError, match="'halves' must be an integer of at least 1 and at most 1,000"
    ):
        explainer.stability(halves=10**6)


def test_a_test_is_read_once(explainer: DualDA) -> None:
    x, _ = images()
    stability, model = explainer.stability(halves=1), explainer.fitted_.require_model()
    read_batch = type(model).read_batch
    with mock.patch.object(type(model), "read_batch", autospec=True, side_effect=read_batch) as read:
        found = stability.top_k(x[:3], 2)
    assert read.call_count == 1
    same = stability.top_k(features=model.read(x[:3], 8).features, k=2)
    torch.testing.assert_close(found.proponents, same.proponents)
