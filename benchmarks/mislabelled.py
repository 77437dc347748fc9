"""Training sets with planted wrong labels, and the features of networks that were trained on them."""

from __future__ import annotations

import contextlib
import functools
import gzip
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from examples import bbc_minilm, bbc_news, cifar10_resnet, mnist_cnn
from examples.places import data_folder
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from whence.features import extract
from whence.model.extractor import Extractor
from whence.sample.dataset import parse_idx

NOISES = ("symmetric", "pairs")
LENGTH = 64  # tokens of an article that are read
FITTED = 0.9  # share of the wrong labels that a network has memorised when training stops
PATIENCE = 80  # further epochs after which it stops in any case


@dataclass(frozen=True, eq=False)
class Planted:
    """A training set with wrong labels, as the network that was trained on it sees it.

    Attributes
    ----------
    features : (N, d) inputs of the trained network's last layer
    labels : (N,) that it was trained on, some of them wrong
    truth : (N,)
    weight, bias : (K, d) and (K,), its last layer
    """

    features: np.ndarray
    labels: np.ndarray
    truth: np.ndarray
    weight: np.ndarray
    bias: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        """Which labels are wrong, (N,)."""
        return self.labels != self.truth

    @property
    def fitted(self) -> float:
        """The share of the wrong labels that the network predicts."""
        return float((self.probabilities.argmax(1) == self.labels)[self.wrong].mean())

    @property
    def probabilities(self) -> np.ndarray:
        """The network's own, of the samples it was trained on, (N, K)."""
        logits = torch.from_numpy(self.features @ self.weight.T + self.bias)
        return logits.double().softmax(1).numpy()


@dataclass(frozen=True)
class Plan:
    """A data set and its perturbation.

    Attributes
    ----------
    name : of ``SETS``
    noise : of ``NOISES``
    seed : seeds have different samples, wrong labels and initial weights; of BBC News, whose 2,225 articles
        are too few for that, samples may be the same
    share : part of the labels that is wrong
    memorised : whether training goes on until the wrong labels are fitted
    """

    name: str
    noise: str
    seed: int
    share: float = 0.1
    memorised: bool = False

    @property
    def stem(self) -> str:
        """What its files are called."""
        more = ("" if self.share == 0.1 else f"-{self.share:g}") + ("-memorised" if self.memorised else "")
        return f"{self.name}-{self.noise}-{self.seed}{more}"


def planted(plan: Plan, cache: Path) -> Planted:
    """Train on wrong labels, once, and give what the network makes of its training set."""
    stored = _stored(plan, cache)
    if not stored.exists():
        torch.set_num_threads(1)
        inputs, truth, fit = SETS[plan.name](plan.seed)
        labels = flipped(truth.numpy(), plan, partners(inputs, truth))
        given = torch.from_numpy(labels)
        with open("/dev/null", "w") as nowhere, contextlib.redirect_stderr(nowhere):
            model, layer = fit(inputs, given, plan.seed)
        usual = _stored(replace(plan, memorised=False), cache)
        if not usual.exists():
            _store(usual, features_and_head(model, layer, inputs), labels, truth)
            _store_layers(usual, model, inputs, given)
        if plan.memorised:
            memorise(model, inputs, given, given != truth)
            _store(stored, features_and_head(model, layer, inputs), labels, truth)
            _store_layers(stored, model, inputs, given)
    with np.load(stored) as arrays:
        return Planted(**arrays)


def layers(plan: Plan, cache: Path) -> list[np.ndarray]:
    """Features (N, d) of every layer of a network that ``planted`` has trained, the last one's at the end."""
    with np.load(_stored(plan, cache).with_suffix(".layers.npz")) as arrays:
        ends = np.cumsum(arrays["widths"])[:-1]
        return np.split(arrays["features"].astype(np.float32), ends, axis=1)


def _store_layers(path: Path, model: nn.Module, inputs: Tensor, given: Tensor) -> None:
    bank = extract(model, (inputs, given), layers="all", show_progress=False)
    assert bank.layers is not None
    np.savez(
        path.with_suffix(".layers.npz"),
        features=bank.features.astype(np.float16),
        widths=np.array(bank.layers.widths),
    )


def _stored(plan: Plan, cache: Path) -> Path:
    return cache / "mislabelled" / f"{plan.stem}.npz"


