"""Residual networks for small images."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn
from torch.nn.functional import relu

from whence.core.registry import register
from whence_studies.scenes.networks.base import Network


class _Block(nn.Module):
    """Two convolutions with BatchNorm and a shortcut connection."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(n_out)
        around = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))
        self.around = nn.Identity() if stride == 1 and n_in == n_out else around

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, n_in, H, W) to (B, n_out, H/stride, W/stride)."""
        y = relu(self.norm1(self.conv1(x)))
        return relu(self.norm2(self.conv2(y)) + self.around(x))


class ResNet(nn.Module):
    """A residual network for small images: a stem, stages of blocks, global average pooling, a linear head.

    Parameters
    ----------
    channels, n_classes
        Colours of the images, and outputs.
    width
        Channels of the first stage; each further stage has twice as many and half the side.
    depths
        Blocks per stage: (1, 1, 1) is ResNet-8, (2, 2, 2, 2) is ResNet-18.
    """

    def __init__(self, channels: int, n_classes: int, width: int, depths: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        blocks, n_in = [], width
        for stage, depth in enumerate(depths):
            for place in range(depth):
                blocks.append(_Block(n_in, width << stage, 2 if stage and not place else 1))
                n_in = width << stage
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(n_in, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, H, W) to logits (B, n_classes)."""
        logits: Tensor = self.head(self.blocks(self.stem(x)).mean((2, 3)))
        return logits


def _make(inputs: Tensor, n_classes: int, *, width: int, depths: tuple[int, ...]) -> ResNet:
    return ResNet(inputs.shape[1], n_classes, width, depths)


register(Network("resnet8", partial(_make, width=8, depths=(1, 1, 1)), seconds=6.5e-4))
register(Network("resnet18", partial(_make, width=64, depths=(2, 2, 2, 2)), seconds=2.5e-2))
