"""BBC News with SmolLM2-135M, a language model, frozen, with a head trained on its last token.

``python -m examples.smollm2`` trains it; ``whence fit`` takes ``build``, ``train``, ``test`` and ``tokens``.
The model is read from a GGUF file, for which transformers needs the package gguf.
"""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from transformers import AutoTokenizer, LlamaForSequenceClassification

import whence.data
import whence.features
from examples.bbc_news import TOPICS, Texts, articles
from examples.places import data_folder, weights

N_TRAIN, N_TEST, LENGTH = 300, 100, 64
WEIGHTS = "smollm2-head.safetensors"


def train() -> Texts:
    """Return the articles that the head is trained on."""
    return articles(N_TRAIN, N_TEST)[0]


def test() -> Texts:
    """Return held-out articles."""
    return articles(N_TRAIN, N_TEST)[1]


def gguf_file() -> Path:
    """Find the model's file, whatever its quantisation."""
    folder = data_folder("smollm2")
    files = sorted(folder.glob("*.gguf"))
    if not files:
        raise SystemExit(f"There is no GGUF file in {folder}.")
    return files[0]


@functools.cache
def tokeniser() -> Any:
    """Read the tokeniser once; it pads on the right with its own padding token."""
    path = gguf_file()
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    tokenizer.padding_side = "right"
    return tokenizer


def tokens(texts: list[str]) -> dict[str, Tensor]:
    """Make the model's inputs of texts: token numbers and attention mask, (B, T) each, T ≤ 64."""
    return dict(
        tokeniser()(list(texts), truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
    )


def headless() -> LlamaForSequenceClassification:
    """Return the language model in float32 with a new head."""
    path = gguf_file()
    model = LlamaForSequenceClassification.from_pretrained(
        path.parent,
        gguf_file=path.name,
        dtype=torch.float32,
        id2label=dict(enumerate(TOPICS)),
        label2id={topic: k for k, topic in enumerate(TOPICS)},
    )
    model.config.pad_token_id = tokeniser().pad_token_id
    return model.requires_grad_(False).eval()


def build() -> LlamaForSequenceClassification:
    """Return the model with its trained head."""
    head = load_file(weights(WEIGHTS, made_by="python -m examples.smollm2"))
    model = headless()
    model.score.load_state_dict(head)
    return model


def main() -> None:
    """Read features once, train the head on them, measure and save."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    model = headless()
    started = time.perf_counter()
    train_set, test_set = (
        whence.data.as_training_set(part, 32, names=TOPICS, preprocess=tokens) for part in (train(), test())
    )
    known = whence.features.extract(model, train_set)
    held_out = whence.features.extract(model, test_set)
    # The head has no bias, as in the models of this family.
    head = LogisticRegression(C=0.01, fit_intercept=False, max_iter=1_000).fit(known.features, known.labels)
    seconds = time.perf_counter() - started
    path = weights(WEIGHTS)
    save_file({"weight": torch.from_numpy(head.coef_).float().contiguous()}, path)
    score = head.score(held_out.features, held_out.labels)
    print(f"Trained on {len(known.labels)} articles in {seconds:.0f} s, accuracy {score:.1%}, saved {path}")


if __name__ == "__main__":
    main()
