"""Methods on gradients against plain loops with autograd in float64, and against their formulas."""

from __future__ import annotations

import copy
import functools
import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

import whence
from tests.helpers.families import FAMILIES
from tests.helpers.nets import mlp, train
from whence.core.projection import Projection
from whence.errors import InvalidInputError, ModelError, StoreError
from whence.features import extract
from whence.features.training import Classifier, Training
from whence.gradients.gradients import Gradients, cross_entropy, margin
from whence.gradients.products import LastLayerGradients
from whence.methods import TRAK, GradCos, GradDot, TracIn
from whence.model.inputs import take
from whence.tasks import Classes

K, N, B = 4, 30, 5


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(12, K)
        self.softmax = False

    def forward(self, x: Tensor) -> Tensor:
        h = functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        z: Tensor = self.fc(self.drop(h.flatten(1)))
        return z.softmax(1) if self.softmax else z


@functools.cache
def trained() -> tuple[Net, Tensor, Tensor, Tensor, list[dict[str, Tensor]]]:
    """A network in float64, its training set, new inputs, and weights in the course of training."""
    torch.manual_seed(0)
    y = torch.arange(N) % K
    patterns = torch.randn(K, 1, 6, 6)
    x, tests = patterns[y] + torch.randn(N, 1, 6, 6), patterns[:B] + torch.randn(B, 1, 6, 6)[:K]
    tests = torch.cat([tests, x[:1]])
    model = Net().double()
    checkpoints = train(model, x.double(), y, 3, 0.1, batch=10, optimizer=torch.optim.SGD, every=1)
    return model.eval(), x.double(), y, tests.double(), checkpoints


def classifier(model: nn.Module, layer: str | None = None) -> Classifier:
    _, x, y, _, _ = trained()
    bank = extract(model, (x, y), layer=layer, batch_size=8, show_progress=False)
    return Training(bank, Classes(len(bank.head.weight)), 8).classifier


def plain_cross_entropy(z: Tensor, c: int) -> Tensor:
    return -z.log_softmax(0)[c]


def plain_margin(z: Tensor, c: int) -> Tensor:
    p = z.softmax(0)[c]
    return (p / (1 - p)).log()


def loop(
    model: nn.Module, x: Tensor, classes: Any, scalar: Callable[[Tensor, int], Tensor], only: str = ""
) -> Tensor:
    """Gradients (B, P) by one backward pass per sample."""
    parameters = [p for name, p in model.named_parameters() if name.startswith(only) and p.requires_grad]
    rows = []
    for row, c in zip(x, classes, strict=True):
        found = torch.autograd.grad(scalar(model(row[None])[0], int(c)), parameters)
        rows.append(torch.cat([g.flatten() for g in found]))
    return torch.stack(rows)


def at(state: dict[str, Tensor]) -> Net:
    model = Net().double().eval()
    model.load_state_dict(state)
    return model


# Gradients


@pytest.mark.parametrize(("scalar", "plain"), [(cross_entropy, plain_cross_entropy), (margin, plain_margin)])
@pytest.mark.parametrize("memory", [1, 10_000, 1 << 29])
def test_gradients_are_those_of_a_loop(scalar: Any, plain: Any, memory: int) -> None:
    model, x, y, _, _ = trained()
    gradients = Gradients(classifier(model), scalar, memory)
    parts = list(gradients.with_values(x, y))
    rows, values = (torch.cat(part) for part in zip(*parts, strict=True))
    assert rows.dtype == torch.float64
    assert rows.shape == (N, gradients.n_parameters)
    torch.testing.assert_close(rows, loop(model, x, y, plain), rtol=1e-10, atol=1e-12)
    expected = torch.stack([plain(z, int(c)) for z, c in zip(model(x), y, strict=True)])
    torch.testing.assert_close(values, expected.detach(), rtol=1e-10, atol=1e-12)
    assert len(parts) == {1: N, 10_000: len(parts), 1 << 29: 1}[memory]
    assert gradients.chunk == 1 or memory > 1
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(("scalar", "plain"), [(cross_entropy, plain_cross_entropy), (margin, plain_margin)])
def test_gradients_of_the_last_layer_are_those_of_a_loop(scalar: Any, plain: Any) -> None:
    model, x, y, _, _ = trained()
    for memory in (1, 1 << 29):
        layer = LastLayerGradients(classifier(model), scalar, memory)
        rows = torch.cat([rows for rows, _ in layer.with_values(x, y)])
        expected = loop(model, x, y, plain, "fc.").float()
        # Class after class the features and a 1; autograd gives the weight and then the bias.
        weight, bias = expected[:, : 12 * K].reshape(N, K, 12), expected[:, 12 * K :, None]
        expected = torch.cat([weight, bias], dim=2).flatten(1)
        torch.testing.assert_close(rows, expected, rtol=1e-4, atol=1e-6)


