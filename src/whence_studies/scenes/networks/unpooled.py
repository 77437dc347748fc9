"""The network of the DualXDA authors' code for MNIST: convolutions without pooling, and 100 features."""

from __future__ import annotations

from torch import Tensor, nn

from whence.core.registry import register
from whence_studies.scenes.networks.base import Network

_CHANNELS = (5, 10, 5)
_HIDDEN = (500, 100)


class UnpooledCNN(nn.Module):
    """Three convolutions without pooling or padding, two linear layers without biases, and a head.

    Parameters
    ----------
    channels, n_classes
        Colours of the images, and outputs.
    side
        Height and width of the images.
    """

    def __init__(self, channels: int, n_classes: int, side: int = 28) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_in, n_out in zip((channels, *_CHANNELS), _CHANNELS, strict=False):
            layers += [nn.Conv2d(n_in, n_out, 3, bias=False), nn.ReLU()]
        left = _CHANNELS[-1] * (side - 2 * len(_CHANNELS)) ** 2
        layers.append(nn.Flatten())
        for n_in, n_out in zip((left, *_HIDDEN), _HIDDEN, strict=False):
            layers += [nn.Linear(n_in, n_out, bias=False), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(_HIDDEN[-1], n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, side, side) to logits (B, n_classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


def _make(inputs: Tensor, n_classes: int) -> UnpooledCNN:
    return UnpooledCNN(inputs.shape[1], n_classes, inputs.shape[2])


register(Network("unpooled-cnn", _make, seconds=3.5e-4, slower=14.0))
