"""The solver speaks to the interface alone: another problem, written here, is solved to a certified gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array
from sklearn.svm import LinearSVC

from whence.core.arrays import Doubles, Floats, Ints
from whence.svm import choose_C, solve
from whence.svm.inputs import check_bias, check_features, find_copies, squared_norms
from whence.svm.passes import Rows
from whence.svm.problem import Listed, Losses, Problem, Selected


@dataclass(frozen=True)
class Hinge(Problem):
    """One logit and signs y = ±1: min_w ½‖w‖² + C Σ_i max(0, 1 − y_i w·f_i).

    The dual is max Σ_i y_i λ_i − ½‖Σ_i λ_i f_i‖² with y_i λ_i in [0, C]; α = −λ, and g = w·f − y.
    """

    signs: Doubles

    @classmethod
    def make(
        cls, features: npt.ArrayLike, targets: npt.ArrayLike, n_outputs: int | None, C: float, bias: float
    ) -> Self:
        X, constant = check_features(features), check_bias(bias)
        return cls(X, 1, C, constant, squared_norms(X) + constant**2, np.asarray(targets, np.float64))

    @property
    def box(self) -> tuple[Doubles, Doubles]:
        """The least and the largest α (N, 1)."""
        ends = np.stack([0 * self.signs, -self.C * self.signs])
        return ends.min(0)[:, None], ends.max(0)[:, None]

    def merged(self) -> tuple[Self, Ints]:
        return self, np.arange(1)

    def copies(self) -> list[Ints]:
        return find_copies(self.features, self.squared_norms, self.strata)

    @property
    def strata(self) -> Ints:
        return (self.signs > 0).astype(np.int64)

    def compare(self, scores: Doubles, theirs: Doubles | None, rows: Ints) -> tuple[float, float | None]:
        wanted = self.signs[rows] if theirs is None else theirs[:, 0]
        return float((scores[:, 0] * wanted > 0).mean()), None if theirs is None else 1.0

    def inner(self, A: Floats, B: Floats) -> float:
        return float(np.vdot(A, B))

    def begin(self, lam: csr_array, alpha: Doubles) -> float:
        signs = self.signs[:, None]
        alpha[:] = -signs * np.maximum(signs * lam.toarray(), 0)
        return float(np.abs(alpha).max())

    def complete(self, alpha: Doubles) -> None:
        np.clip(alpha, *self.box, out=alpha)

    def linear(self, alpha: Doubles) -> tuple[float, float]:
        return -float(self.signs @ alpha[:, 0]), float(np.abs(alpha).max())

    def linear_of(self, lam: csr_array) -> float:
        return float(np.abs(lam.data).sum())

    def sparse(self, alpha: Doubles) -> csr_array:
        return csr_array(-np.clip(alpha, *self.box))

    def add_weight(self, alpha: Doubles, rows: slice, out: Doubles) -> None:
        part = Rows(self, np.arange(rows.start, rows.stop), lambda f, items: [f(item) for item in items])
        out += part.combine(-alpha[rows]) if len(part.rows) else 0.0

    def losses(self, scores: Floats, rows: slice, stored: Floats) -> Losses:
        margins = self.signs[rows] * scores[:, 0]
        change = float(np.abs(scores - stored[rows]).sum())
        stored[rows] = scores
        loss, slope = self.scaled_losses(scores, slice(None), 1.0, self.signs[rows])
        return Losses(loss, slope, change, float(margins.min()))

    def scaled_losses(
        self, stored: Floats, rows: slice, scale: float, signs: Doubles | None = None
    ) -> tuple[float, float]:
        margins = (self.signs[rows] if signs is None else signs) * stored[rows, 0]
        wrong = scale * margins < 1
        return float((1 - scale * margins[wrong]).sum()), -float(margins[wrong].sum())

    def free(self, alpha: Doubles) -> npt.NDArray[np.bool_]:
        low, high = self.box
        return ((alpha > low) & (alpha < high))[:, 0]

    def select(self, stored: Floats, alpha: Doubles, slack: float, listed: Listed) -> Selected:
        chosen = np.flatnonzero(self.distances(stored, alpha) < slack)
        n, free = len(chosen), int(self.free(alpha).sum())
        listed.rows[:n], listed.ptr[: n + 1], listed.outputs[:n] = chosen, np.arange(n + 1), 0
        return Selected(n, n, free, free)

    def descend(
        self, listed: Listed, n: int, W: Floats, alpha: Doubles, epochs: int, slack: float, rng: Any
    ) -> int:
        low, high = self.box
        for _ in range(min(epochs, 20)):
            for i in listed.rows[:n]:
                f = np.append(self.features[i], [self.bias] if self.bias else [])
                step = (W[0] @ f - self.signs[i]) / max(self.squared_norms[i], 1e-300)
                new = min(max(alpha[i, 0] + step, low[i, 0]), high[i, 0])
                W[0] -= (new - alpha[i, 0]) * f
                alpha[i, 0] = new
        return n * min(epochs, 20)

    def distances(self, stored: Floats, alpha: Doubles) -> Doubles:
        beyond = self.signs * stored[:, 0] - 1.0  # above 0 where λ = 0 is right
        found: Doubles = np.where(alpha[:, 0] == 0, beyond, -beyond)
        return np.where(self.free(alpha), -np.inf, found)

    def corner(self, rows: Ints) -> Doubles:
        return np.zeros((len(rows), 1))

    def gradient(self, scores: Doubles, rows: Ints) -> Doubles:
        found: Doubles = scores - self.signs[rows, None]
        return found

    def rise(self, move: Doubles, rows: Ints) -> float:
        return -float(self.signs[rows] @ move[:, 0])

    def typical(self, alpha: Doubles, rows: Ints) -> float:
        sizes = np.abs(alpha[alpha != 0])
        return float(sizes.mean()) if len(sizes) else self.C

    def project(
        self, centre: Doubles, sigma: float, g: Doubles, t: float, dg: Doubles, rows: Ints, out: Doubles
    ) -> None:
        low, high = self.box
        np.clip(centre + sigma * (g + t * dg), low[rows], high[rows], out=out)

    def inner_rows(self, A: Doubles, B: Doubles) -> float:
        return float(np.vdot(A, B))

    def slackness(self, alpha: Doubles, g: Doubles, rows: Ints) -> float:
        low, high = self.box
        return float((np.maximum(low[rows] * g, high[rows] * g) - alpha * g).sum())

    def repair(self, alpha: Doubles, rows: Ints) -> None:
        pass

    def system(self, rows: Rows) -> System:
        return System(self, rows)

    def step_cost(self, selected: Selected) -> float:
        return float(selected.free * self.shape[1] ** 2 + self.shape[1] ** 3)


class System:
    """(I + σ Σ_i f_i f_iᵀ) x = r over the samples inside their box."""

    def __init__(self, problem: Hinge, rows: Rows) -> None:
        self.problem, self.rows = problem, rows

    def solve(self, a: Doubles, sigma: float, residual: Doubles, accuracy: float) -> Doubles:
        low, high = (end[self.rows.rows] for end in self.problem.box)
        F = self.rows.block(self.rows.rows[((a > low) & (a < high))[:, 0]])
        H = np.eye(F.shape[1]) + sigma * F.T @ F
        return np.linalg.solve(H, residual[0])[None]


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