def test_confident_samples_keep_their_digits() -> None:
    """In float32 p_c rounds to 1, and p − e_c to 0, where the loss is below 6e-8."""
    logits = torch.tensor([[30.0, 1.0, 0.0]], requires_grad=True)
    classes = torch.tensor([0])
    value = cross_entropy(logits, classes)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    precise = logits.detach().double().requires_grad_()
    others = precise[0, 1:] - precise[0, 0]
    expected = torch.log1p(others.exp().sum())
    (reference,) = torch.autograd.grad(expected, precise)
    assert functional.cross_entropy(logits, classes) == 0
    torch.testing.assert_close(value[0].double(), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.double(), reference, rtol=1e-5, atol=0)


def test_frozen_parameters_have_no_columns() -> None:
    model, x, y, _, _ = trained()
    model = copy.deepcopy(model)
    model.conv.requires_grad_(False)
    gradients = Gradients(classifier(model))
    assert gradients.names == ("norm.weight", "norm.bias", "fc.weight", "fc.bias")
    rows = torch.cat(list(gradients(x, y)))
    torch.testing.assert_close(rows, loop(model, x, y, plain_cross_entropy), rtol=1e-10, atol=1e-12)
    model.requires_grad_(False)
    with pytest.raises(ModelError, match=r'requires_grad is off.*params="last"'):
        GradDot(show_progress=False).fit(model, (x, y))
    assert GradDot(params="last", show_progress=False).fit(model, (x, y)).attribute(x[:2]).shape == (2, N)


def test_tied_weights_count_once() -> None:
    torch.manual_seed(0)
    model = mlp(3, 3, 3, 2, activation=nn.Tanh).double()
    model[2].weight = model[0].weight
    x, y = torch.randn(6, 3).double(), torch.arange(6) % 2
    e = GradDot(show_progress=False).fit(model, (x, y))
    rows = loop(model, x, y, plain_cross_entropy)
    assert rows.shape[1] == 9 + 3 + 3 + 6 + 2
    torch.testing.assert_close(e.attribute(x, y), rows @ rows.T, rtol=1e-10, atol=1e-12)
    other = {name: tensor * 0.5 for name, tensor in model.state_dict().items()}
    found = TracIn(show_progress=False).fit(model, (x, y), checkpoints=[other]).attribute(x, y)
    model.load_state_dict(other)
    rows = loop(model, x, y, plain_cross_entropy)
    torch.testing.assert_close(found, rows @ rows.T, rtol=1e-10, atol=1e-12)


