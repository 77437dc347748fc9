"""Logits that are a sum or a mean of several linear heads: found by value, with features that make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whence
from tests.helpers.nets import Network
from tests.helpers.untouched import assert_untouched, snapshot
from whence.errors import ModelError, StoreError
from whence.methods import GradDot
from whence.model.extractor import Extractor, find_head
from whence.relevance.lrp import lrp

D, K = 6, 3


class Distilled(nn.Module):
    """Two bodies, two heads, whose outputs go into one by ``ends``."""

    def __init__(self, ends: str = "mean") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.ends = ends
        self.body, self.other = nn.Linear(D, 5), nn.Linear(D, 4)
        self.norm = nn.LayerNorm(4)
        self.head, self.head_dist = nn.Linear(5, K), nn.Linear(4, K, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        a = self.head(self.body(x).relu())
        b = self.head_dist(self.norm(self.other(x).tanh()))  # after the first head has run
        if self.ends == "mean":
            return (a + b) / 2
        if self.ends == "sum":
            return a + b
        if self.ends == "weighted":
            return a / 3 - 2 * b
        if self.ends == "max":
            return torch.maximum(a, b)
        return a * b


def one_tensor() -> nn.Module:
    """Return a model whose heads read the same features, as in RepViT."""
    torch.manual_seed(0)

    def run(self: Network, x: Tensor) -> Any:
        f = self.body(x).relu()
        return (self.a(f) + self.b(f)) / 2

    return Network(run, body=nn.Linear(D, 5), a=nn.Linear(5, K), b=nn.Linear(5, K))


class Places(nn.Module):
    """One head on the sample, one averaged over its places; with ``most`` the largest of them, as in VOLO."""

    def __init__(self, most: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.most, self.head, self.aux = most, nn.Linear(D, K), nn.Linear(D, K)

    def forward(self, x: Tensor) -> Tensor:  # x (B, T, D)
        sample, aux = self.head(x[:, 0]), self.aux(x)
        return sample + 0.5 * (aux.max(1).values if self.most else aux.mean(1))


def inputs(n: int = 12) -> Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("ends", "head"),
    [
        ("mean", "0.5*head + 0.5*head_dist"),
        ("sum", "head + head_dist"),
        ("weighted", "0.3333333*head + -2*head_dist"),
    ],
)
def test_features_of_all_heads_make_the_logits(ends: str, head: str) -> None:
    model, x = Distilled(ends), inputs()
    before = snapshot(model)
    assert find_head(model, x) == head
    extractor = Extractor(model, head)
    features, (weight, bias) = extractor(x), extractor.head()
    share = {"mean": (0.5, 0.5), "sum": (1.0, 1.0), "weighted": (1 / 3, -2.0)}[ends]
    with torch.no_grad():
        parts = model.body(x).relu(), model.norm(model.other(x).tanh())
        expected = torch.cat([a * part for a, part in zip(share, parts, strict=True)], 1)
        logits = model(x)
    torch.testing.assert_close(features, expected)
    assert weight.shape == (K, 9)
    np.testing.assert_allclose(features.numpy() @ weight.T + bias, logits, rtol=1e-5, atol=1e-6)
    assert_untouched(before, model)


def test_heads_of_one_tensor_and_heads_of_places() -> None:
    x = inputs()
    extractor = Extractor(one_tensor(), find_head(one_tensor(), x))
    assert extractor.layer == "0.5*a + 0.5*b"
    model, tokens = Places(), torch.randn(7, 4, D)
    assert find_head(model, tokens) == "head + 0.5*aux"
    found = Extractor(model, "head + 0.5*aux")
    torch.testing.assert_close(found(tokens), torch.cat([tokens[:, 0], 0.5 * tokens.mean(1)], 1))
    weight, bias = found.head()
    with torch.no_grad():
        np.testing.assert_allclose(
            found(tokens).numpy() @ weight.T + bias, model(tokens), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("model", [Distilled("max"), Distilled("product")])
def test_what_is_no_sum_is_refused(model: nn.Module) -> None:
    with pytest.raises(ModelError, match="or several whose sum"):
        find_head(model, inputs())


def test_the_largest_of_several_places_is_no_sum() -> None:
    with pytest.raises(ModelError, match="or several whose sum"):
        find_head(Places(most=True), torch.randn(7, 4, D))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
@pytest.mark.filterwarnings("ignore:The features of all training samples are nearly the same")
@pytest.mark.parametrize("name", ["DeiT", "Levit"])
def test_distilled_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "DeiT": {
            "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
            "image_size": 32, "patch_size": 8,
        },
        "Levit": {
            "image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1], "key_dim": [4, 4, 4],
        },
    }[name]  # fmt: skip
    config = getattr(transformers, f"{name}Config")(num_labels=5, **options)
    model = getattr(transformers, f"{name}ForImageClassificationWithTeacher")(config).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    size = options["image_size"]
    x = {"pixel_values": torch.randn(6, 3, size, size, generator=torch.Generator().manual_seed(1))}
    with torch.no_grad():
        logits = model(**x).logits.double().numpy()
    layer = find_head(model, x)
    assert layer.count(" + ") == 1
    assert layer.count("0.5*") == 2
    extractor = Extractor(model, layer)
    weight, bias = extractor.head()
    np.testing.assert_allclose(extractor(x).double().numpy() @ weight.T + bias, logits, rtol=1e-4, atol=1e-5)
    data = ({"pixel_values": x["pixel_values"]}, np.arange(6) % 5)
    explainer = whence.DualDA(metric="raw", C=0.1, show_progress=False).fit(model, data)
    scores = explainer.attribute(x)
    expected = explainer.surrogate_.logits(extractor(x))
    picked = expected[torch.arange(6), torch.from_numpy(logits.argmax(1))]
    torch.testing.assert_close(scores.sum(1).double(), picked, rtol=1e-4, atol=1e-5)
    (why,) = explainer.explain({"pixel_values": x["pixel_values"][:1]}, k=1)
    assert np.isfinite(why.logit_map).all()
    assert why.logit_map.any()


def test_from_fit_to_load_and_explain(tmp_path: Path) -> None:
    model, x = Distilled(), inputs(40)
    y = torch.arange(40) % K
    explainer = whence.DualDA(metric="raw", C=0.1, show_progress=False).fit(model, (x, y))
    explainer.save(tmp_path / "x.whence")
    back = whence.load(tmp_path / "x.whence", model, (x, y))
    assert torch.equal(back.attribute(x[:3]), explainer.attribute(x[:3]))
    assert explainer.faithfulness(x).n_tests == 40
    with pytest.raises(StoreError, match="another model"):
        whence.load(tmp_path / "x.whence", one_tensor())
    named = whence.DualDA(metric="raw", C=0.1, show_progress=False).fit(
        model, (x, y), layer="0.5*head + 0.5*head_dist"
    )
    np.testing.assert_array_equal(named.coef_, explainer.coef_)
    for layer in ("half*head + head_dist", "head + nothing"):
        with pytest.raises(ModelError, match="'layer' must"):
            whence.DualDA(metric="raw", show_progress=False).fit(model, (x, y), layer=layer)
    several = whence.DualDA(metric="raw", C=0.1, layers="all", show_progress=False).fit(model, (x, y))
    several.save(tmp_path / "y.whence")
    back = whence.load(tmp_path / "y.whence", model)
    assert torch.equal(back.attribute(x[:3]), several.attribute(x[:3]))


def test_relevance_flows_back_through_all_heads() -> None:
    """Bodies without bias or activation: relevance is x_j Σ_h c_h·W_hj, in closed form."""
    torch.manual_seed(0)

    model = Network(
        lambda self, x: (self.head(self.a(x)) + self.dist(self.b(x))) / 2,
        a=nn.Linear(D, 4, bias=False), b=nn.Linear(D, 5, bias=False),
        head=nn.Linear(4, K), dist=nn.Linear(5, K),
    ).double()  # fmt: skip
    x = inputs().double()
    extractor = Extractor(model, find_head(model, x))
    features = extractor(x)
    weights = torch.randn(9, dtype=torch.float64)
    found = lrp(extractor, x, features * weights, "epsilon")
    joint = torch.cat([model.a.weight, model.b.weight]).detach() / 2  # (9, D)
    torch.testing.assert_close(found, x * (weights @ joint), rtol=1e-4, atol=5e-4)  # less what ε takes


def test_gradients_of_the_last_layers_are_those_of_autograd() -> None:
    model, x = Distilled(), inputs(20)
    y = torch.arange(20) % K
    scores = GradDot(params="last", show_progress=False).fit(model, (x, y)).attribute(x[:3], 1)
    assert scores.shape == (3, 20)
    whole = GradDot(params="all", show_progress=False).fit(model, (x, y)).attribute(x[:3], 1)

    def gradient(row: Tensor, label: int) -> Tensor:
        loss = nn.functional.cross_entropy(model(row[None]), torch.tensor([label]))
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])

    train = torch.stack([gradient(row, int(label)) for row, label in zip(x, y, strict=True)])
    expected = torch.stack([gradient(row, 1) for row in x[:3]]) @ train.T
    torch.testing.assert_close(whole, expected, rtol=1e-3, atol=1e-5)
