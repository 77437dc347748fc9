"""CIFAR-10 with a ResNet of eight layers.

``python -m examples.cifar10_resnet`` trains it; ``whence fit`` takes ``build``, ``train`` and ``test``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad, relu
from torch.utils.data import TensorDataset
from tqdm import tqdm

from examples.places import data_folder, weights

N_TRAIN, N_TEST = 10_000, 2_000
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
WEIGHTS = "cifar10-resnet8.safetensors"
MEAN = np.array([0.491, 0.482, 0.447], dtype=np.float32)[:, None, None]
STD = np.array([0.247, 0.243, 0.262], dtype=np.float32)[:, None, None]


class Images(TensorDataset):
    """Images (N, 3, 32, 32) and their labels (N,), with the names of the classes."""

    classes = CLASSES


def read(path: Path, n: int) -> Images:
    """Read the first ``n`` images of a file: records of a label byte and 3×32×32 bytes of colour.

    Over the whole set, each colour has mean 0 and deviation 1.
    """
    records = np.fromfile(path, dtype=np.uint8, count=n * 3073)
    if records.size % 3073:
        raise SystemExit(f"{path} must hold records of 3,073 bytes. It ends within one.")
    records = records.reshape(-1, 3073)
    pixels = records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    labels = records[:, 0].astype(np.int64)
    return Images(torch.from_numpy((pixels - MEAN) / STD), torch.from_numpy(labels))


def train() -> Images:
    """Return the images that the network is trained on."""
    return read(data_folder("cifar-10") / "data_batch_1.bin", N_TRAIN)


def test() -> Images:
    """Return held-out images."""
    return read(data_folder("cifar-10") / "test_batch.bin", N_TEST)


class Block(nn.Module):
    """Two convolutions and the way around them."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(n_out)
        same = stride == 1 and n_in == n_out
        self.around = nn.Identity() if same else nn.Conv2d(n_in, n_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, n_in, H, W) to (B, n_out, H/stride, W/stride)."""
        y = relu(self.norm1(self.conv1(x)))
        return relu(self.norm2(self.conv2(y)) + self.around(x))


class ResNet8(nn.Module):
    """A stem, three blocks, the average over places, and a linear head."""

    def __init__(self, width: int = 16, n_classes: int = len(CLASSES)) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.blocks = nn.Sequential(
            Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2)
        )
        self.fc = nn.Linear(4 * width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 3, 32, 32) to logits (B, n_classes)."""
        logits: Tensor = self.fc(self.blocks(self.stem(x)).mean((2, 3)))
        return logits


def build() -> ResNet8:
    """Return the trained network."""
    model = ResNet8()
    model.load_state_dict(load_file(weights(WEIGHTS, made_by="python -m examples.cifar10_resnet")))
    return model.eval()


def augmented(images: Tensor) -> Tensor:
    """Mirror half of a batch, and shift all of it by up to two pixels."""
    flip = torch.rand(len(images)) < 0.5
    images = torch.where(flip[:, None, None, None], images.flip(3), images)
    down, right = torch.randint(0, 5, (2,)).tolist()
    return pad(images, (2, 2, 2, 2))[:, :, down : down + 32, right : right + 32]


def fit(images: Tensor, labels: Tensor, epochs: int, seed: int = 0, batch_size: int = 128) -> ResNet8:
    """Train a network with a one-cycle learning rate."""
    torch.manual_seed(seed)
    model = ResNet8().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    steps = epochs * -(-len(images) // batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=steps)
    with tqdm(total=steps, desc="Training", unit="step") as progress:
        for _ in range(epochs):
            for rows in torch.randperm(len(images)).split(batch_size):
                batch = augmented(images[rows]).contiguous(memory_format=torch.channels_last)
                loss = cross_entropy(model(batch), labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                progress.set_postfix(loss=f"{loss.item():.2f}")
                progress.update()
    return model.eval()


@torch.inference_mode()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images whose class the model finds."""
    predicted = torch.cat([model(batch).argmax(1) for batch in images.split(500)])
    return (predicted == labels).float().mean().item()


def main() -> None:
    """Train, measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    images, labels = train().tensors
    started = time.perf_counter()
    model = fit(images, labels, options.epochs, options.seed)
    seconds = time.perf_counter() - started
    path = weights(WEIGHTS)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)
    score = accuracy(model, *test().tensors)
    print(f"Trained on {len(images):,} images in {seconds:.0f} s, accuracy {score:.1%}, saved {path}")


if __name__ == "__main__":
    main()