class Several(nn.Module):
    """Inputs by name, logits next to other outputs, a head on every place of which the model picks one."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, states: Tensor, place: Tensor, double: bool = False) -> Any:
        z = self.fc(torch.tanh(self.body(states)))
        chosen = torch.take_along_dim(z, place[:, None, None], 1)[:, 0]
        return OrderedDict(hidden=states, logits=chosen)


def test_models_with_named_inputs_and_several_outputs() -> None:
    torch.manual_seed(0)
    model = Several().double()
    x = {"states": torch.randn(8, 4, 3).double(), "place": torch.arange(8) % 4}
    y = torch.arange(8) % 2
    e = GradDot(show_progress=False, batch_size=3).fit(model, (x, y))
    rows = []
    for i in range(8):
        z = model(x["states"][i : i + 1], x["place"][i : i + 1])["logits"][0]
        found = torch.autograd.grad(plain_cross_entropy(z, int(y[i])), list(model.parameters()))
        rows.append(torch.cat([g.flatten() for g in found]))
    expected = torch.stack(rows) @ torch.stack(rows).T
    torch.testing.assert_close(e.attribute(x, y), expected, rtol=1e-10, atol=1e-12)
    last = GradDot(params="last", show_progress=False).fit(model, (x, y)).attribute(x, y)
    only = torch.stack(rows)[:, 20:]
    torch.testing.assert_close(last.double(), only @ only.T, rtol=1e-4, atol=1e-6)


def test_a_softmax_after_the_layer_is_no_part_of_the_loss() -> None:
    model, x, y, tests, _ = trained()
    expected = GradDot(show_progress=False).fit(model, (x, y)).attribute(tests, 1)
    model = copy.deepcopy(model)
    model.softmax = True
    e = GradDot(show_progress=False).fit(model, (x, y), layer="fc")
    torch.testing.assert_close(e.attribute(tests, 1), expected)


# Projection


@pytest.mark.parametrize(("k", "P"), [(1, 1), (3, 3), (4, 9), (5, 128), (64, 65)])
def test_the_projection_is_its_definition(k: int, P: int) -> None:
    S = np.zeros((P, k))
    stream = np.random.Philox(key=7)
    places = [int(stream.random_raw()) % k for _ in range(-(-P // k))]
    words = [int(stream.random_raw()) for _ in range(-(-P // 64))]
    for j in range(P):
        byte = (words[j // 64] >> (8 * (j % 64 // 8))) & 255
        sign = (byte >> (7 - j % 8)) & 1
        S[j, (j % k + places[j // k]) % k] = 2 * sign - 1
    project = Projection(k, P, seed=7)
    assert np.array_equal(project(torch.eye(P, dtype=torch.float64)), S)
    rows = torch.randn(6, P)
    whole = project(rows)
    assert torch.equal(torch.cat([project(rows[:1]), project(rows[1:])]), whole)
    np.testing.assert_allclose(whole, rows.double().numpy() @ S, rtol=1e-5, atol=1e-5)


def test_the_projection_keeps_inner_products_in_expectation() -> None:
    rng = np.random.default_rng(0)
    P, k = 200, 20
    x, y = rng.normal(size=(2, P)) * np.arange(1, P + 1) ** -0.5
    both = torch.as_tensor(np.stack([x, y]))
    found = []
    for seed in range(1500):
        a, b = Projection(k, P, seed)(both)
        found.append(float(a @ b))
    bound = ((x @ x) * (y @ y) + (x @ y) ** 2) / k
    assert abs(np.mean(found) - x @ y) < 4 * np.sqrt(bound / len(found))
    assert np.var(found) < 1.1 * bound
    assert np.var(found) > 0.5 * bound  # as good as it says, and no better than chance allows


# Methods against their formulas


def both(scalar: Any, only: str = "", state: dict[str, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Gradients of tests for their target and of the training set, by a loop."""
    model, x, y, tests, _ = trained()
    model = model if state is None else at(state)
    return loop(model, tests, TARGET, scalar, only), loop(model, x, y, scalar, only)


TARGET = torch.tensor([0, 1, 2, 3, 1])
EXACT = {"rtol": 1e-9, "atol": 1e-11}
SINGLE = {"rtol": 1e-4, "atol": 1e-6}  # features of the last layer are kept in float32


@pytest.mark.parametrize("method", [GradDot, GradCos])
@pytest.mark.parametrize(
    "options", [{}, {"projection": None}, {"params": "last"}, {"projection": None, "memory": 9999}]
)
def test_graddot_and_gradcos_are_products_of_gradients(method: Any, options: dict[str, Any]) -> None:
    model, x, y, tests, _ = trained()
    last = options.get("params") == "last"
    T, G = both(plain_cross_entropy, "fc." if last else "")
    e = method(show_progress=False, batch_size=7, **options).fit(model, (x, y))
    if method is GradCos:
        T, G = (rows / rows.norm(dim=1, keepdim=True) for rows in (T, G))
    scores = e.attribute(tests, TARGET)
    torch.testing.assert_close(scores.double(), T @ G.T, **(SINGLE if last else EXACT))
    torch.testing.assert_close(e.self_influence().double(), (G * G).sum(1), **(SINGLE if last else EXACT))


