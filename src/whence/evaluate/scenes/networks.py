"""The networks of the evaluation, and their training by a fixed number of steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad, relu

from whence.core.tables import Count, Table
from whence.errors import InvalidInputError

_BATCH = 500  # inputs a forward pass when a model is only read


class CNN(nn.Module):
    """Three convolutions and three linear layers with ReLU, as the paper has it for MNIST.

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
    channels, n_classes
        Colours of the images, and outputs.
    width
        Channels of the first stage; every further one has twice as many and half the side.
    depths
        Blocks a stage: (1, 1, 1) is ResNet-8, (2, 2, 2, 2) is ResNet-18.
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


def _torchvision(name: str) -> Callable[[Tensor, int], nn.Module]:
    def build(inputs: Tensor, n_classes: int) -> nn.Module:
        try:
            from torchvision import models  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise InvalidInputError(
                f"'model.name' is {name!r}, which is a network of torchvision. Run: pip install torchvision"
            ) from error
        network: nn.Module = getattr(models, name)(num_classes=n_classes)
        return network

    return build


# How each network is made for a training set's inputs (N, …) and its number of classes.
_NETWORKS: dict[str, Callable[[Tensor, int], nn.Module]] = {
    "cnn": lambda x, k: CNN(x.shape[1], k, 32, (256, 128), x.shape[2]),
    "narrow-cnn": lambda x, k: CNN(x.shape[1], k, 8, (48, 32), x.shape[2]),
    "resnet8": lambda x, k: ResNet(x.shape[1], k, 8, (1, 1, 1)),
    "resnet18": lambda x, k: ResNet(x.shape[1], k, 64, (2, 2, 2, 2)),
    "resnet50": _torchvision("resnet50"),
    "vgg16": _torchvision("vgg16"),
}


def names() -> list[str]:
    """Names of the networks, sorted."""
    return sorted(_NETWORKS)


class Recipe(Table):
    """How a network is trained: by steps, not epochs, so that smaller sets are trained as long.

    Attributes
    ----------
    name : of the network, or ``module:name`` of a function of the user's that makes an untrained one
    steps, batch_size : gradient steps, and samples of each
    learning_rate : the largest, of one cycle of AdamW up and down to zero
    weight_decay : of AdamW
    augment : mirror half of the images, and shift them by up to a sixteenth
    device : where
    checkpoints : weights of a training that are kept, for methods that need them
    train : ``module:name`` of the user's ``train_fn(dataset, seed)`` that gives a trained model; None trains
        by the above
    """

    name: str
    steps: Count
    batch_size: Count = 64
    learning_rate: float = 0.01
    weight_decay: float = 1e-2
    augment: bool = False
    device: str = "cpu"
    checkpoints: int = 5
    train: str | None = None


@dataclass(frozen=True)
class Trained:
    """A trained model, its weights in the course of training, and the learning rate at each of these."""

    model: nn.Module
    checkpoints: list[dict[str, Tensor]] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)


def make(name: str, inputs: Tensor, n_classes: int) -> nn.Module:
    """Make an untrained network for inputs (N, …), its weights from torch's random state."""
    return _NETWORKS[name](inputs, n_classes)


def train(
    recipe: Recipe, model: nn.Module, inputs: Tensor, labels: Tensor, seed: int, n_checkpoints: int = 0
) -> Trained:
    """Train a network from its present weights.

    Parameters
    ----------
    recipe
        How to train.
    model
        What to train; it is changed.
    inputs, labels
        The training set, (N, …) and (N,) int64.
    seed
        Of the order of the samples. Equal seeds give equal weights on one machine and thread count.
    n_checkpoints
        Weights to keep, at equal distances, the last ones included.
    """
    images = inputs.ndim == 4
    if images:  # channels-last halves the time of small convolutions on a CPU
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(model.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.learning_rate, total_steps=recipe.steps + 1, pct_start=0.2
    )
    generator = torch.Generator().manual_seed(seed)
    due = {round(recipe.steps * (k + 1) / n_checkpoints) for k in range(n_checkpoints)}
    kept: list[tuple[dict[str, Tensor], float]] = []
    batches = _endless(len(inputs), recipe.batch_size, generator)
    model.train()
    for step in range(1, recipe.steps + 1):
        rows = next(batches)
        batch = _augmented(inputs[rows], generator) if recipe.augment and images else inputs[rows]
        loss = _loss(model, batch.to(recipe.device), labels[rows].to(recipe.device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        rate = schedule.get_last_lr()[0]
        optimizer.step()
        schedule.step()
        if step in due:
            kept.append((copy.deepcopy(model.state_dict()), float(rate)))
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    model.requires_grad_(True).eval()
    states = [{name: t.contiguous() for name, t in state.items()} for state, _ in kept]
    return Trained(model, states, [rate for _, rate in kept])


def _loss(model: nn.Module, batch: Tensor, labels: Tensor) -> Tensor:
    output = model(batch)
    return cross_entropy(getattr(output, "logits", output), labels)


def _endless(n: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Batches of places, permutation after permutation; a last part smaller than half a batch is left out."""
    while True:
        for rows in torch.split(torch.randperm(n, generator=generator), batch_size):
            if 2 * len(rows) >= min(batch_size, n):
                yield rows


def _augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror half of a batch, and shift all of it by up to a sixteenth of its side."""
    flip = torch.rand(len(images), generator=generator) < 0.5
    images = torch.where(flip[:, None, None, None], images.flip(3), images)
    side = images.shape[-1]
    by = side // 16
    down, right = torch.randint(0, 2 * by + 1, (2,), generator=generator).tolist()
    return pad(images, (by, by, by, by))[:, :, down : down + side, right : right + side]


@torch.inference_mode()
def logits(model: nn.Module, inputs: Tensor) -> Tensor:
    """Logits (N, K) of a model in evaluation mode, on the CPU."""
    device = next(model.parameters()).device
    found = [model(part.to(device)) for part in torch.split(inputs, _BATCH)]
    return torch.cat([getattr(output, "logits", output).cpu() for output in found])


def describe(model: nn.Module) -> dict[str, Any]:
    """Tell what a model is made of: its class and its number of parameters."""
    return {"class": type(model).__name__, "parameters": sum(p.numel() for p in model.parameters())}
