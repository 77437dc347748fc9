"""The demo's network and data, as named in the demo's configuration."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn

from whence.sample.dataset import load
from whence.sample.network import SmallCNN

MODEL = "model.safetensors"
"""The file of the trained network, in the demo's folder."""


def network(folder: Path) -> nn.Module:
    """Return the demo's trained network from a folder."""
    model = SmallCNN()
    model.load_state_dict(load_file(folder / MODEL))
    return model.eval()


def train() -> tuple[Tensor, Tensor]:
    """Return the embedded training images and their labels."""
    data = load()
    return data.train_images, data.train_labels


def test() -> tuple[Tensor, Tensor]:
    """Return the embedded test images and their labels."""
    data = load()
    return data.test_images, data.test_labels