def test_projected_products_are_products_of_projections() -> None:
    model, x, y, tests, _ = trained()
    T, G = both(plain_cross_entropy)
    S = Projection(16, T.shape[1], seed=3)(torch.eye(T.shape[1], dtype=torch.float64))
    dot = GradDot(projection=16, seed=3, show_progress=False).fit(model, (x, y))
    torch.testing.assert_close(dot.attribute(tests, TARGET), T @ S @ (G @ S).T, **EXACT)
    torch.testing.assert_close(dot.self_influence(), (G * G).sum(1), **EXACT)  # of the gradients themselves
    assert dot.cache_bytes_ == 8 * N * (16 + 1)
    cos = GradCos(projection=16, seed=3, show_progress=False).fit(model, (x, y))
    T, G = (rows @ S / (rows @ S).norm(dim=1, keepdim=True) for rows in (T, G))
    torch.testing.assert_close(cos.attribute(tests, TARGET), T @ G.T, **EXACT)
    other = GradDot(projection=16, seed=4, show_progress=False).fit(model, (x, y))
    assert not torch.allclose(other.attribute(tests, TARGET), dot.attribute(tests, TARGET))


@pytest.mark.parametrize("rates", [0.1, [0.3, 0.2, 0.1]])
@pytest.mark.parametrize("options", [{}, {"projection": None}, {"params": "last"}])
def test_tracin_is_the_sum_over_checkpoints(rates: Any, options: dict[str, Any]) -> None:
    model, x, y, tests, checkpoints = trained()
    last = options.get("params") == "last"
    scores, own = torch.zeros(B, N, dtype=torch.float64), torch.zeros(N, dtype=torch.float64)
    for rate, state in zip([rates] * 3 if isinstance(rates, float) else rates, checkpoints, strict=True):
        T, G = both(plain_cross_entropy, "fc." if last else "", state)
        scores += rate * T @ G.T
        own += rate * (G * G).sum(1)
    e = TracIn(show_progress=False, batch_size=7, **options)
    e.fit(model, (x, y), checkpoints=checkpoints, learning_rates=rates)
    torch.testing.assert_close(e.attribute(tests, TARGET).double(), scores, **(SINGLE if last else EXACT))
    torch.testing.assert_close(e.self_influence().double(), own, **(SINGLE if last else EXACT))


def trak(T: Tensor, G: Tensor, S: Tensor, ridge: float) -> Tensor:
    """φ(x)ᵀ(ΦᵀΦ + λI)⁻¹φ_i, by numpy."""
    tests, rows = (T @ S).numpy(), (G @ S).numpy()
    square = rows.T @ rows
    square += ridge * np.trace(square) / min(rows.shape) * np.eye(len(square))
    return torch.as_tensor(tests @ np.linalg.inv(square) @ rows.T)


def probabilities(model: nn.Module) -> Tensor:
    _, x, y, _, _ = trained()
    return model(x).softmax(1).detach()[torch.arange(N), y]


@pytest.mark.parametrize(("k", "ridge"), [(8, 0.0), (8, 0.5), (None, 0.1), ("auto", 1.0)])
def test_trak_is_its_formula(k: Any, ridge: float) -> None:
    model, x, y, tests, _ = trained()
    T, G = both(plain_margin)
    P = T.shape[1]
    eye = torch.eye(P, dtype=torch.float64)
    S = Projection(k, P, seed=5)(eye) if isinstance(k, int) else eye
    p = probabilities(model)
    expected = trak(T, G, S, ridge) * (1 - p)
    e = TRAK(projection=k, ridge=ridge, seed=5, batch_size=7, show_progress=False).fit(model, (x, y))
    torch.testing.assert_close(e.attribute(tests, TARGET), expected, rtol=1e-7, atol=1e-9)
    own = (trak(G, G, S, ridge) * (1 - p)).diagonal()
    torch.testing.assert_close(e.self_influence(), own, rtol=1e-7, atol=1e-9)


