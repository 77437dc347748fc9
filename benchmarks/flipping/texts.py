"""Pair flipping on BBC News: the strongest proponent and opponent of 100 articles."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.flipping.candidates import others
from whence import DualDA
from whence_studies import FlippingResult, explain_pairs

N_TRAIN, N_TEST, TOKENS, STEPS, SAMPLES, N_RANDOM = 600, 100, 16, 5, 8, 2
CURRENT = "attn_lrp"


def methods() -> dict[str, Any]:
    """Return the named rules of transformers, gradients, and chance."""
    found = others(1.0, SAMPLES)
    names = ("Input × Gradient", "Integrated Gradients", "random")
    return {CURRENT: "attn_lrp", "attn_lrp_cp": "attn_lrp_cp", **{name: found[name] for name in names}}


def flipped() -> dict[str, FlippingResult]:
    """Flip pairs of the beginnings of articles, by column: longer and more would take hours."""
    from examples import bbc_minilm as bbc

    tokeniser = bbc.tokeniser()

    def tokens(batch: list[str]) -> dict[str, torch.Tensor]:
        options = {"truncation": True, "max_length": TOKENS, "padding": True, "return_tensors": "pt"}
        return dict(tokeniser(list(batch), **options))

    training = tuple(part[:N_TRAIN] for part in bbc.train())
    explainer = DualDA(show_progress=False).fit(bbc.build(), training, preprocess=tokens)
    pairs = explain_pairs(explainer, bbc.test()[0][:N_TEST], methods=methods())
    baselines = {"[MASK]": tokeniser.mask_token_id, "[UNK]": tokeniser.unk_token_id}
    options: dict[str, Any] = {"steps": STEPS, "keep": list(tokeniser.all_special_ids), "n_random": N_RANDOM}
    return {
        f"{side}, {name}": pairs.flip(side, baseline=token, **options)
        for side in ("test", "train")
        for name, token in baselines.items()
    }
