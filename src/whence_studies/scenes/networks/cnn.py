"""The convolutional network of the paper's experiments on MNIST, and narrow versions."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from whence.core.registry import register
from whence_studies.scenes.networks.base import Network


class CNN(nn.Module):
    """Three convolutions and three linear layers with ReLU, the paper's network for MNIST.

    Parameters
    ----------
    channels
        Colours of the images, (B, channels, H, W).
    n_classes
        Outputs.
    width
        Channels of the first convolution; the others have 2 and 4 times as many.
    hidden
        Outputs of the first two linear layers.
    side
        Height and width of the images.
    """

    def __init__(
        self, channels: int, n_classes: int, width: int, hidden: tuple[int, int], side: int = 28
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_in, n_out in ((channels, width), (width, 2 * width), (2 * width, 4 * width)):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(
            *layers,
            nn.Flatten(),  # (B, 4·width·(side/8)²)
            nn.Linear(4 * width * (side // 8) ** 2, hidden[0]),
            nn.ReLU(),
            nn.Linear(*hidden),
            nn.ReLU(),
        )
        self.head = nn.Linear(hidden[1], n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, side, side) to logits (B, n_classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


def _make(inputs: Tensor, n_classes: int, *, width: int, hidden: tuple[int, int]) -> CNN:
    return CNN(inputs.shape[1], n_classes, width, hidden, inputs.shape[2])


register(Network("cnn", partial(_make, width=32, hidden=(256, 128)), seconds=1.2e-3))
register(Network("narrow-cnn", partial(_make, width=8, hidden=(48, 32)), seconds=1.4e-4))
register(Network("cnn-100", partial(_make, width=12, hidden=(128, 100)), seconds=1.9e-4, slower=1.7))
