"""A plain convolutional network for small colour images that learns in few steps on a CPU."""

from __future__ import annotations

from torch import Tensor, nn

from whence.core.registry import register
from whence_studies.scenes.networks.base import Network


class PlainCNN(nn.Module):
    """Convolutions with pooling and normalisation, and a linear head on the remaining image.

    Parameters
    ----------
    channels, n_classes
        Colours of the images, and outputs.
    widths
        Channels of each convolution; after each the side is halved, and once more before the head.
    side
        Height and width of the images.
    """

    def __init__(self, channels: int, n_classes: int, widths: tuple[int, ...], side: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_in, n_out in zip((channels, *widths), widths, strict=False):
            # Pooling first makes normalisation four times as cheap.
            conv = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False)
            layers += [conv, nn.MaxPool2d(2), nn.BatchNorm2d(n_out), nn.ReLU()]
        self.features = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten())
        left = side >> len(widths) + 1
        self.head = nn.Linear(widths[-1] * left**2, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, side, side) to logits (B, n_classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


def _make(inputs: Tensor, n_classes: int) -> PlainCNN:
    return PlainCNN(inputs.shape[1], n_classes, (16, 32, 64), inputs.shape[2])


register(Network("plain-cnn", _make, seconds=5e-4, slower=3.0))
