"""The data sets of the study, their networks, and how these are trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from examples import bbc_news, cifar10_resnet, mnist_cnn
from examples.places import data_folder
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.relabel.noise import CIFAR, FASHION, NEWS, Confusions
from whence.sample import SmallCNN

IMAGES = 10_000  # of a training set; also all test images
ARTICLES, HELD_OUT, WORDS = 1_225, 1_000, 5_000


class Samples(NamedTuple):
    """A training set and clean tests, with their true labels."""

    inputs: Tensor
    truth: Tensor
    tests: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Scene:
    """A data set, how its labels become wrong, and the network that is trained on it.

    Attributes
    ----------
    title : in tables and figures
    seeds : number of repetitions
    read : from a seed to the samples
    make : a new network
    confusions : which classes are taken for which
    epochs, batch, rate : of the training, by AdamW with a one-cycle rate
    change : applied to the inputs of each batch
    """

    title: str
    seeds: int
    read: Callable[[int], Samples]
    make: Callable[[], nn.Module]
    confusions: Confusions
    epochs: int
    batch: int
    rate: float
    change: Callable[[Tensor], Tensor] = lambda inputs: inputs

    def train(self, inputs: Tensor, labels: Tensor, seed: int) -> nn.Module:
        """Train a network from scratch; the seed sets initial weights, order and augmentation."""
        torch.manual_seed(seed)
        model = self.make().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.rate)
        steps = self.epochs * -(-len(inputs) // self.batch)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=self.rate, total_steps=steps)
        for _ in range(self.epochs):
            for rows in torch.randperm(len(inputs)).split(self.batch):
                loss = cross_entropy(model(self.change(inputs[rows])), labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        return model.to(memory_format=torch.contiguous_format).eval()  # type: ignore[no-any-return]


class ConvNet(nn.Module):
    """Three convolutions with BatchNorm, a hidden layer of 128 ReLU features, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 16, 32, 64)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 128), nn.ReLU())
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 3, 32, 32) to logits (B, 10)."""
        logits: Tensor = self.head(self.features(x))
        return logits


class WordNet(nn.Module):
    """A hidden layer of 64 ReLU features over the words of an article, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(WORDS, 64), nn.ReLU())
        self.head = nn.Linear(64, len(bbc_news.TOPICS))

    def forward(self, x: Tensor) -> Tensor:
        """Map articles (B, WORDS) to logits (B, 5)."""
        logits: Tensor = self.head(self.features(x))
        return logits


def _fashion(seed: int) -> Samples:
    """Return the seed-th 10,000 training images, and all test images."""
    images, labels = mnist_cnn.read("train", (seed + 1) * IMAGES, "fashion-mnist").tensors
    tests = mnist_cnn.read("t10k", IMAGES, "fashion-mnist").tensors
    return Samples(images[seed * IMAGES :].clone(), labels[seed * IMAGES :].clone(), *tests)


def _cifar(seed: int) -> Samples:
    """Return the 10,000 images of the seed-th training file, and all test images."""
    files = (f"data_batch_{seed + 1}.bin", "test_batch.bin")
    train, test = (cifar10_resnet.read(data_folder("cifar-10") / file, IMAGES).tensors for file in files)
    return Samples(*train, *test)


def _news(seed: int) -> Samples:
    """Return TF-IDF of a draw of articles; the vocabulary is that of the training articles."""
    everything = bbc_news.read(data_folder("bbc-news") / "bbc-news.csv")
    (texts, topics), (held, kinds) = bbc_news.split(*everything, ARTICLES, HELD_OUT, seed)
    words = TfidfVectorizer(max_features=WORDS, stop_words="english", sublinear_tf=True).fit(texts)

    def read(part: list[str]) -> Tensor:
        return torch.tensor(words.transform(part).toarray(), dtype=torch.float32)

    def number(names: list[str]) -> Tensor:
        return torch.tensor([bbc_news.TOPICS.index(name) for name in names])

    return Samples(read(texts), number(topics), read(held), number(kinds))


SCENES = {
    "fashion-mnist": Scene("Fashion-MNIST", 3, _fashion, SmallCNN, FASHION, epochs=5, batch=64, rate=4e-3),
    "cifar-10": Scene(
        "CIFAR-10", 3, _cifar, ConvNet, CIFAR, epochs=4, batch=64, rate=5e-3, change=cifar10_resnet.augmented
    ),
    "bbc-news": Scene("BBC News", 20, _news, WordNet, NEWS, epochs=5, batch=32, rate=3e-3),
}
