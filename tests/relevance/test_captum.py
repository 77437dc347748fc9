"""Methods of captum in the place of relevance propagation give what captum gives by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.relevance_nets import random
from whence.errors import ModelError
from whence.model.extractor import Extractor

attr: Any = pytest.importorskip("captum.attr")

from whence.relevance.captum import Attributed, Captum  # noqa: E402

METHODS = {
    "InputXGradient": {},
    "Saliency": {"abs": False},
    "IntegratedGradients": {"n_steps": 8},
}


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
    attributed = Attributed(Extractor(model, "head"), x, Captum(method, options))
    assert torch.equal(attributed.features, model.features(x).detach())
    direct = method(lambda x, c: (model.features(x) * c).sum(1))
    leaf = x.clone().requires_grad_()
    want = torch.stack(
        [direct.attribute(leaf, additional_forward_args=each, **options) for each in c]
    ).detach()
    torch.testing.assert_close(attributed.maps(c)["input"], want)
    torch.testing.assert_close(attributed.maps(c[0])["input"], want[0])
    with torch.inference_mode():
        attributed = Attributed(Extractor(model, "head"), x.clone(), Captum(method, options))
        torch.testing.assert_close(attributed.maps(c)["input"], want)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", METHODS)
def test_texts(name: str) -> None:
    torch.manual_seed(0)
    model, c = Texts().double().eval(), random(3, 5, seed=1)
    ids, mask = torch.randint(1, 20, (3, 7)), torch.ones(3, 7, dtype=torch.long)
    mask[1, 4:] = 0
    method, options = getattr(attr, name), METHODS[name]
    inputs = {"input_ids": ids, "attention_mask": mask}
    attributed = Attributed(Extractor(model, "head"), inputs, Captum(method, options))
    want = method(lambda e, mask, c: (model.features(e, mask) * c).sum(1)).attribute(
        model.table(ids).detach().requires_grad_(), additional_forward_args=(mask, c), **options
    )
    torch.testing.assert_close(attributed.maps(c)["tokens"], want.detach().sum(-1))


def test_two_inputs_are_refused() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.head(a + b)

    with pytest.raises(ModelError, match="models with one input"):
        Attributed(Extractor(Two(), "head"), (torch.ones(2, 4), torch.ones(2, 4)), Captum(attr.Saliency))
