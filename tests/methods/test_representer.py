"""Representer Points against scipy's solution, autograd and DualDA, in float64."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn import functional

import whence
from whence.errors import ConvergenceWarning
from whence.methods import HingeRP, Representer
from whence.methods.hingerp import hinge_coefficients
from whence.svm import solve
from whence.svm.softmax import fit_softmax

K, D, N, B = 4, 6, 150, 8
QUIET: dict[str, Any] = {"show_progress": False}


@functools.cache
def problem() -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """A model whose features are its inputs, a training set and tests."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(N) % K
    x = 1.5 * torch.eye(K, D)[y] + torch.randn(N, D, generator=g)
    torch.manual_seed(0)
    return nn.Sequential(nn.Identity(), nn.Linear(D, K)), x, y, torch.randn(B, D, generator=g)


def with_one(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_ones(len(x), 1)], 1)


def objective(w: np.ndarray, x: Tensor, y: Tensor, l2: float) -> tuple[float, np.ndarray]:
    """Value and autograd's gradient of the mean cross-entropy plus l2‖W‖²."""
    W = torch.tensor(w, requires_grad=True)
    value = functional.cross_entropy(x @ W.reshape(K, -1).T, y) + l2 * W @ W
    (gradient,) = torch.autograd.grad(value, W)
    return value.item(), gradient.numpy()


@pytest.mark.parametrize("l2", [1.0, 3e-3, 1e-5])
def test_the_solver_agrees_with_scipy(l2: float) -> None:
    _, x, y, _ = problem()
    rows = with_one(x.double())
    found = fit_softmax(rows.numpy(), y.numpy(), K, l2, 1e-12)
    value, gradient = objective(found.weight.ravel(), rows, y, l2)
    assert np.linalg.norm(gradient) < 1e-11
    start = np.zeros(found.weight.size)
    theirs = minimize(
        objective, start, (rows, y, l2), "BFGS", jac=True, options={"gtol": 1e-9, "maxiter": 5000}
    )
    assert value <= theirs.fun + 1e-14
    np.testing.assert_allclose(found.weight.ravel(), theirs.x, atol=1e-3 * np.abs(theirs.x).max())


@pytest.mark.parametrize("bias", [True, False])
def test_scores_are_the_closed_form(bias: bool) -> None:
    """α_ic = −∂ℓ_i/∂logit_c / (2 l2 N) by autograd at the weights, and τ = α_ic f_i·f(x)."""
    model, x, y, tests = problem()
    l2 = 0.01
    explainer = Representer(l2, bias=bias, **QUIET).fit(model, (x, y))
    rows, others = (with_one(t.double()) if bias else t.double() for t in (x, tests))
    W = torch.as_tensor(explainer.coef_)
    logits = (rows @ W.T).requires_grad_(True)
    (slope,) = torch.autograd.grad(functional.cross_entropy(logits, y, reduction="sum"), logits)
    alpha = -slope / (2 * l2 * N)
    torch.testing.assert_close(explainer.alpha_.double(), alpha, rtol=1e-5, atol=1e-8)
    classes = torch.arange(B) % K
    expected = (others @ rows.T) * alpha[:, classes].T
    found = explainer.attribute(tests, classes)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)
    own = alpha[torch.arange(N), y] * rows.square().sum(1)
    torch.testing.assert_close(explainer.self_influence().double(), own, rtol=1e-4, atol=1e-6)
    assert explainer.self_influence().min() >= 0
    # The theorem: the layer is the sum of its training samples, and so are its logits.
    assert explainer.residual_ < 1e-10
    torch.testing.assert_close(alpha.T @ rows, W, rtol=1e-8, atol=1e-10)
    logit = (others * W[classes]).sum(1)
    torch.testing.assert_close(
        found.sum(1).double(), logit, rtol=0, atol=1e-5 * found.abs().sum(1).max().item()
    )


