"""The solver speaks to the interface alone: another problem, written here, is solved to a certified gap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from tests.helpers.boxed import Boxed
from whence.core.arrays import Doubles, Ints
from whence.svm import choose_C, solve
from whence.svm.problem import joined


@dataclass(frozen=True)
class Hinge(Boxed):
    """One logit and signs y = ±1: min_w ½‖w‖² + C Σ_i max(0, 1 − y_i w·f_i), with y_i λ_i in [0, C]."""

    @property
    def box(self) -> tuple[Doubles, Doubles]:
        ends = np.stack([0 * self.wanted, -self.C * self.wanted])
        return ends.min(0), ends.max(0)

    def loss(self, scores: Doubles, wanted: Doubles) -> tuple[float, float, float]:
        margins = wanted * scores
        wrong = margins < 1
        return float((1 - margins[wrong]).sum()), -float(margins[wrong].sum()), float(margins.min())

    @property
    def strata(self) -> Ints:
        return (self.wanted[:, 0] > 0).astype(np.int64)

    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        scores, theirs = joined(parts)
        wanted = self.wanted[rows] if theirs is None else theirs
        return float((scores * wanted > 0).mean()), None if theirs is None else 1.0


def clouds(n: int, d: int, spread: float) -> tuple[Doubles, Doubles]:
    rng = np.random.default_rng(0)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    return y[:, None] * np.ones(d) / np.sqrt(d) + spread * rng.normal(size=(n, d)), y


@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0, 1e4])
@pytest.mark.parametrize("spread", [0.2, 1.5])
def test_another_problem_reaches_the_optimum_that_scikit_learn_finds(C: float, spread: float) -> None:
    X, y = clouds(120, 4, spread)
    found = solve(X, y, problem=Hinge, C=C, bias=False, tol=1e-6)
    assert found.status == "converged"
    lam = found.lam.toarray()[:, 0]
    assert (y * lam >= 0).all()
    assert np.abs(lam).max() <= C
    np.testing.assert_allclose(found.weight[0], lam @ X, rtol=1e-9, atol=1e-12)
    model = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-9, max_iter=5_000_000, random_state=0)
    w = model.fit(X, y).coef_[0]
    value = 0.5 * w @ w + C * np.maximum(1 - y * (X @ w), 0).sum()
    assert found.dual <= value * (1 + 1e-9)
    assert found.primal <= value * (1 + 2e-6)


def test_a_bias_a_warm_start_and_the_choice_of_C_go_with_it() -> None:
    X, y = clouds(200, 3, 1.0)
    first = solve(X, y, problem=Hinge, C=0.1, tol=1e-6)
    again = solve(X, y, problem=Hinge, C=0.2, tol=1e-6, warm_start=first)
    plain = solve(np.hstack([X, np.ones((200, 1))]), y, problem=Hinge, C=0.2, bias=False, tol=1e-6)
    assert again.primal == pytest.approx(plain.primal, rel=2e-6)
    chosen = choose_C(X, y, problem=Hinge)
    assert max(point.agreement for point in chosen.path) > 0.8


class Opposite:
    """Makes the problem of the opposite signs."""

    def make(self, features: Any, targets: Any, n_outputs: int | None, C: float, bias: float) -> Hinge:
        return Hinge.make(features, -targets, n_outputs, C, bias)


def test_an_object_may_make_the_problem() -> None:
    X, y = clouds(60, 3, 1.0)
    plain, opposite = (solve(X, y, problem=problem, C=0.1, bias=False) for problem in (Hinge, Opposite()))
    np.testing.assert_allclose(opposite.weight, -plain.weight, atol=1e-3)
