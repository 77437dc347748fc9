"""Relevance maps of pairs judged by pair flipping, on MNIST, CIFAR-10 and BBC News.

The protocol was fixed before any result: the first test samples as they come, their strongest proponent and
opponent, both sides, every baseline with every size of patch. All of it is printed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from captum.attr import InputXGradient, IntegratedGradients

from whence import DualDA
from whence.evaluate import ExplainedPairs, FlippingResult, explain_pairs
from whence.relevance import Rules
from whence.relevance.captum import Captum

SIDES = ("test", "train")
PATCHES = (1, 4)
MAIN = {
    "XDA, default rules": None,
    "Input × Gradient": InputXGradient,
    "Integrated Gradients": Captum(IntegratedGradients, {"n_steps": 20}),
    "random": "random",
}
VARIANTS = {
    "XDA, plus, no flat": Rules(convolution="plus", epsilon=1e-6),
    "XDA, plus everywhere": Rules(linear="plus", convolution="plus", epsilon=1e-6),
    "XDA, plus everywhere, flat first": Rules(linear="plus", convolution="plus", first="flat", epsilon=1e-6),
    "XDA, default, ε = 0.25": Rules(convolution="plus", first="flat", epsilon=0.25),
    "XDA, ε = 0.25": Rules(epsilon=0.25),
}
TEXT_METHODS = MAIN | {
    "Integrated Gradients": Captum(IntegratedGradients, {"n_steps": 10}),
    "XDA, attn_lrp_cp": "attn_lrp_cp",
}
STEPS = {"MNIST": 20, "CIFAR-10": 10, "BBC News": 10}
N_IMAGES, N_RANDOM = 100, 2
N_TEXTS, N_TEXT_TRAIN, TOKENS = 16, 600, 32

Cells = dict[str, FlippingResult]


def run(data: Path, cache: Path) -> None:
    os.environ.setdefault("WHENCE_DATA", str(data))
    for name, side, cells in measured():
        cache.mkdir(parents=True, exist_ok=True)
        stored = cache / f"flipping-{name}-{side}.json"
        stored.write_text(json.dumps({cell: result.to_dict() for cell, result in cells.items()}))
        print(f"\n{table(name, side, cells)}\n", flush=True)


def measured() -> Iterator[tuple[str, str, Cells]]:
    """Give the results of one data set and side after another."""
    from examples import cifar10_resnet, mnist_cnn

    for name, module in {"MNIST": mnist_cnn, "CIFAR-10": cifar10_resnet}.items():
        training, (x, _) = module.train(), module.test().tensors
        explainer = DualDA(show_progress=False).fit(module.build(), training)
        pairs = explain_pairs(explainer, x[:N_IMAGES], methods=MAIN | VARIANTS)
        baselines = {"mean": "mean", "blur": "blur", "training mean": training.tensors[0].mean(0)}
        for side in SIDES:
            yield name, side, flipped_images(pairs, side, baselines, STEPS[name])
    pairs, baselines, special = texts()
    for side in SIDES:
        options: dict[str, Any] = {"steps": STEPS["BBC News"], "keep": special, "n_random": N_RANDOM}
        cells = {name: pairs.flip(side, baseline=token, **options) for name, token in baselines.items()}
        yield "BBC News", side, cells


def flipped_images(pairs: ExplainedPairs, side: Any, baselines: Mapping[str, Any], steps: int) -> Cells:
    return {
        f"{name}, {patch}×{patch}": pairs.flip(
            side, steps=steps, patch=patch, baseline=baseline, n_random=N_RANDOM
        )
        for name, baseline in baselines.items()
        for patch in PATCHES
    }


def texts() -> tuple[ExplainedPairs, dict[str, int], list[int]]:
    """Explain the beginnings of a few articles: longer and more would take hours on a small machine."""
    from examples import bbc_minilm as bbc

    tokeniser = bbc.tokeniser()

    def tokens(batch: list[str]) -> dict[str, torch.Tensor]:
        options = {"truncation": True, "max_length": TOKENS, "padding": True, "return_tensors": "pt"}
        return dict(tokeniser(list(batch), **options))

    training = tuple(part[:N_TEXT_TRAIN] for part in bbc.train())
    explainer = DualDA(show_progress=False).fit(bbc.build(), training, preprocess=tokens)
    pairs = explain_pairs(explainer, bbc.test()[0][:N_TEXTS], methods=TEXT_METHODS)
    baselines = {"[MASK]": tokeniser.mask_token_id, "[UNK]": tokeniser.unk_token_id}
    return pairs, baselines, list(tokeniser.all_special_ids)


def table(name: str, side: str, cells: Cells) -> str:
    """Write a table: a row per method, a column per cell; the best of each column and its ties in bold."""
    results = list(cells.values())
    first = results[0]
    lines = [
        f"**{name}, {side} side**: {len(first.scores)} pairs of {len(set(first.tests))} test samples\n",
        f"| method | {' | '.join(cells)} |",
        f"|---|{'---|' * len(cells)}",
    ]
    for m, method in enumerate(first.methods):
        entries = []
        for result in results:
            text = f"{result.mean[m]:.3f} ± {result.standard_error[m]:.3f}"
            entries.append(f"**{text}**" if result.ties[m, result.mean.argmin()] else text)
        lines.append(f"| {method} | {' | '.join(entries)} |")
    return "\n".join([*lines, "", verdict(results)])


def verdict(results: list[FlippingResult]) -> str:
    """Count where the default rules come first among the main methods, tie with the first, or trail."""
    counts = {"first": 0, "tied with the first": 0, "behind": 0}
    for result in results:
        main = [result.methods.index(method) for method in MAIN]
        ours, best = main[0], main[int(np.argmin(result.mean[main]))]
        rivals = [m for m in main if m != ours]
        if ours == best and not result.ties[ours, rivals].any():
            counts["first"] += 1
        elif result.ties[ours, best]:
            counts["tied with the first"] += 1
        else:
            counts["behind"] += 1
    return (
        "Of the first four, the default rules are " + ", ".join(f"{k} {n}×" for k, n in counts.items()) + "."
    )