def _store(path: Path, last: tuple[Tensor, nn.Linear], labels: np.ndarray, truth: Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    features, head = last
    np.savez(
        path,
        features=features.numpy(),
        labels=labels,
        truth=truth.numpy(),
        weight=head.weight.detach().numpy(),
        bias=head.bias.detach().numpy(),
    )


def memorise(model: nn.Module, inputs: Tensor, given: Tensor, wrong: Tensor) -> None:
    """Train on, at a constant rate and without augmentation, until the wrong labels are fitted."""
    rate = 2e-4 if isinstance(model, LastLayer) else 2e-3
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=rate)
    for _ in range(PATIENCE):
        model.train()
        for rows in torch.randperm(len(inputs)).split(64):
            loss = cross_entropy(model(inputs[rows]), given[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            found = torch.cat([model(part).argmax(1) for part in inputs[wrong].split(500)])
        if (found == given[wrong]).float().mean() >= FITTED:
            break


def partners(inputs: Tensor, truth: Tensor) -> np.ndarray:
    """Return the class that each class is confused with, (K,): the one whose mean input is nearest."""
    means = torch.stack([inputs[truth == c].float().mean(0).flatten() for c in range(int(truth.max()) + 1)])
    apart = torch.cdist(means, means).fill_diagonal_(torch.inf)
    return apart.argmin(1).numpy()


def flipped(truth: np.ndarray, plan: Plan, partner: np.ndarray) -> np.ndarray:
    """Make some labels wrong: any other class ("symmetric"), or the class's partner ("pairs")."""
    rng = np.random.default_rng(1000 + plan.seed)
    labels = truth.astype(np.int64).copy()
    rows = rng.choice(len(truth), round(plan.share * len(truth)), replace=False)
    shift = rng.integers(1, len(partner), len(rows))
    any_other = plan.noise == "symmetric"
    labels[rows] = (labels[rows] + shift) % len(partner) if any_other else partner[labels[rows]]
    return labels


Fit = Callable[[Tensor, Tensor, int], tuple[nn.Module, str]]
"""From inputs, labels and a seed to a trained network and the name of its last layer."""


def features_and_head(model: nn.Module, layer: str, inputs: Tensor) -> tuple[Tensor, nn.Linear]:
    """Features (N, d) of all inputs, and the last layer."""
    extractor = Extractor(model, layer)
    with torch.inference_mode():
        features = torch.cat([extractor(part) for part in inputs.split(500)])
    return features.clone(), model.get_submodule(layer)  # type: ignore[return-value]


def _digits(folder: str, seed: int, n: int = 6_000) -> tuple[Tensor, Tensor, Fit]:
    """Images of MNIST or Fashion-MNIST, those from seed·n on, and a small convolutional network."""
    rows = slice(seed * n, (seed + 1) * n)

    def load(name: str) -> np.ndarray:
        raw = (data_folder(folder) / f"train-{name}-ubyte.gz").read_bytes()
        return parse_idx(gzip.decompress(raw), name)[rows]

    images = torch.from_numpy(load("images-idx3").astype(np.float32) / 255)[:, None]
    labels = torch.from_numpy(load("labels-idx1").astype(np.int64))

    def fit(inputs: Tensor, given: Tensor, seed: int) -> tuple[nn.Module, str]:
        return mnist_cnn.fit(inputs, given, epochs=6, seed=seed), "head"

    return images, labels, fit


def _cifar(seed: int, n: int = 3_000) -> tuple[Tensor, Tensor, Fit]:
    """Images of the five training files in turn, and a ResNet of eight layers."""
    path, start = data_folder("cifar-10") / f"data_batch_{seed % 5 + 1}.bin", seed // 5 * n
    images, labels = (part[start:] for part in cifar10_resnet.read(path, start + n).tensors)

    def fit(inputs: Tensor, given: Tensor, seed: int) -> tuple[nn.Module, str]:
        return cifar10_resnet.fit(inputs, given, epochs=10, seed=seed), "fc"

    return images, labels, fit


class LastLayer(nn.Module):
    """MiniLM from its last layer on, over the states before it."""

    def __init__(self) -> None:
        super().__init__()
        model = bbc_minilm.untrained()
        self.block, self.pooler = model.bert.encoder.layer[5], model.bert.pooler
        self.classifier = model.classifier

    def forward(self, states: Tensor) -> Tensor:
        """Map states (B, T, 384), all of them 0 where a text is at its end, to logits (B, 5)."""
        shown = states.abs().sum(-1) > 0
        mask = torch.zeros(shown.shape).masked_fill(~shown, torch.finfo(torch.float32).min)
        after = self.block(states.float(), mask[:, None, None])
        after = after[0] if isinstance(after, tuple) else after
        logits: Tensor = self.classifier(self.pooler(after))
        return logits


@functools.cache
def _bbc(seed: int, n: int = 800) -> tuple[Tensor, Tensor, Fit]:
    """States of articles before MiniLM's last layer, which is trained with the pooler and the head."""
    everything = bbc_news.read(data_folder("bbc-news") / "bbc-news.csv")
    texts, topics = bbc_news.split(*everything, n, 0, seed)[0]
    encoder = bbc_minilm.untrained().eval()
    parts = []
    with torch.inference_mode():
        for start in range(0, n, 32):
            whole = bbc_minilm.tokens(texts[start : start + 32])
            tokens = {name: part[:, :LENGTH] for name, part in whole.items()}
            states = encoder.bert(**tokens, output_hidden_states=True).hidden_states[5]
            states = states * tokens["attention_mask"][..., None]
            parts.append(nn.functional.pad(states, (0, 0, 0, LENGTH - states.shape[1])))
    labels = torch.tensor([bbc_news.TOPICS.index(topic) for topic in topics])

    def fit(inputs: Tensor, given: Tensor, seed: int) -> tuple[nn.Module, str]:
        torch.manual_seed(seed)
        model = LastLayer().train()
        optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-4)
        for _ in range(3):
            for rows in torch.randperm(len(inputs)).split(32):
                loss = cross_entropy(model(inputs[rows]), given[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return model.eval(), "classifier"

    return torch.cat(parts).clone(), labels, fit


SETS: dict[str, Callable[[int], tuple[Tensor, Tensor, Fit]]] = {
    "fashion-mnist": lambda seed: _digits("fashion-mnist", seed),
    "mnist": lambda seed: _digits("mnist", seed),
    "cifar-10": _cifar,
    "bbc-news": _bbc,
}