@pytest.mark.parametrize("bias", [True, False])
def test_points_of_the_models_own_outputs(bias: bool) -> None:
    """At the minimum of the cross-entropy to the model's softmax, by autograd; labels have no part in it."""
    model, x, y, tests = problem()
    with torch.no_grad():
        q = model(x).double().softmax(1)
    l2 = 0.01
    explainer = Representer(l2, bias=bias, targets="outputs", **QUIET).fit(model, (x, y))
    rows, others = (with_one(t.double()) if bias else t.double() for t in (x, tests))
    W = torch.tensor(explainer.coef_, requires_grad=True)
    loss = functional.cross_entropy(rows @ W.T, q) + l2 * (W * W).sum()
    (slope,) = torch.autograd.grad(loss, W)
    assert slope.norm() < 1e-8  # the model's own logits are float32
    alpha = (q - (rows @ W.T).softmax(1)).detach() / (2 * l2 * N)
    torch.testing.assert_close(explainer.alpha_.double(), alpha, rtol=1e-4, atol=1e-7)
    classes = torch.arange(B) % K
    expected = (others @ rows.T) * alpha[:, classes].T
    torch.testing.assert_close(explainer.attribute(tests, classes).double(), expected, rtol=1e-3, atol=1e-6)
    blind = Representer(l2, bias=bias, targets="outputs", **QUIET).fit(model, (x, (y + 1) % K))
    assert torch.equal(blind.attribute(tests, classes), explainer.attribute(tests, classes))


def test_residual_is_what_the_points_leave_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y, _ = problem()
    monkeypatch.setattr("whence.svm.softmax._STEPS", 2)
    with pytest.warns(
        ConvergenceWarning, match=r"residual of .*more than 'tol' = 1e-10.*larger 'l2' than 1e-05"
    ):
        explainer = Representer(1e-5, **QUIET).fit(model, (x, y))
    rows, W = with_one(x.double()), torch.as_tensor(explainer.coef_)
    expected = (W - explainer.alpha_.double().T @ rows).norm() / W.norm()
    assert explainer.residual_ == pytest.approx(expected.item(), rel=1e-4)


# With the hinge loss


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("C", [1e-4, 1e-2, 1.0])
def test_hinge_points_are_dualda(C: float, bias: bool) -> None:
    """The weights alone give DualDA's coefficients: two ways to the same scores."""
    model, x, y, tests = problem()
    points = HingeRP(C, bias=bias, **QUIET).fit(model, (x, y))
    dual = whence.DualDA(C, metric="raw", bias=bias, tol=1e-9, **QUIET).fit(model, (x, y))
    assert points.residual_ < 1e-8
    np.testing.assert_allclose(points.alpha_, dual.lam_.toarray(), rtol=0, atol=1e-3 * C)
    for target in (0, 3):
        expected = dual.attribute(tests, target)
        found = points.attribute(tests, target)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 * expected.abs().max().item())
    own = dual.self_influence()
    torch.testing.assert_close(points.self_influence(), own, rtol=0, atol=1e-3 * own.max().item())


def test_off_the_margin_the_coefficients_are_the_slope_of_the_loss() -> None:
    _, x, y, _ = problem()
    X, labels, C = x.double().numpy(), y.numpy(), 0.01
    found = solve(X, labels, C=C, bias=False, tol=1e-10)
    alpha = hinge_coefficients(found.weight, X, labels, C, off=1e-6)
    logits = torch.tensor(X @ found.weight.T, requires_grad=True)
    rows = torch.arange(N)
    other = 1.0 - functional.one_hot(y, K).double()
    losses = (other + logits - logits[rows, y][:, None]).max(1).values
    (slope,) = torch.autograd.grad(C * losses.sum(), logits)
    two = (other + logits).detach().topk(2).values
    clear = (two[:, 0] - two[:, 1]) > 1e-3
    assert 10 < clear.sum() < N
    np.testing.assert_allclose(alpha[clear], -slope[clear], atol=1e-15)
    np.testing.assert_allclose(alpha.sum(1), 0, atol=1e-12)
