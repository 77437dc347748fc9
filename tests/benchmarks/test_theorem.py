"""Theorem 3.1 of the paper: a counterexample, where it holds, and the derivative that holds everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.theorem import derivatives

from whence.svm import solve


def weighted(X: Any, y: Any, C: float, copies: int, without: int | None = None, **more: Any) -> Any:
    """Solve with every sample in copies of weight C / copies, and one copy of one sample left out."""
    rows = np.repeat(np.arange(len(X)), copies)
    if without is not None:
        rows = np.delete(rows, copies * without)
    return solve(X[rows], y[rows], C=C / copies, bias=False, tol=1e-12, **more), rows


def test_the_counterexample() -> None:
    """x = (1, ½), one class of two, C = ½: v = w₁ − w₂ minimises ¼v² + C[1 − v]₊ + C[1 − v/2]₊, so v = 1.

    Sample 2 has the margin ½, off 1. v/2 = λ₁ + λ₂/2 with λ₂ = C gives λ₁ = ¼: free, so that it takes over
    what sample 2 loses, and v stays 1 until λ₁ is at C.
    """
    X, y = np.array([[1.0], [0.5]]), np.array([0, 0])
    whole, rows = weighted(X, y, 0.5, 10, n_classes=2)
    less, _ = weighted(X, y, 0.5, 10, without=1, n_classes=2)
    np.testing.assert_allclose(whole.weight[:, 0], [0.5, -0.5], atol=1e-5)
    np.testing.assert_allclose(less.weight, whole.weight, atol=1e-5)  # the derivative is 0
    lam = whole.lam.toarray()
    second = rows == 1
    np.testing.assert_allclose(lam[second, 0], 0.05, atol=1e-7)  # at its bound
    np.testing.assert_allclose(lam[~second, 0].sum(), 0.25, atol=1e-5)  # free
    tau = (lam[second, 0] * 0.5).sum()
    assert tau == pytest.approx(0.25, abs=1e-6)  # what the theorem says at x = 1
    lam = solve(X, y, C=0.5, bias=False, tol=1e-12, n_classes=2).lam
    found = derivatives(X, lam, 0.5, np.ones((1, 1)), np.array([0]))
    assert found.samples.tolist() == [1]
    np.testing.assert_allclose([found.tau[0, 0], found.actual[0, 0]], [0.25, 0.0], atol=1e-6)


def test_it_holds_where_no_sample_is_on_the_margin() -> None:
    """With a small C every sample is at its bound: W = Σ λ_i x_iᵀ changes by just the copy left out."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(12, 5)), np.arange(12) % 2
    whole, _ = weighted(X, y, 1e-4, 10)
    less, _ = weighted(X, y, 1e-4, 10, without=3)
    lam = 1e-5 * np.where(np.arange(2) == y[3], 1.0, -1.0)
    np.testing.assert_allclose(whole.weight - less.weight, lam[:, None] * X[3], rtol=1e-6, atol=1e-12)


def test_the_derivative_is_that_of_solving_again() -> None:
    random = np.random.default_rng(1)
    y = np.arange(60) % 3
    X = np.eye(3, 8)[y] + 0.8 * random.normal(size=(60, 8))
    tests, targets, C, copies = random.normal(size=(5, 8)), np.array([0, 1, 2, 0, 1]), 0.3, 400
    whole = solve(X, y, C=C, bias=False, tol=1e-12)
    found = derivatives(X, whole.lam, C, tests, targets)
    assert found.n_margin >= 3
    assert len(found.samples) >= 5
    for place, i in enumerate(found.samples[:3]):  # a copy is so light that no sample changes sides
        less, _ = weighted(X, y, C, copies, without=int(i))
        change = copies * (tests @ (whole.weight - less.weight).T)[np.arange(5), targets]
        np.testing.assert_allclose(
            found.actual[:, place], change, atol=1e-4
        )  # so small a weight that none reaches its bound
    assert np.abs(found.actual - found.tau).max() > 0.05  # where the theorem says τ
