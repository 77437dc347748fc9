"""Influence functions against retraining, autograd and dense linear algebra in float64."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from torch import Tensor, nn
from torch.nn import functional

import whence
from tests.helpers.lazy import Samples
from tests.helpers.nets import Network
from whence.errors import InvalidInputError, ModelError, StoreError
from whence.features import extract
from whence.features.training import Training
from whence.gradients.curvature import FullCurvature, LastCurvature, residuals
from whence.gradients.layers import AllLayers
from whence.methods import EKFAC, Arnoldi, Influence, LiSSA
from whence.tasks import Classes

K, D, N, B = 3, 5, 120, 9
DAMPING = 0.02
QUIET: dict[str, Any] = {"show_progress": False}


def make_data(n: int = N, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % K
    x = torch.eye(K, D, dtype=torch.float64)[y] + torch.randn(n, D, generator=g, dtype=torch.float64)
    return x.float().double(), y  # values that float32 holds


def with_one(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_ones(len(x), 1)], 1)


def loss_of(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Loss of each sample for the flat weights w, class after class, the bias last."""
    return functional.cross_entropy(with_one(x) @ w.reshape(K, -1).T, y, reduction="none")


def optimum(x: Tensor, y: Tensor, weights: Tensor | None = None, start: Tensor | None = None) -> Tensor:
    """Minimise Σ weight_i loss_i + ½ DAMPING ‖w‖² by Newton's method on autograd's derivatives."""
    weights = torch.full((len(x),), 1 / len(x), dtype=x.dtype) if weights is None else weights
    w = torch.zeros(K * (D + 1), dtype=x.dtype) if start is None else start.clone()

    def value(w: Tensor) -> Tensor:
        return weights @ loss_of(w, x, y) + DAMPING / 2 * w @ w

    for _ in range(30):
        w.requires_grad_(True)
        (gradient,) = torch.autograd.grad(value(w), w)
        w = w.detach()
        if gradient.norm() < 1e-13:
            break
        w = w - torch.linalg.solve(torch.autograd.functional.hessian(value, w), gradient)
    assert gradient.norm() < 1e-12
    return w


def model_of(w: Tensor) -> nn.Module:
    """The classifier whose features are its inputs."""
    model = nn.Sequential(nn.Identity(), nn.Linear(D, K))
    with torch.no_grad():
        model[1].weight.copy_(w.reshape(K, D + 1)[:, :D])
        model[1].bias.copy_(w.reshape(K, D + 1)[:, D])
    return model


@functools.cache
def problem() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    x, y = make_data()
    tests, classes = make_data(B, seed=1)
    return x, y, optimum(x, y), tests, classes


def layer_of(w: Tensor, x: Tensor, y: Tensor) -> LastCurvature:
    rows = with_one(x)
    return LastCurvature(rows, residuals(rows @ w.reshape(K, -1).T, y), y)


# The last layer


