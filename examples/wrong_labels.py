"""Images with some wrong labels, and a network that learned the right ones, for other libraries."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.utils.data import TensorDataset

import sample
import whence_studies as evaluate


class Case(NamedTuple):
    """A trained network, images with labels, and the places of the wrong ones."""

    model: nn.Module
    data: TensorDataset
    wrong: list[int]


def case(n: int = 500, epochs: int = 2) -> Case:
    """Make a tenth of the labels of n embedded images of Fashion-MNIST wrong."""
    data = sample.load()
    images, labels = data.train_images[:n], data.train_labels[:n]
    flipped = evaluate.flip_labels(evaluate.view((images, labels)), 0.1, seed=0)
    model = sample.train(epochs=epochs, show_progress=False)
    return Case(model, TensorDataset(images, torch.as_tensor(flipped.labels)), flipped.flipped.tolist())
