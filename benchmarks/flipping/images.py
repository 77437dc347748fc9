"""Pair flipping on images: networks, tests, and every baseline with every size of patch on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from whence import DualDA
from whence_studies import FlippingResult, explain_pairs

PATCHES, N_RANDOM = (1, 4), 2


class Case(NamedTuple):
    """A trained network with its training images (N, …) and labels (N,), and tests to explain."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    tests: Tensor
    steps: int


def digits(rows: slice) -> Case:
    """MNIST, the network of the example."""
    from examples import mnist_cnn

    return Case(mnist_cnn.build(), *mnist_cnn.train().tensors, mnist_cnn.test().tensors[0][rows], 20)


def clothes(rows: slice, cache: Path) -> Case:
    """Fashion-MNIST, a network as the example's for MNIST, trained once."""
    from examples import mnist_cnn

    images, labels = mnist_cnn.read("train", mnist_cnn.N_TRAIN, "fashion-mnist").tensors
    model = trained(cache / "fashion.safetensors", images, labels)
    tests = mnist_cnn.read("t10k", mnist_cnn.N_TEST, "fashion-mnist").tensors[0][rows]
    return Case(model, images, labels, tests, 20)


def trained(path: Path, images: Tensor, labels: Tensor) -> nn.Module:
    """Train the example's network on other grey images, or read its weights."""
    from examples import mnist_cnn

    from whence.sample import SmallCNN

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(mnist_cnn.fit(images, labels, epochs=6).state_dict(), path)
    model = SmallCNN()
    model.load_state_dict(load_file(path))
    return model.eval()


def photos(rows: slice) -> Case:
    """CIFAR-10, the ResNet of the example."""
    from examples import cifar10_resnet

    tests = cifar10_resnet.test().tensors[0][rows]
    return Case(cifar10_resnet.build(), *cifar10_resnet.train().tensors, tests, 10)


def flipped(case: Case, methods: Mapping[str, Any]) -> dict[str, FlippingResult]:
    """Flip the strongest proponent and opponent of each test, by column."""
    explainer = DualDA(show_progress=False).fit(case.model, (case.images, case.labels))
    pairs = explain_pairs(explainer, case.tests, methods=methods)
    baselines: dict[str, Any] = {"mean": "mean", "blur": "blur", "training mean": case.images.mean(0)}
    return {
        f"{side}, {name}, {patch}×{patch}": pairs.flip(
            side, steps=case.steps, patch=patch, baseline=baseline, n_random=N_RANDOM
        )
        for side in ("test", "train")
        for name, baseline in baselines.items()
        for patch in PATCHES
    }


def width(images: Tensor) -> float:
    """Return the range of images, which noise is a share of."""
    return float(images.max() - images.min()) if len(images) else torch.nan