def test_curvature_of_the_last_layer_is_the_hessian() -> None:
    x, y, w, _, _ = problem()
    layer = layer_of(w, x, y)
    H = torch.autograd.functional.hessian(lambda w: loss_of(w, x, y).mean(), w)
    torch.testing.assert_close(layer.matrix(), H, rtol=1e-12, atol=1e-14)
    V = torch.randn(4, len(w), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(layer.product(V), V @ H, rtol=1e-10, atol=1e-13)
    rows = np.array([3, 50, 3])
    some = torch.as_tensor(rows)
    H = torch.autograd.functional.hessian(lambda w: loss_of(w, x[some], y[some]).mean(), w)
    torch.testing.assert_close(layer.product(V, rows), V @ H, rtol=1e-10, atol=1e-13)


def test_gradients_of_the_last_layer() -> None:
    x, y, w, _, _ = problem()
    J = torch.autograd.functional.jacobian(lambda w: loss_of(w, x, y), w)
    layer = layer_of(w, x, y)
    torch.testing.assert_close(torch.cat(list(layer.train())), J, rtol=1e-10, atol=1e-13)
    V = torch.randn(2, len(w), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(layer.scores(V), V @ J.T, rtol=1e-10, atol=1e-13)


def test_residuals_keep_their_digits() -> None:
    logits = torch.tensor([[60.0, 0.0, 0.0]], dtype=torch.float64)
    found = residuals(logits, torch.tensor([0]))
    np.testing.assert_allclose(found, np.exp(-60) * np.array([[-2.0, 1.0, 1.0]]), rtol=1e-14)


# Exact influence


def test_scores_are_the_derivative_of_retraining_by_a_samples_weight() -> None:
    """To many digits: the weight of a sample is moved by ±ε and the layer trained to its optimum again."""
    x, y, w, tests, classes = problem()
    layer = layer_of(w, x, y)
    H = layer.matrix() + DAMPING * torch.eye(len(w), dtype=torch.float64)
    gradients = torch.autograd.functional.jacobian(lambda w: loss_of(w, tests, classes), w)
    scores = layer.scores(torch.linalg.solve(H, gradients.T).T) / N
    explainer = Influence(DAMPING, **QUIET).fit(model_of(w), (x.float(), y))
    found = explainer.attribute(tests.float(), classes)
    h = 1e-4 / N
    for i in (0, 7, 55):
        losses = []
        for sign in (1, -1):
            weights = torch.full((N,), 1 / N, dtype=torch.float64)
            weights[i] += sign * h
            losses.append(loss_of(optimum(x, y, weights, w), tests, classes))
        expected = -(losses[0] - losses[1]) / (2 * h) / N
        torch.testing.assert_close(scores[:, i], expected, rtol=1e-6, atol=1e-10)
        torch.testing.assert_close(found[:, i].double(), expected, rtol=1e-4, atol=1e-7)


def test_a_layer_without_bias_has_none() -> None:
    x, y, _, tests, classes = problem()
    model = nn.Sequential(nn.Identity(), nn.Linear(D, K, bias=False))
    explainer = Influence(DAMPING, **QUIET).fit(model, (x.float(), y))
    W = model[1].weight.detach().double().flatten()

    def losses(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(x @ w.reshape(K, D).T, y, reduction="none")

    train = torch.autograd.functional.jacobian(lambda w: losses(w, x, y), W)
    test = torch.autograd.functional.jacobian(lambda w: losses(w, tests, classes), W)
    H = torch.autograd.functional.hessian(lambda w: losses(w, x, y).mean(), W)
    expected = test @ torch.linalg.solve(H + DAMPING * torch.eye(len(W)), train.T) / N
    found = explainer.attribute(tests.float(), classes).double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)


# LiSSA and Arnoldi on the last layer


@functools.cache
def exact() -> tuple[nn.Module, Tensor, Tensor, Tensor, Tensor]:
    x, y, w, tests, _ = problem()
    model = model_of(w)
    scores = Influence(DAMPING, **QUIET).fit(model, (x.float(), y)).attribute(tests.float(), 1)
    return model, x.float(), y, tests.float(), scores


def test_lissa_converges_to_the_exact_scores() -> None:
    model, x, y, tests, expected = exact()
    explainer = LiSSA(damping=DAMPING, depth=1000, curvature_batch=N, **QUIET).fit(model, (x, y))
    found = explainer.attribute(tests, 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4 * expected.abs().max().item())
    assert explainer.residual_ < 1e-3


def test_lissa_by_batches_comes_near() -> None:
    model, x, y, tests, expected = exact()
    explainer = LiSSA(damping=DAMPING, curvature_batch=16, **QUIET).fit(model, (x, y))
    found = explainer.attribute(tests, 1)
    assert pearsonr(found.flatten(), expected.flatten())[0] > 0.98
    assert np.mean([spearmanr(a, b)[0] for a, b in zip(found, expected, strict=True)]) > 0.95
    # Its residual is what the dense Hessian says of its solution, which the scores show by their errors.
    assert 1e-4 < explainer.residual_ < 0.5
    other = LiSSA(damping=DAMPING, curvature_batch=16, seed=1, **QUIET).fit(model, (x, y))
    assert not torch.equal(other.attribute(tests, 1), found)


def test_lissa_divides_by_more_than_the_largest_eigenvalue() -> None:
    model, x, y, _, _ = exact()
    explainer = LiSSA(damping=DAMPING, curvature_batch=N, **QUIET).fit(model, (x, y))
    _, _, w, _, _ = problem()
    H = torch.autograd.functional.hessian(lambda w: loss_of(w, x.double(), y).mean(), w)
    top = torch.linalg.eigvalsh(H)[-1].item()
    assert explainer.scale_ == pytest.approx(top + DAMPING, rel=0.02)


def test_a_series_that_grows_is_refused() -> None:
    model, x, y, tests, _ = exact()
    explainer = LiSSA(damping=DAMPING, depth=2000, curvature_batch=4, **QUIET).fit(model, (x, y))
    explainer.fitted_.scorer.scale /= 100
    with pytest.raises(ModelError, match=r"diverged with 'curvature_batch' = 4.*larger"):
        explainer.attribute(tests, 1)


def test_arnoldi_of_the_whole_space_is_exact() -> None:
    model, x, y, tests, expected = exact()
    explainer = Arnoldi(damping=DAMPING, **QUIET).fit(model, (x, y))
    assert len(explainer.eigenvalues_) == (K - 1) * (D + 1)  # a shift of all classes has no curvature
    found = explainer.attribute(tests, 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


def test_arnoldi_keeps_the_largest_eigenpairs() -> None:
    model, x, y, tests, _ = exact()
    _, _, w, _, _ = problem()
    kept = 5
    explainer = Arnoldi(damping=DAMPING, projections=kept, **QUIET).fit(model, (x, y))
    values, vectors = torch.linalg.eigh(
        torch.autograd.functional.hessian(lambda w: loss_of(w, x.double(), y).mean(), w)
    )
    values, vectors = values[-kept:], vectors[:, -kept:]
    torch.testing.assert_close(explainer.eigenvalues_, values.flip(0), rtol=1e-6, atol=0)
    train = torch.autograd.functional.jacobian(lambda w: loss_of(w, x.double(), y), w) @ vectors
    ones = torch.ones(B, dtype=torch.int64)
    test = torch.autograd.functional.jacobian(lambda w: loss_of(w, tests.double(), ones), w) @ vectors
    expected = test / (values + DAMPING) @ train.T / N
    found = explainer.attribute(tests, 1).double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())


def test_arnoldi_on_a_part_of_the_samples() -> None:
    model, x, y, tests, expected = exact()
    explainer = Arnoldi(damping=DAMPING, n_samples=60, **QUIET).fit(model, (x, y))
    assert pearsonr(explainer.attribute(tests, 1).flatten(), expected.flatten())[0] > 0.9


# All parameters


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(18, 4), nn.Tanh(),
        nn.Linear(4, K),
    )  # fmt: skip


@functools.cache
def images() -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    model = network()
    g = torch.Generator().manual_seed(3)
    y = torch.arange(40) % K
    x = torch.randn(K, 1, 6, 6, generator=g)[y] + torch.randn(40, 1, 6, 6, generator=g)
    return model, x, y, x[:6] + 0.5 * torch.randn(6, 1, 6, 6, generator=g)


def gradients_by_a_loop(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    rows = []
    for sample, label in zip(x, y, strict=True):
        loss = functional.cross_entropy(model(sample[None]), label[None])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]))
    return torch.stack(rows).detach()


