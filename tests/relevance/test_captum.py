"""Methods of captum instead of relevance propagation give what captum gives by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.nets import Network
from tests.helpers.relevance_nets import random
from whence.errors import ModelError
from whence.model.extractor import Extractor

attr: Any = pytest.importorskip("captum.attr")

from whence.relevance.captum import Captum, attributed  # noqa: E402

METHODS = {"InputXGradient": {}, "Saliency": {"abs": False}, "IntegratedGradients": {"n_steps": 8}}


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 3, 3), nn.Linear(3, 4)

    def features(self, x: Tensor) -> Tensor:
        return torch.tanh(self.conv(x)).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class Texts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix, self.head = nn.Embedding(20, 6), nn.Linear(6, 5), nn.Linear(5, 4)

    def features(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        y = torch.tanh(self.mix(embeddings)) * mask[:, :, None]
        return y.sum(1) / mask.sum(1, keepdim=True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head(self.features(self.table(input_ids), attention_mask))


@pytest.mark.parametrize("name", METHODS)
def test_images(name: str) -> None:
    torch.manual_seed(0)
    model, x, c = Images().double().eval(), random(3, 2, 6, 6), random(2, 3, 3, seed=1)
    method, options = getattr(attr, name), METHODS[name]
    found = attributed(Extractor(model, "head"), x, Captum(method, options))
    assert torch.equal(found.features, model.features(x).detach())
    direct = method(lambda x, c: (model.features(x) * c).sum(1))
    leaf = x.clone().requires_grad_()
    want = torch.stack(
        [direct.attribute(leaf, additional_forward_args=each, **options) for each in c]
    ).detach()
    torch.testing.assert_close(found.maps(c)["input"], want)
    torch.testing.assert_close(found.maps(c[0])["input"], want[0])
    with torch.inference_mode():
        found = attributed(Extractor(model, "head"), x.clone(), Captum(method, options))
        torch.testing.assert_close(found.maps(c)["input"], want)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", METHODS)
def test_texts(name: str) -> None:
    torch.manual_seed(0)
    model, c = Texts().double().eval(), random(3, 5, seed=1)
    ids, mask = torch.randint(1, 20, (3, 7)), torch.ones(3, 7, dtype=torch.long)
    mask[1, 4:] = 0
    method, options = getattr(attr, name), METHODS[name]
    inputs = {"input_ids": ids, "attention_mask": mask}
    found = attributed(Extractor(model, "head"), inputs, Captum(method, options))
    want = method(lambda e, mask, c: (model.features(e, mask) * c).sum(1)).attribute(
        model.table(ids).detach().requires_grad_(), additional_forward_args=(mask, c), **options
    )
    torch.testing.assert_close(found.maps(c)["tokens"], want.detach().sum(-1))


def smooth_grad(module: Any) -> Any:
    return attr.NoiseTunnel(attr.Saliency(module))


def test_smooth_grad_is_the_mean_gradient_at_noisy_inputs() -> None:
    torch.manual_seed(0)
    model, x, c = Images().double().eval(), random(2, 2, 6, 6), random(2, 3, seed=1)
    options = {"nt_samples": 4000, "nt_samples_batch_size": 500, "stdevs": 0.3, "abs": False}
    captum = Captum(smooth_grad, options)
    before = torch.random.get_rng_state()
    found = attributed(Extractor(model, "head"), x, captum).maps(c)["input"]
    assert torch.equal(torch.random.get_rng_state(), before)
    noisy = (x.repeat(4000, 1, 1, 1) + 0.3 * random(8000, 2, 6, 6, seed=2)).requires_grad_()
    (gradient,) = torch.autograd.grad((model.features(noisy) * c.repeat(4000, 1)).sum(), noisy)
    each = gradient.view(4000, *x.shape)
    error = each.std(0) / 4000**0.5
    assert bool(((found - each.mean(0)).abs() < 6 * 2**0.5 * error).all())
    again = attributed(Extractor(model, "head"), x, captum).maps(c)["input"]
    assert torch.equal(again, found)
    other = Captum(smooth_grad, options, seed=1)
    assert not torch.equal(attributed(Extractor(model, "head"), x, other).maps(c)["input"], found)


def test_noise_on_texts_repeats_the_mask_too() -> None:
    torch.manual_seed(0)
    model, c = Texts().double().eval(), random(2, 5, seed=1)
    ids, mask = torch.randint(1, 20, (2, 7)), torch.ones(2, 7, dtype=torch.long)
    mask[1, 4:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    options = {"nt_samples": 3, "stdevs": 1e-9, "abs": False}
    found = attributed(Extractor(model, "head"), inputs, Captum(smooth_grad, options)).maps(c)["tokens"]
    plain = attributed(Extractor(model, "head"), inputs, Captum(attr.Saliency, {"abs": False})).maps(c)
    torch.testing.assert_close(found, plain["tokens"], rtol=1e-6, atol=1e-6)
    assert not found[1, 4:].any()


def test_two_inputs_are_refused() -> None:
    two = Network(lambda self, a, b: self.head(a + b), head=nn.Linear(4, 3))
    with pytest.raises(ModelError, match="models with one input"):
        attributed(Extractor(two, "head"), (torch.ones(2, 4), torch.ones(2, 4)), Captum(attr.Saliency))