def test_trak_of_the_last_layer_is_its_closed_form() -> None:
    """Gradients of the margin by the head are (e_c − q) ⊗ (f, 1), q the softmax over the other classes."""
    model, x, y, tests, _ = trained()

    def rows(x: Tensor, classes: Tensor) -> Tensor:
        calls: list[Tensor] = []
        handle = model.fc.register_forward_pre_hook(lambda m, args: calls.append(args[0].detach()))
        z = model(x).detach()
        handle.remove()
        own = functional.one_hot(classes, K).bool()
        r = own.double() - z.masked_fill(own, -torch.inf).softmax(1)
        f = torch.cat([calls[0], torch.ones(len(x), 1).double()], dim=1)
        return torch.stack([torch.outer(a, b).flatten() for a, b in zip(r, f, strict=True)])

    T, G = rows(tests, TARGET), rows(x, y)
    p = probabilities(model)
    expected = trak(T, G, torch.eye(13 * K, dtype=torch.float64), 0.1) * (1 - p)
    e = TRAK(params="last", ridge=0.1, show_progress=False).fit(model, (x, y))
    torch.testing.assert_close(e.attribute(tests, TARGET).double(), expected, rtol=1e-3, atol=1e-5)


def test_an_ensemble_of_trak_averages_products_and_weights() -> None:
    model, x, y, tests, checkpoints = trained()
    ridge, products, doubts = 0.2, [], []
    for j, state in enumerate(checkpoints):
        T, G = both(plain_margin, state=state)
        S = Projection(16, T.shape[1], seed=1 + j)(torch.eye(T.shape[1], dtype=torch.float64))
        p = probabilities(at(state))
        products.append(trak(T, G, S, ridge))
        doubts.append(1 - p)
    expected = torch.stack(products).mean(0) * torch.stack(doubts).mean(0)
    e = TRAK(projection=16, ridge=ridge, seed=1, show_progress=False)
    e.fit(model, (x, y), checkpoints=[at(state) for state in checkpoints])
    torch.testing.assert_close(e.attribute(tests, TARGET), expected, rtol=1e-7, atol=1e-9)


def test_a_loss_of_ones_own() -> None:
    model, x, y, tests, _ = trained()

    def smooth(z: Tensor, c: int) -> Tensor:
        return -0.9 * z.log_softmax(0)[c] - 0.1 * z.log_softmax(0).mean()

    loss = functools.partial(functional.cross_entropy, reduction="none", label_smoothing=0.1)
    for options, only in (({}, ""), ({"params": "last"}, "fc.")):
        T, G = both(smooth, only)
        e = GradDot(loss=loss, show_progress=False, **options).fit(model, (x, y))
        expected = {**(SINGLE if only else EXACT)}
        torch.testing.assert_close(e.attribute(tests, TARGET).double(), T @ G.T, **expected)
        with pytest.raises(StoreError, match="the loss is code"):
            e.save("never")


def test_gradients_of_the_logit(tmp_path: Path) -> None:
    model, x, y, tests, _ = trained()
    for options, only in (({"projection": None}, ""), ({"params": "last"}, "fc.")):
        T, G = both(lambda z, c: z[c], only)
        e = GradDot(loss="logit", show_progress=False, **options).fit(model, (x, y))
        near = {**(SINGLE if only else EXACT)}
        torch.testing.assert_close(e.attribute(tests, TARGET).double(), T @ G.T, **near)
        torch.testing.assert_close(e.self_influence().double(), (G * G).sum(1), **near)
    projected = GradDot(loss="logit", projection=16, show_progress=False).fit(model, (x, y))
    projected.save(tmp_path / "x.whence")  # no code is in it
    loaded = whence.load(tmp_path / "x.whence", model=model)
    assert torch.equal(loaded.attribute(tests, TARGET), projected.attribute(tests, TARGET))


# Memory


# Checkpoints