def gauss_newton(model: nn.Module, x: Tensor) -> Tensor:
    """(1/N) Σ J ᵀ S J by a loop over samples and logits."""
    parameters = list(model.parameters())
    G: Tensor | float = 0.0
    for sample in x:
        logits = model(sample[None])[0]
        J = torch.stack(
            [
                torch.cat([g.flatten() for g in torch.autograd.grad(z, parameters, retain_graph=True)])
                for z in logits
            ]
        )
        p = logits.softmax(0).detach()
        G = G + J.T @ (p.diag() - torch.outer(p, p)) @ J
    assert isinstance(G, Tensor)
    return G / len(x)


@pytest.mark.parametrize("arrays", [True, False])
def test_gauss_newton_products_of_all_parameters(arrays: bool) -> None:
    model, x, y, _ = images()
    data = (x, y) if arrays else Samples(x, y)
    training = Training(extract(model, data, batch_size=16, **QUIET), Classes(K), 16)
    curvature = FullCurvature(training.classifier, training.batches)
    V = torch.randn(3, curvature.n_parameters, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(curvature.product(V), V @ gauss_newton(model, x), rtol=1e-4, atol=1e-6)
    rows = np.array([4, 1, 39])
    torch.testing.assert_close(training.batches.take(rows), x[rows])
    torch.testing.assert_close(
        curvature.product(V, rows), V @ gauss_newton(model, x[rows]), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("method", ["arnoldi", "lissa"])
def test_all_parameters_against_dense_algebra(method: str) -> None:
    model, x, y, tests = images()
    damping = 0.3
    if method == "arnoldi":
        explainer: Any = Arnoldi("all", damping, dimension=200, projections=200, **QUIET)
    else:
        explainer = LiSSA("all", damping, depth=60, curvature_batch=40, **QUIET)
    explainer.fit(model, (x, y))
    found = explainer.attribute(tests, 2)
    train = gradients_by_a_loop(model, x, y).double()
    test = gradients_by_a_loop(model, tests, torch.full((len(tests),), 2)).double()
    G = gauss_newton(model, x).double()
    G += damping * torch.eye(len(G), dtype=torch.float64)
    expected = test @ torch.linalg.solve(G, train.T) / len(x)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-3 * expected.abs().max().item())
    own = (train * torch.linalg.solve(G, train.T).T).sum(1) / len(x)
    torch.testing.assert_close(
        explainer.self_influence().double(), own, rtol=0, atol=2e-3 * own.abs().max().item()
    )


def test_arnoldi_of_all_parameters_needs_no_training_set_after_fitting(tmp_path: Path) -> None:
    model, x, y, tests = images()
    explainer = Arnoldi("all", dimension=20, projections=10, **QUIET).fit(model, (x, y))
    explainer.save(tmp_path / "x.whence")
    back = whence.load(tmp_path / "x.whence", model=model)
    assert torch.equal(back.attribute(tests), explainer.attribute(tests))
    with pytest.raises(StoreError, match="needs its model"):
        whence.load(tmp_path / "x.whence")


# EK-FAC


def test_ekfac_is_exact_where_the_curvature_is_a_kronecker_product() -> None:
    """With a head of zeros all classes are equally likely everywhere, so that H = S ⊗ E[f fᵀ]."""
    x, y = make_data()
    tests, classes = make_data(B, seed=1)
    model = model_of(torch.zeros(K * (D + 1)))
    expected = Influence(DAMPING, **QUIET).fit(model, (x.float(), y)).attribute(tests.float(), classes)
    for params in ("last", "all"):
        explainer = EKFAC(params, DAMPING, labels="exact", **QUIET).fit(model, (x.float(), y))
        found = explainer.attribute(tests.float(), classes)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())


