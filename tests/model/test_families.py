"""The head is found in every family, and its features give the model's own logits."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.helpers.families import BERT, GPT2, IMAGES, LENGTHS, LLAMA, Family, ResNet, lora, row, tokens
from tests.helpers.families import transformer as build
from tests.helpers.nets import Network
from tests.helpers.untouched import assert_untouched, snapshot
from whence.errors import ModelError
from whence.model.extractor import Extractor, find_head
from whence.model.modules import unwrap

pytestmark = pytest.mark.filterwarnings(
    # transformers and peft call parts of torch that it is about to rename.
    "ignore::DeprecationWarning:transformers",
    "ignore::DeprecationWarning:peft",
)
DOCS = Path(__file__).parents[2] / "docs" / "models.md"


def logits_of(model: nn.Module, inputs: Any) -> Tensor:
    """The model's own logits in eval mode, with none of whence's code."""
    copied = copy.deepcopy(model).eval()
    with torch.no_grad():
        output = copied(**inputs) if isinstance(inputs, dict) else copied(inputs)
    return output if isinstance(output, Tensor) else output.logits


def assert_gives_logits(model: nn.Module, layer: str, inputs: Any) -> None:
    """Features times the head's weight, in float64, are the model's logits."""
    extractor = Extractor(model, layer)
    features, (weight, bias) = extractor(inputs).double().numpy(), extractor.head()
    logits = features @ weight.T.astype(np.float64) + (0 if bias is None else bias.astype(np.float64))
    np.testing.assert_allclose(logits, logits_of(model, inputs).numpy(), rtol=1e-4, atol=1e-5)


def test_the_features_of_the_head_give_the_logits(family: Family) -> None:
    model, inputs = family.made()
    model.train()
    before = snapshot(model)
    assert find_head(model, inputs) == family.head
    assert_gives_logits(model, family.head, inputs)
    assert_untouched(before, model)


def test_the_documented_table_is_what_is_found(family: Family) -> None:
    assert row(family) in DOCS.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("name", "config"), [("GPT2", GPT2), ("Llama", LLAMA)])
def test_features_are_those_of_the_last_real_token(name: str, config: dict[str, Any], side: str) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, inputs = build(name, lambda: tokens(side), **config)()
    model.eval()
    with torch.no_grad():
        hidden = model.base_model(**inputs).last_hidden_state  # (B, T, d)
    last = [n - 1 if side == "right" else 7 for n in LENGTHS]
    expected = torch.stack([hidden[i, t] for i, t in enumerate(last)])
    assert torch.equal(Extractor(model, "score")(inputs), expected)


def test_places_are_told_apart_where_their_logits_are_equal() -> None:
    def last_token(self: Network, x: Tensor, lengths: Tensor) -> Any:
        return self.score(x)[torch.arange(len(x)), lengths - 1]

    model = Network(last_token, score=nn.Linear(2, 3, bias=False))
    model.score.weight.data[:, 1] = 0  # so that the second feature leaves no trace in the logits
    x = torch.tensor([[[1.0, 5.0], [1.0, 6.0], [1.0, 7.0]], [[1.0, 8.0], [1.0, 9.0], [torch.nan] * 2]])
    inputs = x, torch.tensor([3, 2])
    assert find_head(model, inputs) == "score"
    assert Extractor(model, "score")(inputs).tolist() == [[1.0, 7.0], [1.0, 9.0]]


def test_an_average_over_some_places_is_followed() -> None:
    class MaskedMean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = nn.Linear(4, 3)

        def forward(self, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
            weights = mask / mask.sum(1, keepdim=True)
            return {"logits": (self.score(x) * weights[..., None]).sum(1)}

    torch.manual_seed(0)
    x, mask = torch.randn(4, 6, 4), (torch.rand(4, 6) < 0.7).float()
    mask[:, 0] = 1
    model, inputs = MaskedMean().double(), {"x": x, "mask": mask}
    expected = torch.stack([row[keep.bool()].double().mean(0) for row, keep in zip(x, mask, strict=True)])
    assert find_head(model, inputs) == "score"
    np.testing.assert_allclose(Extractor(model, "score")(inputs), expected, rtol=1e-12)


def test_places_before_samples_are_refused() -> None:
    model = Network(lambda self, x: self.score(x.movedim(1, 0))[-1], score=nn.Linear(4, 3))
    x = torch.randn(2, 6, 4)
    with pytest.raises(ModelError, match=r"logits of shape \(2, 3\).*'score' \(4→3\)"):
        find_head(model, x)
    with pytest.raises(ModelError, match="must make the model's logits"):
        Extractor(model, "score")(x)


@pytest.mark.parametrize("after", ["relu", "max"])
def test_a_convolution_followed_by_more_than_an_average_is_no_head(after: str) -> None:
    torch.manual_seed(0)
    tail = [nn.ReLU(), nn.AdaptiveAvgPool2d(1)] if after == "relu" else [nn.AdaptiveMaxPool2d(1)]
    model = nn.Sequential(nn.Conv2d(3, 4, 8, 8), nn.Conv2d(4, 5, 1), *tail, nn.Flatten())
    with pytest.raises(ModelError, match=r"logits of shape \(8, 5\).*'1' \(4→5\)"):
        find_head(model, IMAGES)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_heads_are_found_in_every_precision(dtype: torch.dtype) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, inputs = build("Llama", **LLAMA)()
    model.to(dtype)
    assert find_head(model, inputs) == "score"
    weight, _ = Extractor(model, "score").head()
    logits = Extractor(model, "score")(inputs).double().numpy() @ weight.T
    rough = {torch.float64: 1e-6, torch.bfloat16: 0.05, torch.float16: 0.01}[dtype]
    np.testing.assert_allclose(logits, logits_of(model, inputs).double(), rtol=rough, atol=rough)


def test_the_head_of_an_adapted_model_is_the_merged_one() -> None:
    pytest.importorskip("peft")
    torch.manual_seed(0)
    model, _ = lora(build("Llama", **LLAMA), ["q_proj", "score"])()
    weight, bias = Extractor(model, "base_model.model.score").head()
    merged = copy.deepcopy(model).merge_and_unload()
    np.testing.assert_allclose(weight, merged.score.weight.detach(), rtol=1e-5, atol=1e-6)
    assert bias is None


def test_the_adapter_in_use_counts() -> None:
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    model, inputs = lora(BERT, ["query"], "SEQ_CLS")()
    layer = find_head(model, inputs)
    with model.disable_adapter():
        original = Extractor(model, layer).head().weight
        assert_gives_logits(model, find_head(model, inputs), inputs)
    assert isinstance(model, peft.PeftModel)
    assert not np.allclose(original, Extractor(model, layer).head().weight)


@pytest.mark.parametrize("form", ["whole", "in place", "part"])
def test_compiled_models_run_through_their_original(form: str) -> None:
    torch.manual_seed(0)
    model: Any = ResNet().eval()
    expected = Extractor(model, "fc")(IMAGES)
    if form == "whole":
        model = torch.compile(model, backend="eager")
    elif form == "in place":
        model.compile(backend="eager")
    else:
        model.layers = torch.compile(model.layers, backend="eager")
    with torch.no_grad():
        model(IMAGES)  # compiled now, without hooks
    assert find_head(model, IMAGES) == "fc"
    assert torch.equal(Extractor(model, "fc")(IMAGES), expected)
    assert unwrap(model).get_submodule("fc") is Extractor(model, "fc").model.fc


def test_the_places_are_found_within_inference_mode() -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, inputs = build("GPT2", **GPT2)()
    expected = Extractor(model, "score")(inputs)
    with torch.inference_mode():
        model, inputs = copy.deepcopy(model), {k: v.clone() for k, v in inputs.items()}
        assert find_head(model, inputs) == "score"
        assert torch.equal(Extractor(model, "score")(inputs), expected)
