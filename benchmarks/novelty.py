"""Whether inputs are flagged that do not resemble the training data, and how often held-out ones are.

Protocol: a small CNN is trained on 5,000 images (MNIST, CIFAR-10) or on the 5,000 of the Fashion-MNIST
sample, one seed. Held-out inputs are 1,000 test images of the same set; of unlike inputs there are 300, but
for single images. The score is that of ``audit.novel_inputs`` at its defaults, by features and input, and by
features alone: AUC against the held-out inputs, and the share that is flagged, which for held-out inputs is
the rate of false alarms. The form of the score was chosen on these sets, by the first 4,000 test images and
networks of the same kind; the images that are held out here are the last of MNIST and CIFAR-10.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

import whence
from benchmarks.data import read_idx

N, HELD_OUT, TESTS = 5_000, 1_000, 300


def digits(data: Path, name: str, part: str, n: int) -> tuple[Tensor, Tensor]:
    x, y = (read_idx(data / name / f"{part}-{kind}-ubyte.gz")[-n:] for kind in ("images-idx3", "labels-idx1"))
    return torch.from_numpy(x.astype(np.float32) / 255)[:, None], torch.from_numpy(y.astype(np.int64))


def photos(data: Path, file: str, n: int) -> tuple[Tensor, Tensor]:
    rows = np.fromfile(data / "cifar-10" / file, np.uint8).reshape(-1, 3073)[-n:]
    x = torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255)
    return x, torch.from_numpy(rows[:, 0].astype(np.int64))


def network(x: Tensor, y: Tensor, epochs: int) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(x.shape[1], 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (x.shape[2] // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    return model.eval()


def square(shape: torch.Size, side: int, top: int, left: int) -> Tensor:
    x = torch.zeros(shape)
    x[..., top : top + side, left : left + side] = 1
    return x


def unlike(x: Tensor, foreign: dict[str, Tensor]) -> dict[str, Tensor]:
    """Make inputs that are unlike images x (n, channels, side, side)."""
    generator, one = torch.Generator().manual_seed(1), x[:1].shape
    sides = torch.randint(6, 21, (len(x),), generator=generator).tolist()
    places = [torch.randint(0, one[2] - side + 1, (2,), generator=generator).tolist() for side in sides]
    return {
        "Gaussian noise": (torch.randn(x.shape, generator=generator) * x.std() + x.mean()).clamp(0, 1),
        "uniform noise": torch.rand(x.shape, generator=generator),
        "a white square in the middle": square(one, 14, (one[2] - 14) // 2, (one[2] - 14) // 2),
        "white squares anywhere": torch.cat(
            [square(one, side, *place) for side, place in zip(sides, places, strict=True)]
        ),
        "all black": torch.zeros(one),
        "all grey": torch.full(one, 0.5),
        "all white": torch.ones(one),
        "inverted": 1 - x,
        "rotated by 90°": torch.rot90(x, 1, (2, 3)),
        **foreign,
    }


def measure(
    title: str, train: tuple[Tensor, Tensor], held_out: Tensor, foreign: dict[str, Tensor], epochs: int
) -> None:
    explainer = whence.DualDA(C=1e-3, metric="raw", show_progress=False).fit(network(*train, epochs), train)
    bank = whence.features.extract(explainer.model_.extractor.model, train, show_progress=False)
    tests = {"held-out": held_out, **unlike(held_out[:TESTS], foreign)}
    found = {}
    for name, x in tests.items():
        both = whence.audit.novel_inputs(explainer, x, training=bank)
        features = explainer.model_.read(x, 64).features
        alone = whence.audit.novel_inputs(explainer, features=features, training=bank)
        found[name] = [(one.scores, one.novel.mean()) for one in (alone, both)]
    for name, each in found.items():
        cells = []
        for (scores, flagged), (typical, _) in zip(each, found["held-out"], strict=True):
            truth = np.repeat([0, 1], [len(typical), len(scores)])
            auc = roc_auc_score(truth, np.concatenate([typical, scores]))
            cells += ["" if name == "held-out" else f"{auc:.3f}", f"{100 * flagged:.1f} %"]
        print(f"| {title} | {name} | {' | '.join(cells)} |", flush=True)


def run(data: Path) -> None:
    print("\n| training set | inputs | AUC, features alone | flagged | AUC, features and input | flagged |")
    print("|---|---|---|---|---|---|", flush=True)
    sample = whence.sample.load()
    mnist, clothes = digits(data, "mnist", "t10k", HELD_OUT)[0], sample.test_images
    measure("MNIST", digits(data, "mnist", "train", N), mnist, {"clothes": clothes[:TESTS]}, 4)
    train = sample.train_images, sample.train_labels
    measure("Fashion-MNIST", train, clothes[:HELD_OUT], {"digits": mnist[:TESTS]}, 4)
    coloured = pad(mnist[:TESTS], (2, 2, 2, 2)).expand(-1, 3, -1, -1)
    held_out = photos(data, "test_batch.bin", HELD_OUT)[0]
    measure("CIFAR-10", photos(data, "data_batch_1.bin", N), held_out, {"MNIST as RGB": coloured}, 8)