def ekfac_by_loops(
    model: nn.Module, x: Tensor, y: Tensor, tests: Tensor, classes: Tensor, damping: float | None
) -> Tensor:
    """EK-FAC materialised: factors from autograd's gradients, by loops over samples, classes and layers.

    The factor of the outputs is that of Σ_t d dᵀ and the inputs' that of Σ_t a aᵀ, here read off the pieces
    that a layer's gradient is made of with ``unfold``.
    """
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]

    def pieces(sample: Tensor, weight_of_logits: Any) -> list[tuple[Tensor, Tensor, Tensor]]:
        """For each layer (inputs (T, i), derivatives (T, o), gradient (o, i)) in float64."""
        seen: list[tuple[Tensor, Tensor]] = []
        handles = [m.register_forward_hook(lambda _, a, out: seen.append((a[0], out))) for m in layers]
        logits = model(sample[None])
        for handle in handles:
            handle.remove()
        scalar = weight_of_logits(logits)
        derivatives = torch.autograd.grad(scalar, [out for _, out in seen], retain_graph=True)
        found = []
        for layer, (a, _), d in zip(layers, seen, derivatives, strict=True):
            parameters = [layer.weight, layer.bias]
            W, b = torch.autograd.grad(scalar, parameters, retain_graph=True)
            gradient = torch.cat([W.flatten(1), b[:, None]], 1)
            if isinstance(layer, nn.Conv2d):
                a = functional.unfold(a, layer.kernel_size, padding=layer.padding, stride=layer.stride)[0].T
                d = d[0].flatten(1).T
            found.append(tuple(t.detach().double() for t in (with_one(a), d, gradient)))
        return found

    inner = [0.0] * len(layers)
    out = [0.0] * len(layers)
    passes = []
    for sample in x:
        p = model(sample[None])[0].softmax(0).detach()
        for k in range(K):
            label = torch.tensor([k])
            found = pieces(sample, lambda z, label=label: functional.cross_entropy(z, label))
            passes.append((p[k].double(), found))
            for j, (a, d, _) in enumerate(found):
                inner[j] = inner[j] + p[k].double() * a.T @ a
                out[j] = out[j] + p[k].double() * d.T @ d
    bases = [(torch.linalg.eigh(o)[1], torch.linalg.eigh(i)[1]) for o, i in zip(out, inner, strict=True)]

    def rotated(sample: Tensor, label: Tensor) -> list[Tensor]:
        found = pieces(sample, lambda z: functional.cross_entropy(z, label[None]))
        return [Qo.T @ g @ Qi for (Qo, Qi), (_, _, g) in zip(bases, found, strict=True)]

    values = [
        sum(p * (Qo.T @ found[j][2] @ Qi) ** 2 for p, found in passes) / len(x)
        for j, (Qo, Qi) in enumerate(bases)
    ]
    train = [rotated(s, c) for s, c in zip(x, y, strict=True)]
    test = [rotated(s, c) for s, c in zip(tests, classes, strict=True)]
    scores = torch.zeros(len(tests), len(x), dtype=torch.float64)
    for j, L in enumerate(values):
        d = 0.1 * L.mean() if damping is None else damping
        for b in range(len(tests)):
            for i in range(len(x)):
                scores[b, i] += (test[b][j] * train[i][j] / (L + d)).sum() / len(x)
    return scores


