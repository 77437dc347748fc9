"""A convolutional network for small colour images that learns fast: its first layer whitens patches."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from whence.core.registry import register
from whence_studies.scenes.networks.base import Network

_SIDE = 2  # side of the whitened patches
_IMAGES = 500  # images whose patches are used
_LEAST = 5e-4  # added to the variance of each direction, against noise


class WhitenedCNN(nn.Module):
    """Blocks of two convolutions on whitened patches, global max pooling, and a head.

    The first layer is fixed: the principal directions of the training images' 2 × 2 patches, scaled to
    variance 1, and their opposites. Later layers need not learn to undo the correlation of neighbouring
    pixels.

    Parameters
    ----------
    images
        (N, channels, side, side), images of the training set.
    n_classes
        Outputs.
    widths
        Channels of each block; each halves the side.
    """

    white: Tensor

    def __init__(self, images: Tensor, n_classes: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        filters = whitening(images)
        self.register_buffer("white", torch.cat([filters, -filters]))
        layers: list[nn.Module] = [nn.ReLU()]
        for n_in, n_out in zip((len(self.white), *widths), widths, strict=False):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.MaxPool2d(2)]
            layers += [nn.BatchNorm2d(n_out), nn.ReLU()]
            layers += [nn.Conv2d(n_out, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()]
        left = (images.shape[-1] - 1) >> len(widths)
        self.features = nn.Sequential(*layers, nn.MaxPool2d(left), nn.Flatten())
        self.head = nn.Linear(widths[-1], n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, side, side) to logits (B, n_classes)."""
        logits: Tensor = self.head(self.features(conv2d(x, self.white)))
        return logits


def whitening(images: Tensor) -> Tensor:
    """Compute filters (c·4, c, 2, 2) for images (N, c, H, W), with uncorrelated outputs of variance 1."""
    some = images[:: max(1, len(images) // _IMAGES)].double()
    patches = nn.functional.unfold(some, _SIDE).movedim(1, 2).flatten(0, 1)  # (patches, c·4)
    variances, directions = torch.linalg.eigh(torch.cov(patches.T))
    scaled: Tensor = directions / (variances.clamp(min=0) + _LEAST).sqrt()
    return scaled.T.reshape(-1, images.shape[1], _SIDE, _SIDE).float()


def _make(inputs: Tensor, n_classes: int, *, widths: tuple[int, ...]) -> WhitenedCNN:
    return WhitenedCNN(inputs, n_classes, widths)


register(Network("whitened-cnn", partial(_make, widths=(48, 128, 128)), seconds=3e-3, slower=26.0))