def test_checkpoints_come_in_several_forms(tmp_path: Path) -> None:
    model, x, y, tests, checkpoints = trained()
    state = checkpoints[0]
    torch.save(state, tmp_path / "a.pt")
    save_file(state, tmp_path / "a.safetensors")
    wrapped = {f"module.{name}": tensor for name, tensor in state.items()}
    forms = [state, at(state), tmp_path / "a.pt", str(tmp_path / "a.safetensors"), wrapped]
    forms.append(nn.DataParallel(at(state)))
    before = copy.deepcopy(model.state_dict())
    found = [TracIn(show_progress=False).fit(model, (x, y), checkpoints=[f]).attribute(tests) for f in forms]
    assert all(torch.equal(scores, found[0]) for scores in found)
    assert not torch.equal(found[0], GradDot(show_progress=False).fit(model, (x, y)).attribute(tests))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


class Graph(nn.Module):
    """A network of a graph, whose adjacency matrix is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
        self.register_buffer("adjacency", torch.eye(4).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first((self.adjacency @ x.T).T).relu())


def test_a_sparse_buffer_in_a_checkpoint() -> None:
    torch.manual_seed(0)
    model, x, y = Graph(), torch.randn(12, 4), torch.arange(12) % 2
    plain = nn.Sequential(model.first, nn.ReLU(), model.head)  # the same function
    scores = [
        TracIn(show_progress=False)
        .fit(net, (x, y), checkpoints=[copy.deepcopy(net.state_dict()) for _ in range(2)])
        .attribute(x[:3])
        for net in (model, plain)
    ]
    torch.testing.assert_close(*scores)


def test_checkpoints_are_copied() -> None:
    model, x, y, tests, checkpoints = trained()
    state = copy.deepcopy(checkpoints[0])
    e = TracIn(show_progress=False).fit(model, (x, y), checkpoints=[state])
    before = e.attribute(tests)
    for tensor in state.values():
        tensor.zero_()
    assert torch.equal(e.attribute(tests), before)


class Touch:
    """An object that would run code when unpickled."""

    def __reduce__(self) -> Any:
        return print, ("ran",)


def test_bad_checkpoints_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, x, y, _, checkpoints = trained()
    state = checkpoints[0]
    (tmp_path / "torn.pt").write_bytes(b"nothing")
    (tmp_path / "torn.safetensors").write_bytes(b"nothing")
    torch.save({"model": Touch()}, tmp_path / "code.pt")
    torch.save({"epoch": 1, "model": state}, tmp_path / "more.pt")
    live = model.state_dict()
    for given, message in (
        (None, "'checkpoints' must be a list.*Got None.*every epoch"),
        ([], "'checkpoints' must be a list"),
        ("a.pt", "'checkpoints' must be a list"),
        (["missing.pt"], "files that exist. Got 'missing.pt'"),
        ([tmp_path / "torn.pt"], "torn.pt' cannot be read"),
        ([tmp_path / "torn.safetensors"], "torn.safetensors' cannot be read"),
        ([tmp_path / "code.pt"], "code.pt' cannot be read"),
        ([state, tmp_path / "more.pt"], r"checkpoint 1 \(.*more.pt\) is a dict with epoch, model"),
        ([{k: v for k, v in state.items() if k != "fc.bias"}], "In checkpoint 0 fc.bias is missing"),
        ([{**state, "extra": torch.ones(1)}], "extra is unknown"),
        ([{**state, "fc.bias": torch.ones(3)}], r"fc.bias has shape \[3\], in the model \[4\]"),
        ([{**state, "fc.bias": torch.full((4,), torch.nan)}], "fc.bias has values that are not finite"),
        ([live, model.state_dict()], "must be copies. Those at 0 and 1 are the same tensors.*deepcopy"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            TracIn(show_progress=False).fit(model, (x, y), checkpoints=given)
    assert "ran" not in capsys.readouterr().out
    for rates in ([1.0], -1, float("nan"), ["a"] * 3, [0.1, 0.1, float("inf")], 1e300):
        with pytest.raises(InvalidInputError, match="'learning_rates' must be"):
            TracIn(show_progress=False).fit(model, (x, y), checkpoints=checkpoints, learning_rates=rates)


# Saving


def test_what_is_not_worth_saving_says_so(tmp_path: Path) -> None:
    model, x, y, _, checkpoints = trained()
    with pytest.raises(StoreError, match="no cache that is worth saving"):
        GradDot(projection=None, show_progress=False).fit(model, (x, y)).save(tmp_path / "x")
    with pytest.raises(StoreError, match="weights of all its checkpoints"):
        TRAK(show_progress=False).fit(model, (x, y), checkpoints=checkpoints).save(tmp_path / "x")


# Bad input


class Doubled(torch.autograd.Function):
    """A function of one's own without a rule for vmap."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient


class Before(nn.Module):
    def __init__(self, first: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.net = first if isinstance(first, nn.Module) else Apply(first), Net().double()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.first(x))


class Apply(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (Doubled.apply, "Apply 'first': .*Doubled"),
        (lambda x: x if x.sum() > -1e9 else -x, "Apply 'first': .*data-dependent control flow"),
    ],
)
def test_samples_are_computed_one_by_one_where_vmap_fails(
    first: Any, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, x, y, _, checkpoints = trained()
    model = Before(first).eval()
    rows = loop(model, x, y, plain_cross_entropy)
    e = GradDot(batch_size=7).fit(model, (x, y))
    assert re.search(
        f"one sample at a time, since torch.func.vmap fails in {reason}", capsys.readouterr().err
    )
    torch.testing.assert_close(e.attribute(x, y), rows @ rows.T, **EXACT)
    states = [{**model.state_dict(), **{f"net.{k}": v for k, v in s.items()}} for s in checkpoints[:1]]
    e = TracIn(show_progress=False).fit(model, (x, y), checkpoints=states)
    model.net.load_state_dict(checkpoints[0])
    rows = loop(model, x, y, plain_cross_entropy)
    torch.testing.assert_close(e.fitted_.arrays["0.rows"], rows, **EXACT)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize(
    "first",
    [
        lambda x: functional.dropout(x, 0.5, True),
        nn.BatchNorm2d(1, track_running_stats=False).double(),
        lambda x: functional.batch_norm(x, None, None, training=True),
    ],
)
def test_models_without_gradients_of_single_samples_are_refused(first: Any) -> None:
    _, x, y, _, _ = trained()
    model = Before(first)
    for method in (GradDot, TRAK):
        with pytest.raises(ModelError, match="the same features every time"):
            method(show_progress=False).fit(model, (x, y))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("name", ["BERT", "Llama, padded on the left", "BERT with LoRA, head saved whole"])
def test_language_models_have_gradients(name: str) -> None:
    family = next(family for family in FAMILIES if family.name == name)
    if missing := family.missing():
        pytest.skip(missing)
    model, inputs = family.made()
    few = take(inputs, slice(4))
    y = torch.arange(4) % 2
    model.eval()
    trainable = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(4):
        z = model(**take(few, slice(i, i + 1))).logits[0]
        found = torch.autograd.grad(
            plain_cross_entropy(z, int(y[i])), trainable, allow_unused=True, materialize_grads=True
        )
        rows.append(torch.cat([g.flatten() for g in found]))
    expected = torch.stack(rows)
    e = GradDot(projection=None, show_progress=False).fit(model, (few, y))
    size = expected.norm() ** 2 / 4
    torch.testing.assert_close(e.attribute(few, y), expected @ expected.T, rtol=0, atol=1e-5 * size.item())


@pytest.mark.parametrize("params", ["all", "last"])
def test_losses_that_do_not_fit_are_refused(params: Any) -> None:
    model, x, y, _, _ = trained()
    for loss, message in (
        (functional.cross_entropy, r"shape \(B,\).*Got shape \(\).*reduction=\"none\""),
        (lambda z, c: z, rf"Got shape \(\d+, {K}\)"),
        (lambda z, c: (z[:, 0] - z[:, 0]).log(), "must be finite. Got -inf"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            GradDot(params=params, loss=loss, show_progress=False).fit(model, (x, y))


def test_options_that_do_not_go_together_are_named() -> None:
    model, x, y, _, _ = trained()
    with pytest.raises(InvalidInputError, match=r"'projection' must be left.*exact without one. Got 9"):
        GradDot(params="last", projection=9, show_progress=False).fit(model, (x, y))
    with pytest.raises(InvalidInputError, match="'ridge' must be above 0 if ΦᵀΦ is singular"):
        TRAK(projection=60, ridge=0, show_progress=False).fit(model, (x, y))