@pytest.mark.parametrize("damping", [None, 0.05])
def test_ekfac_of_all_layers_against_loops(damping: float | None) -> None:
    model, x, y, tests = images()
    classes = torch.arange(len(tests)) % K
    expected = ekfac_by_loops(model, x, y, tests, classes, damping)
    explainer = EKFAC(damping=damping, labels="exact", batch_size=16, **QUIET).fit(model, (x, y))
    assert explainer.layers_ == ("0", "3", "5")
    assert explainer.left_out_ == ()
    found = explainer.attribute(tests, classes).double()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item())


def test_ekfac_is_the_same_however_few_gradients_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y, tests = images()
    explainer = EKFAC(labels="exact", batch_size=16, **QUIET).fit(model, (x, y))
    whole = explainer.attribute(tests, 0), explainer.self_influence()
    size = sum(p.numel() for p in model.parameters())
    for rows in (0, 3):
        monkeypatch.setattr("whence.methods.ekfac._NUMBERS", rows * size)
        again = EKFAC(labels="exact", batch_size=16, **QUIET).fit(model, (x, y))
        torch.testing.assert_close((again.attribute(tests, 0), again.self_influence()), whole)


def test_ekfac_of_the_last_layer_against_loops() -> None:
    model, x, y, tests = images()
    classes = torch.arange(len(tests)) % K
    explainer = EKFAC("last", labels="exact", **QUIET).fit(model, (x, y))
    features, more = model[:-1](x).detach(), model[:-1](tests).detach()
    head = nn.Sequential(nn.Identity(), model[-1])
    expected = ekfac_by_loops(head, features, y, more, classes, None)
    found = explainer.attribute(tests, classes).double()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item())
    assert explainer.layers_ == ("5",)


