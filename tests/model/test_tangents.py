"""Tangent features against gradients by torch.func, one sample and one logit at a time."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.testing import assert_close

import whence
from whence import Effects
from whence.errors import ModelError, UnsupportedError
from whence.features import extract
from whence.model import tangents


class Twice(nn.Module):
    """A network that runs one layer twice, and reads tokens by another."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Linear(3, 5), nn.Linear(5, 5, bias=False), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (B, T, 3) to logits (B, 4)."""
        tokens = torch.tanh(self.embed(x)).mean(1)
        logits: Tensor = self.head(torch.tanh(self.mix(torch.tanh(self.mix(tokens)))))
        return logits


def images() -> tuple[nn.Module, Tensor, dict[str, Tensor]]:
    """Make a convolutional network that writes in place, inputs, and what goes into its layers."""
    torch.manual_seed(0)
    body = nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()
    model = nn.Sequential(*body, nn.Linear(32, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    x = torch.randn(30, 1, 8, 8)
    with torch.no_grad():
        return model, x, {"0": x.flatten(1), "4": model[:4](x), "6": model[:6](x)}


def tokens() -> tuple[nn.Module, Tensor, dict[str, Tensor]]:
    """Make the network with a layer that runs twice."""
    torch.manual_seed(1)
    model, x = Twice().eval(), torch.randn(24, 4, 3)
    with torch.no_grad():
        pooled = torch.tanh(model.embed(x)).mean(1)
        last = torch.tanh(model.mix(pooled))
        return model, x, {"embed": x.mean(1), "mix": last, "head": torch.tanh(model.mix(last))}


def kernel(model: nn.Module, x: Tensor, inputs: dict[str, Tensor], head: str) -> Tensor:
    """Compute the inner products that ``Tangents`` documents, from the gradients of each logit."""
    weights = {name: p.detach() for name, p in model.named_parameters()}
    jacobian = vmap(jacrev(lambda w, one: functional_call(model, w, (one[None],))[0]), (None, 0))(weights, x)
    total, shares = torch.zeros(len(x), len(x)), 0.0
    for layer, a in inputs.items():
        own = [jacobian[name].flatten(1) for name in jacobian if name.startswith(f"{layer}.")]
        n_weights = sum(p.numel() for name, p in weights.items() if name.startswith(f"{layer}."))
        g = torch.cat(own, 1) / math.sqrt(next(iter(jacobian.values())).shape[1])
        square = g.square().sum(1).mean()
        share = torch.sqrt(n_weights * square)
        products = g @ g.T - (1 if layer == head else 0)  # the surrogate has a bias of its own
        total += share * (products / square + 0.5 * (a @ a.T) / a.square().sum(1).mean())
        shares += share
    return total / shares


@pytest.mark.parametrize(("make", "head"), [(images, "6"), (tokens, "head")])
def test_inner_products_are_those_of_gradients_and_inputs(make: Any, head: str) -> None:
    model, x, inputs = make()
    y = model(x).argmax(1)
    before = {name: p.clone() for name, p in model.state_dict().items()}
    bank = extract(model, (x, y), layers="tangent", show_progress=False)
    features = torch.as_tensor(np.asarray(bank.features))
    expected = kernel(model, x, inputs, head)
    assert_close(features @ features.T, expected, rtol=0, atol=1e-3 * float(expected.abs().max()))
    assert_close(bank.model.extractor(x[:5]), features[:5], rtol=1e-4, atol=1e-5)
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks for m in model.modules())
    last = bank.head  # the model's last layer, as one of these features
    assert_close(features @ torch.from_numpy(last.weight).T + torch.from_numpy(last.bias), model(x).detach())


def test_longer_features_are_projected_without_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, inputs = images()
    monkeypatch.setattr(tangents, "WIDTH", 256)
    y = model(x).argmax(1)
    bank = extract(model, (x, y), layers="tangent", show_progress=False)
    features = torch.as_tensor(np.asarray(bank.features))
    assert features.shape == (30, 256 + 6)
    assert bank.layers.widths == (256, 6)
    assert re.search(r"of '0', '4'; projected at random from \d+ to 256 numbers", str(bank.layers))
    expected = kernel(model, x, inputs, "6")
    lengths = expected.diagonal().sqrt()
    errors = (features @ features.T - expected) / (lengths[:, None] * lengths)
    assert float(errors.square().mean().sqrt()) < math.sqrt(2 / 256)
    assert abs(float(errors.mean())) < 0.05


def test_of_many_logits_random_combinations_are_differentiated() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 60)).eval()
    x = torch.randn(30, 6)
    with torch.no_grad():
        inputs = {"0": x, "2": torch.tanh(model[0](x))}
    bank = extract(model, (x, torch.arange(30)), layers="tangent", show_progress=False)
    features = torch.as_tensor(np.asarray(bank.features))
    assert features.shape[1] == tangents.DIRECTIONS * 56 + 6 + 8
    assert "16 random combinations of 60 logits" in str(bank.layers)
    expected = kernel(model, x, inputs, "2")
    # The mean of 16 products of random signs, each as wide as twice the square of its expectation.
    assert float((features @ features.T - expected).norm() / expected.norm()) < math.sqrt(2 / 16)


@pytest.mark.filterwarnings("ignore::whence.errors.AgreementWarning")  # the network is not trained
def test_effects_are_those_of_their_features_and_survive_saving(tmp_path: Path) -> None:
    model, x, _ = images()
    y = torch.arange(len(x)) % 3
    options = {"show_progress": False, "C": 1.0}
    effects = Effects(layers="tangent", **options).fit(model, (x, y))
    bank = extract(model, (x, y), layers="tangent", show_progress=False)
    plain = whence.features.FeatureBank.of(np.asarray(bank.features), y.numpy())
    expected = (
        Effects(**options).fit(features=plain).attribute(features=bank.model.extractor(x[:4]), target=y[:4])
    )
    scores = effects.attribute(x[:4], y[:4])
    assert_close(scores, expected, rtol=1e-4, atol=1e-6)
    effects.save(tmp_path / "effects.whence")
    assert_close(whence.load(tmp_path / "effects.whence", model).attribute(x[:4], y[:4]), scores)
    with pytest.raises(UnsupportedError, match='must not be "tangent" for relevance maps'):
        effects.explain(x[:1])


@pytest.mark.filterwarnings("ignore::whence.errors.AgreementWarning")
def test_a_head_alone_needs_no_gradients() -> None:
    model, x = nn.Linear(4, 3), torch.randn(12, 4)
    y = torch.arange(len(x)) % 3
    tangent, last = (
        Effects(layers=layers, show_progress=False).fit(model, (x, y)).attribute(x)
        for layers in ("tangent", "last")
    )
    assert_close(tangent, last)


def test_a_model_that_turns_gradients_off_is_refused() -> None:
    class Silent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                features = self.body(x)
            logits: Tensor = self.head(features)
            return logits

    model, x = Silent(), torch.randn(12, 4)
    with pytest.raises(ModelError, match="'body' must run before the head, with gradients"):
        extract(model, (x, model(x).argmax(1)), layers="tangent", show_progress=False)
