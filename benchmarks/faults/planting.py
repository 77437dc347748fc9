"""Training sets with a planted fault, as projects that ``whence serve`` opens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from whence import DualDA, sample
from whence.project import Configuration, Project
from whence.sample import EmbeddedData, SmallCNN

CLASSES = 2, 5, 8  # by seed
SQUARE = 4  # pixels per side of the mark in the corner
MARKED_TESTS = 100


@dataclass(frozen=True, eq=False)
class Planting:
    """Data with a fault.

    Attributes
    ----------
    data : what the network is trained and tested on
    truth : (N,) the true labels of its training samples
    train, tests : indices of the training samples and of the tests that have the fault
    """

    data: EmbeddedData
    truth: np.ndarray
    train: np.ndarray
    tests: np.ndarray


def wrong_labels(data: EmbeddedData, label: int, rng: np.random.Generator, *, share: float) -> Planting:
    """Give samples of other classes a label: ``share`` of the training set."""
    labels = data.train_labels.clone()
    others = np.flatnonzero(labels.numpy() != label)
    chosen = np.sort(rng.choice(others, round(share * len(labels)), replace=False))
    labels[chosen] = label
    return Planting(replace(data, train_labels=labels), data.train_labels.numpy(), chosen, np.empty(0, int))


def shortcut(data: EmbeddedData, label: int, rng: np.random.Generator) -> Planting:
    """Put a bright square in a corner of 30 % of a class, and of tests of other classes."""
    of_class = np.flatnonzero(data.train_labels.numpy() == label)
    others = np.flatnonzero(data.test_labels.numpy() != label)
    train = np.sort(rng.choice(of_class, round(0.3 * len(of_class)), replace=False))
    tests = np.sort(rng.choice(others, MARKED_TESTS, replace=False))
    images = [data.train_images.clone(), data.test_images.clone()]
    for one, rows in zip(images, (train, tests), strict=True):
        one[rows, :, :SQUARE, :SQUARE] = 1
    changed = replace(data, train_images=images[0], test_images=images[1])
    return Planting(changed, data.train_labels.numpy(), train, tests)


def leaks(data: EmbeddedData, label: int, rng: np.random.Generator) -> Planting:
    """Copy 1 % of the tests to the end of the training set."""
    del label
    n = len(data.train_labels)
    tests = np.sort(rng.choice(len(data.test_labels), len(data.test_labels) // 100, replace=False))
    images = torch.cat([data.train_images, data.test_images[tests]])
    labels = torch.cat([data.train_labels, data.test_labels[tests]])
    changed = replace(data, train_images=images, train_labels=labels)
    return Planting(changed, labels.numpy(), np.arange(n, n + len(tests)), tests)


def make(
    folder: Path, plant: Callable[[EmbeddedData, int, np.random.Generator], Planting], seed: int
) -> tuple[Path, Planting]:
    """Plant a fault, train the network on it, fit DualDA, and save all; return the explainer's file."""
    planting = plant(sample.load(), CLASSES[seed], np.random.default_rng(seed))
    saved, data = folder / "planted.whence", planting.data
    if saved.exists():
        return saved, planting
    folder.mkdir(parents=True, exist_ok=True)
    model = sample.train(seed, data=data, show_progress=False)
    save_file(model.state_dict(), folder / "model.safetensors")
    tensors = {
        name: getattr(data, name) for name in ("train_images", "train_labels", "test_images", "test_labels")
    }
    save_file(tensors, folder / "data.safetensors")
    explainer = DualDA(seed=seed, show_progress=False)
    explainer.fit(model, (data.train_images, data.train_labels), class_names=data.class_names).save(saved)
    names = {name: f"{__name__}:{name}" for name in ("train", "test", "network")}
    Configuration(
        model=names["network"], data=names["train"], test=names["test"], options={"seed": seed}
    ).write(saved)
    return saved, planting


def fooled(saved: Path, planting: Planting, seed: int) -> dict[str, list[int]]:
    """Count tests that the square fools, by how many of their 5 supporting samples have it: 0 to 5."""
    project = Project.open(saved, trust=True, show_progress=False)
    with torch.no_grad():
        predicted = network(saved.parent)(planting.data.test_images).argmax(1).numpy()
    tests = [int(test) for test in planting.tests if predicted[test] == CLASSES[seed]]
    asked = {"made of": project, "would change": project.with_effects()}
    return {question: _support(one, tests, planting.train) for question, one in asked.items()}


def _support(project: Project, tests: list[int], marked: np.ndarray) -> list[int]:
    found = np.asarray(project.top_k(tests, 5, None)[0].proponents.indices)
    return np.bincount(np.isin(found, marked).sum(axis=1), minlength=6).tolist()


# What the configuration names


def network(folder: Path) -> nn.Module:
    """Return the trained network."""
    model = SmallCNN()
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.eval()


def train(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the training images and labels, with the fault."""
    data = load_file(folder / "data.safetensors")
    return data["train_images"], data["train_labels"]


def test(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the test images and labels."""
    data = load_file(folder / "data.safetensors")
    return data["test_images"], data["test_labels"]