def test_ekfac_with_sampled_labels_comes_near() -> None:
    x, y = make_data(600)
    model = model_of(optimum(x, y))
    tests = make_data(B, seed=1)[0].float()
    found = [
        EKFAC("last", DAMPING, labels=kind, **QUIET).fit(model, (x.float(), y)).attribute(tests, 1)
        for kind in ("exact", "sampled", "auto")
    ]
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])
    assert pearsonr(found[0].flatten(), found[1].flatten())[0] > 0.99


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"stride": 2, "padding": 1},
        {"dilation": 2},
        {"padding": "same"},
        {"padding": "same", "dilation": 2},
        {"padding": "valid"},
        {"padding": (2, 0)},
        {"padding": 1, "padding_mode": "circular"},
        {"padding": 1, "padding_mode": "reflect"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_convolutions_have_the_gradients_of_autograd(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, (2, 3), **options)
    model = nn.Sequential(layer, nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, K))
    x, y = torch.randn(6, 2, 7, 6), torch.arange(6) % K
    training = Training(extract(model, (x, y), batch_size=4, **QUIET), Classes(K), 4)
    layers = AllLayers(training.classifier, training.batches)
    batches = layers.train(lambda z, rows: [residuals(z, y[rows]).to(z)])
    found = [torch.einsum("nto,nti->noi", r.derivatives, r.inputs) for ((r, _),) in batches]
    names = ["weight"] if layer.bias is None else ["weight", "bias"]
    for sample, label, ours in zip(x, y, torch.cat(found), strict=True):
        loss = functional.cross_entropy(model(sample[None]), label[None])
        parts = torch.autograd.grad(loss, [getattr(layer, name) for name in names])
        torch.testing.assert_close(ours, torch.cat([g.reshape(3, -1) for g in parts], 1))


def test_ekfac_on_tokens_sums_over_places() -> None:
    torch.manual_seed(0)
    model = Network(
        lambda self, x: self.head(self.norm(torch.tanh(self.mix(x))).mean(1)),
        mix=nn.Linear(4, 5), norm=nn.LayerNorm(5), head=nn.Linear(5, K),
    )  # fmt: skip
    x, y = torch.randn(30, 6, 4), torch.arange(30) % K
    explainer = EKFAC(damping=0.1, **QUIET).fit(model, (x, y))
    assert explainer.layers_ == ("mix", "head")
    assert explainer.left_out_ == ("norm.weight", "norm.bias")
    assert explainer.attribute(x[:2]).isfinite().all()


# Bad input


def test_a_head_too_large_for_its_hessian_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.methods.influence._LARGEST", 10)
    model, x, y, _ = images()
    with pytest.raises(InvalidInputError, match=r"at most 10 parameters.*Got 15.*EK-FAC"):
        Influence(**QUIET).fit(model, (x, y))


def test_half_precision_models_have_factors_in_float32() -> None:
    model, x, y, tests = images()
    half = copy.deepcopy(model).to(torch.float16)
    expected = EKFAC(damping=0.1, **QUIET).fit(model, (x, y)).attribute(tests, 1)
    found = EKFAC(damping=0.1, **QUIET).fit(half, (x, y)).attribute(tests, 1)
    assert pearsonr(found.flatten(), expected.flatten())[0] > 0.999


def test_layers_that_ekfac_cannot_take_are_named() -> None:
    torch.manual_seed(0)
    y = torch.arange(12) % K
    body, head = nn.Linear(4, 4), nn.Linear(4, K)
    twice = Network(lambda self, x: self.head(self.body(torch.tanh(self.body(x)))), body=body, head=head)
    conv, last = nn.Conv2d(2, 2, 3, groups=2), nn.Linear(8, K).requires_grad_(False)
    grouped = Network(lambda self, x: self.head(self.conv(x).flatten(1)), conv=conv, head=last)
    with pytest.raises(ModelError, match=r"'body' runs 2 times.*requires_grad_\(False\)"):
        EKFAC(**QUIET).fit(twice, (torch.randn(12, 4), y))
    with pytest.raises(ModelError, match=r"without groups.*conv\.weight, conv\.bias"):
        EKFAC(**QUIET).fit(grouped, (torch.randn(12, 2, 4, 4), y))


def test_a_layer_without_curvature_needs_a_damping() -> None:
    model = network()
    with torch.no_grad():
        model[5].weight.zero_()  # nothing comes back through it
    _, x, y, tests = images()
    with pytest.raises(ModelError, match=r"'damping' must be a number.*'0' has"):
        EKFAC(**QUIET).fit(model, (x, y))
    assert EKFAC(damping=0.1, **QUIET).fit(model, (x, y)).attribute(tests).isfinite().all()


def test_what_needs_the_training_set_is_not_saved(tmp_path: Path) -> None:
    model, x, y, _ = images()
    for explainer in (EKFAC(**QUIET), LiSSA("all", **QUIET)):
        with pytest.raises(StoreError, match=r"reads the training set.*Fit it again"):
            explainer.fit(model, (x, y)).save(tmp_path / "x")
