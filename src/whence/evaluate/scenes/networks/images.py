"""Networks of images: the paper's convolutional one for MNIST and a narrow one, ResNets, torchvision's."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn
from torch.nn.functional import relu

from whence.core.registry import register
from whence.errors import InvalidInputError
from whence.evaluate.scenes.networks.base import Network


class CNN(nn.Module):
    """Three convolutions and three linear layers with ReLU, as the paper has it for MNIST.

    Parameters
    ----------
    inputs
        Square images (N, channels, side, side) that it is made for.
    n_classes
        Outputs.
    width
        Channels of the first convolution; the others have 2 and 4 times as many.
    hidden
        Outputs of the first two linear layers.
    """

    def __init__(self, inputs: Tensor, n_classes: int, width: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        channels, side = inputs.shape[1:3]
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


class _Block(nn.Module):
    """Two convolutions with BatchNorm and the way around them."""

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
    """A residual network for small images: a stem, stages of blocks, the mean over places, a linear head.

    Parameters
    ----------
    inputs, n_classes
        Images (N, channels, H, W) that it is made for, and outputs.
    width
        Channels of the first stage; every further one has twice as many and half the side.
    depths
        Blocks per stage: (1, 1, 1) is ResNet-8, (2, 2, 2, 2) is ResNet-18.
    """

    def __init__(self, inputs: Tensor, n_classes: int, width: int, depths: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(inputs.shape[1], width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
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


def _torchvision(n_classes: int, *, name: str) -> nn.Module:
    try:
        from torchvision import models  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise InvalidInputError(
            f"'model.name' is {name!r}, which is a network of torchvision. Run: pip install torchvision"
        ) from error
    network: nn.Module = getattr(models, name)(num_classes=n_classes)
    return network


register(Network("cnn", partial(CNN, width=32, hidden=(256, 128)), seconds=1.2e-3))
register(Network("narrow-cnn", partial(CNN, width=8, hidden=(48, 32)), seconds=1.4e-4))
register(Network("resnet8", partial(ResNet, width=8, depths=(1, 1, 1)), seconds=6.5e-4))
register(Network("resnet18", partial(ResNet, width=64, depths=(2, 2, 2, 2)), seconds=2.5e-2))
for _name, _seconds in (("resnet50", 3e-1), ("vgg16", 8e-1)):
    register(Network(_name, partial(_torchvision, name=_name), _seconds))
