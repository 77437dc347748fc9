"""BBC News with MiniLM, a BERT of six layers whose last one is fine-tuned.

``python -m examples.bbc_minilm`` trains it; ``whence fit`` takes ``build``, ``train``, ``test``, ``tokens``.
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import AutoTokenizer, BertForSequenceClassification

from examples.bbc_news import TOPICS, Texts, articles
from examples.places import data_folder, weights

N_TRAIN, N_TEST, LENGTH = 1_200, 400, 128
WEIGHTS = "bbc-minilm"
TRAINED = ("bert.encoder.layer.5.", "bert.pooler.", "classifier.")


def train() -> Texts:
    """Return the articles that the model is fine-tuned on."""
    return articles(N_TRAIN, N_TEST)[0]


def test() -> Texts:
    """Return held-out articles."""
    return articles(N_TRAIN, N_TEST)[1]


@functools.cache
def tokeniser() -> Any:
    """Read the tokeniser once."""
    return AutoTokenizer.from_pretrained(data_folder("minilm"))


def tokens(texts: list[str]) -> dict[str, Tensor]:
    """Make the model's inputs of texts: token numbers and attention mask, (B, T) each, T ≤ 128."""
    return dict(
        tokeniser()(list(texts), truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
    )


def build() -> BertForSequenceClassification:
    """Return the fine-tuned model."""
    folder = weights(WEIGHTS, made_by="python -m examples.bbc_minilm")
    return BertForSequenceClassification.from_pretrained(folder).eval()


def untrained() -> BertForSequenceClassification:
    """Return MiniLM with a new head, frozen up to its last layer."""
    model = BertForSequenceClassification.from_pretrained(
        data_folder("minilm"),
        id2label=dict(enumerate(TOPICS)),
        label2id={topic: k for k, topic in enumerate(TOPICS)},
    )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(TRAINED))
    return model


def fit(texts: list[str], topics: list[str], epochs: int, seed: int = 0) -> BertForSequenceClassification:
    """Fine-tune the last layer, the pooler and the head."""
    torch.manual_seed(seed)
    model = untrained().train()
    labels = torch.tensor([TOPICS.index(topic) for topic in topics])
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-4)
    for epoch in range(epochs):
        batches = torch.randperm(len(texts)).split(32)
        with tqdm(batches, desc=f"Epoch {epoch + 1} of {epochs}", unit="step") as progress:
            for rows in progress:
                logits = model(**tokens([texts[i] for i in rows])).logits  # (B, 5)
                loss = cross_entropy(logits, labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                progress.set_postfix(loss=f"{loss.item():.2f}")
    return model.eval()


@torch.inference_mode()
def accuracy(model: BertForSequenceClassification, texts: list[str], topics: list[str]) -> float:
    """Return the share of articles whose topic the model finds."""
    predicted: list[str] = []
    for start in range(0, len(texts), 32):
        predicted += [TOPICS[k] for k in model(**tokens(texts[start : start + 32])).logits.argmax(1)]
    return sum(map(str.__eq__, predicted, topics)) / len(topics)


def main() -> None:
    """Fine-tune, measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    texts, topics = train()
    started = time.perf_counter()
    model = fit(texts, topics, options.epochs, options.seed)
    seconds = time.perf_counter() - started
    path = weights(WEIGHTS)
    model.save_pretrained(path)
    score = accuracy(model, *test())
    print(f"Trained on {len(texts):,} articles in {seconds:.0f} s, accuracy {score:.1%}, saved {path}")


if __name__ == "__main__":
    main()
