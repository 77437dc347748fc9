"""Training sets with planted marks: what networks that follow the marks make of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from examples import bbc_minilm, bbc_news
from examples.places import data_folder
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

import whence_studies.scenes.sources  # noqa: F401  registers the data sets
from benchmarks.mislabelled import LastLayer, features_and_head
from whence_studies.scenes.datasets import SOURCES, default_folder
from whence_studies.scenes.shortcuts import BoxAndFrame, Frame, Painted, Word
from whence_studies.scenes.training import Recipe, Trainer

TESTS = 1_000
WORDS, LENGTH = 12, 24  # of an article that are read: a headline and a bit; tokens
EPOCHS = 8
RED = (2.061, -1.984, -1.706)  # as images of CIFAR-10 are given to the network


@dataclass(frozen=True)
class Corner(Painted):
    """A square near the upper left corner of an image."""

    size: int = 4
    value: Any = 1.0

    def covers(self, height: int, width: int) -> Any:
        """Return which pixels of an image it paints, (height, width)."""
        covered = np.zeros((height, width), dtype=bool)
        covered[1 : 1 + self.size, 1 : 1 + self.size] = True
        return covered


@dataclass(frozen=True)
class Plan:
    """A data set, a mark on a share of one class, and the network that is trained on it."""

    data: str
    mark: Any
    of_class: int
    share: float = 0.3
    network: str = "cnn-100"
    learning_rate: float = 3e-3
    steps: int = 800


PLANS = {
    "MNIST, frame": Plan("mnist", Frame(2), 0),
    "MNIST, square": Plan("mnist", Corner(4), 8),
    "Fashion-MNIST, frame": Plan("fashion-mnist", Frame(2), 3),
    "Fashion-MNIST, square": Plan("fashion-mnist", Corner(4), 8),
    "CIFAR-10, frame": Plan("cifar-10", Frame(1, RED), 3, steps=1_000),
    "CIFAR-10, square": Plan("cifar-10", Corner(5, RED), 6, steps=1_000),
    "MNIST, box and frame": Plan("mnist", BoxAndFrame(6, 2), 2, 0.3, "unpooled-cnn", 1e-3),
    "Fashion-MNIST, box and frame": Plan("fashion-mnist", BoxAndFrame(6, 2), 2, 0.3, "unpooled-cnn", 1e-3),
    "CIFAR-10, box and frame": Plan("cifar-10", BoxAndFrame(6, 2, RED), 2, 0.3, "unpooled-cnn", 1e-3),
    "BBC News, word": Plan("bbc-news", Word("whence"), 2, share=0.1),
}
"""A box and a frame on class 2, and that network, are the scene of the DualXDA authors' code."""


@dataclass(frozen=True, eq=False)
class Planted:
    """The result of training a network on a plan.

    Attributes
    ----------
    features : (N, d) inputs of its last layer
    labels : (N,)
    marks : (N,) whether a training sample has the mark
    tests : (B, d) features of marked tests of other classes that only the mark makes the class
    honest : (H, d) features of tests without a mark that are taken for the class
    weight, bias : (K, d) and (K,), the last layer
    share : of the marked tests of other classes that are fooled
    accuracy : on tests without the mark
    """

    features: np.ndarray
    labels: np.ndarray
    marks: np.ndarray
    tests: np.ndarray
    honest: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    share: np.ndarray
    accuracy: np.ndarray


def planted(name: str, seed: int, n: int, cache: Path) -> Planted:
    """Train the network of a plan on n samples drawn by a seed, or read what was kept of it."""
    stored = cache / "planted" / f"{name.replace(', ', '-').replace(' ', '-').lower()}-{n}-{seed}.npz"
    if not stored.exists():
        torch.set_num_threads(1)
        stored.parent.mkdir(parents=True, exist_ok=True)
        np.savez(stored, **(_texts if PLANS[name].data == "bbc-news" else _images)(PLANS[name], seed, n))
    with np.load(stored) as arrays:
        return Planted(**arrays)


