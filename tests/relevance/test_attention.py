"""Fused attention gives the maps of attention written by hand, in functions and in whole models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.helpers.families import BERT, GPT2, LLAMA, tokens, transformer
from tests.helpers.relevance_nets import check, half, random, relevance
from whence.model.extractor import Extractor, find_head
from whence.relevance import Rules, trace
from whence.relevance.presets import ATTN_LRP, ATTN_LRP_CP

Q, K, V = random(2, 4, 5, 3), random(2, 4, 5, 3, seed=1), random(2, 4, 5, 3, seed=2)
ALLOWED = random(2, 1, 5, 5, seed=3) > -0.5
ALLOWED[..., 0] = True
NOWHERE = ALLOWED.clone()
NOWHERE[0, :, 2] = False  # a query that may look nowhere


def by_hand(q: Tensor, k: Tensor, v: Tensor, flows: bool, mask: Tensor | None, scale: float | None) -> Tensor:
    """softmax(QKᵀ·scale + mask) V, each product's factors with half the gradient."""
    groups = q.shape[-3] // k.shape[-3]
    k, v = (t.repeat_interleave(groups, -3) for t in (k, v))
    scores = half(q) @ half(k).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    nowhere = (scores == -torch.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(nowhere, 0).softmax(-1) * ~nowhere
    return half(weights) @ half(v) if flows else weights.detach() @ v + 0 * (q.sum() + k.sum())


OPTIONS: dict[str, tuple[dict[str, Any], Tensor | None, list[Tensor]]] = {
    "plain": ({}, None, [Q, K, V]),
    "bool mask": ({"attn_mask": ALLOWED}, ALLOWED, [Q, K, V]),
    "float mask": ({"attn_mask": random(5, 5, seed=4)}, random(5, 5, seed=4), [Q, K, V]),
    "infinite mask": (
        {"attn_mask": torch.zeros(2, 1, 5, 5).double().masked_fill(~ALLOWED, -torch.inf)},
        ALLOWED,
        [Q, K, V],
    ),
    "causal": ({"is_causal": True}, torch.ones(5, 5).bool().tril(), [Q, K, V]),
    "causal, of other length": ({"is_causal": True}, torch.ones(3, 5).bool().tril(), [Q[:, :, :3], K, V]),
    "scale": ({"scale": 0.3}, None, [Q, K, V]),
    "grouped queries": ({"enable_gqa": True}, None, [Q, K[:, :2], V[:, :2]]),
    "across": ({}, None, [Q, random(2, 4, 7, 3, seed=5), random(2, 4, 7, 6, seed=6)]),
    "without heads": ({}, None, [random(2, 5, 3), random(2, 5, 3, seed=1), random(2, 5, 3, seed=2)]),
    "nowhere to look": ({"attn_mask": NOWHERE}, NOWHERE, [Q, K, V]),
}


@pytest.mark.parametrize("rules", [ATTN_LRP, ATTN_LRP_CP], ids=["flows", "values only"])
@pytest.mark.parametrize("name", OPTIONS)
def test_fused_attention_is_attention_by_hand(name: str, rules: Rules) -> None:
    options, mask, inputs = OPTIONS[name]
    scale = options.get("scale")
    check(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options),
        lambda q, k, v: by_hand(q, k, v, rules.attention, mask, scale),
        *inputs,
        rules=rules,
    )


@pytest.mark.parametrize("rules", [ATTN_LRP, ATTN_LRP_CP], ids=["flows", "values only"])
def test_eager_code_in_a_model_is_attention_by_hand(rules: Rules) -> None:
    def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(2, 3)) * 3**-0.5
        return torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float64), v)

    check(eager, lambda q, k, v: by_hand(q, k, v, rules.attention, None, None), Q, K, V, rules=rules)


def test_one_tensor_as_queries_keys_and_values() -> None:
    check(lambda x: F.scaled_dot_product_attention(x, x, x), lambda x: by_hand(x, x, x, True, None, None), Q)


@pytest.mark.parametrize("rules", [ATTN_LRP, ATTN_LRP_CP], ids=["flows", "values only"])
@pytest.mark.parametrize("masked", [False, True])
def test_multihead_attention_is_the_same_with_and_without_weights(rules: Rules, masked: bool) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(12, 2, batch_first=True).double()
    padding = torch.tensor([[False] * 4 + [masked]] * 3)

    def function(x: Tensor, need_weights: bool) -> Tensor:
        return layer(x, x, x, key_padding_mask=padding, need_weights=need_weights)[0]

    x = random(3, 5, 12)
    fused = relevance(lambda x: function(x, False), x, rules=rules)[0]
    torch.testing.assert_close(relevance(lambda x: function(x, True), x, rules=rules)[0], fused)
    assert fused.abs().sum() > 0


def test_an_encoder_layer_is_looked_into() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0).double().eval()

    def by_parts(x: Tensor) -> Tensor:
        x = layer.norm1(x + layer.self_attn(x, x, x, need_weights=True)[0])
        return layer.norm2(x + layer.linear2(F.relu(layer.linear1(x))))

    x = random(3, 5, 8)
    got, want = relevance(layer, x), relevance(by_parts, x)
    torch.testing.assert_close(got[0], want[0])
    torch.testing.assert_close(got[1], want[1])


MODELS = {
    "bert": BERT,
    "llama": transformer("Llama", **LLAMA),
    "gpt2": transformer("GPT2", **GPT2),
    "gpt2, padded on the left": transformer("GPT2", lambda: tokens("left"), **GPT2),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
@pytest.mark.parametrize("rules", [ATTN_LRP, ATTN_LRP_CP], ids=["flows", "values only"])
@pytest.mark.parametrize("name", MODELS)
def test_models_agree_with_eager_and_fused_attention(name: str, rules: Rules) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model = model.double().eval()
    head = find_head(model, inputs)
    maps = {}
    for kind in ("eager", "sdpa"):
        model.set_attn_implementation(kind)
        flow = trace(Extractor(model, head), inputs, rules)
        maps[kind] = flow.maps(random(*flow.features.shape))["tokens"]
    assert maps["eager"].shape == inputs["input_ids"].shape
    # Llama's own eager softmax is in float32, whatever the model's precision.
    rtol, atol = (1e-4, 1e-5) if name == "llama" else (1e-9, 1e-11)
    torch.testing.assert_close(maps["eager"], maps["sdpa"], rtol=rtol, atol=atol)