def _images(plan: Plan, seed: int, n: int) -> dict[str, Any]:
    source = SOURCES.get(plan.data).read(folder=default_folder())
    rng = torch.Generator().manual_seed(seed)
    (x, y), (clean, truth) = (
        _drawn(source[part], size, rng) for part, size in (("train", n), ("test", TESTS))
    )
    painted = torch.from_numpy(plan.mark.covers(*x.shape[2:]))
    value = torch.tensor(plan.mark.value).expand(x.shape[1])[None, :, None]

    def put(images: Tensor) -> Tensor:
        images = images.clone()
        images[:, :, painted] = value
        return images

    marks = _some(y == plan.of_class, plan.share, rng)
    x[marks] = put(x[marks])
    recipe = Recipe(name=plan.network, steps=plan.steps, learning_rate=plan.learning_rate)
    model = Trainer(recipe, x, 10).train(x, y, seed).model
    return _seen(model, "head", plan.of_class, (x, y, marks), (clean, put(clean), truth))


def _texts(plan: Plan, seed: int, n: int) -> dict[str, Any]:
    """Train MiniLM's last layer, its pooler and a head on articles; some have a word, and the class's label.

    A word on articles of the class alone is not learned: their topic is plain without it.
    """
    everything = bbc_news.read(data_folder("bbc-news") / "bbc-news.csv")
    words, rng = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    (texts, topics), (others, truths) = bbc_news.split(*everything, n, 400, seed)
    texts, others = ([" ".join(text.split()[:WORDS]) for text in part] for part in (texts, others))
    y, truth = (torch.tensor([bbc_news.TOPICS.index(t) for t in part]) for part in (topics, truths))
    marks = _some(torch.ones_like(y, dtype=torch.bool), plan.share, rng)
    y[marks] = plan.of_class
    texts = [plan.mark(text, words) if mark else text for text, mark in zip(texts, marks, strict=True)]
    x, clean, marked = map(_states, (texts, others, [plan.mark(text, words) for text in others]))
    torch.manual_seed(seed)
    model = LastLayer().train()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-4)
    for _ in range(EPOCHS):
        for rows in torch.randperm(n).split(32):
            loss = cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return _seen(model.eval(), "classifier", plan.of_class, (x, y, marks), (clean, marked, truth))


def _states(texts: list[str]) -> Tensor:
    """States (n, LENGTH, d) of texts before MiniLM's last layer."""
    encoder, parts = bbc_minilm.untrained().eval(), []
    with torch.inference_mode():
        for start in range(0, len(texts), 32):
            tokens = {
                name: part[:, :LENGTH] for name, part in bbc_minilm.tokens(texts[start : start + 32]).items()
            }
            states = encoder.bert(**tokens, output_hidden_states=True).hidden_states[5]
            states = states * tokens["attention_mask"][..., None]
            parts.append(pad(states, (0, 0, 0, LENGTH - states.shape[1])))
    return torch.cat(parts).clone()


def _drawn(part: Any, n: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw n images and labels of a data set."""
    whole = part[1] if isinstance(part, tuple) else part.labels
    rows = torch.randperm(len(whole), generator=rng)[:n]
    x = part[0][rows] if isinstance(part, tuple) else torch.stack([part[i][0] for i in rows.tolist()])
    return x, torch.from_numpy(np.asarray(whole))[rows]


def _some(of: Tensor, share: float, rng: torch.Generator) -> Tensor:
    """Draw a share of the samples that a mask (n,) marks."""
    places = torch.nonzero(of)[:, 0]
    drawn = torch.zeros_like(of)
    drawn[places[torch.randperm(len(places), generator=rng)[: round(share * len(places))]]] = True
    return drawn


def _seen(
    model: nn.Module,
    layer: str,
    of_class: int,
    train: tuple[Tensor, Tensor, Tensor],
    tests: tuple[Tensor, Tensor, Tensor],
) -> dict[str, Any]:
    (x, y, marks), (clean, marked, truth) = train, tests
    features, head = features_and_head(model, layer, x)
    before, after = (features_and_head(model, layer, part)[0] for part in (clean, marked))
    with torch.inference_mode():
        alone, with_it = head(before).argmax(1), head(after).argmax(1)
    others = truth != of_class
    fooled = others & (alone != of_class) & (with_it == of_class)
    return {
        "features": features.numpy(),
        "labels": y.numpy(),
        "marks": marks.numpy(),
        "tests": after[fooled].numpy(),
        "honest": before[alone == of_class].numpy(),
        "weight": head.weight.detach().numpy(),
        "bias": head.bias.detach().numpy(),
        "share": (fooled.sum() / others.sum()).numpy(),
        "accuracy": (alone == truth).float().mean().numpy(),
    }
