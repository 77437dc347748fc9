"""MNIST with three other questions than which digit: a number, one logit, and several labels at once.

- ``ink``: how much ink a digit has, the sum of its pixels: a regression, one output (B,)
- ``even``: whether it is even: one logit (B, 1)
- ``attributes``: is it even, is it above four, has it a loop, has it a straight stroke: four labels

``python -m examples.mnist_tasks ink`` trains one; ``whence fit`` takes ``ink_model``, ``ink_train``,
``ink_test`` and so on, and finds the task by the labels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from safetensors.torch import load_file, save_file
from sklearn.metrics import r2_score
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss
from torch.utils.data import TensorDataset
from tqdm import tqdm

from examples import mnist_cnn
from examples.places import weights
from whence.sample import SmallCNN

ATTRIBUTES = {"even": "02468", "above four": "56789", "loop": "0689", "straight stroke": "1457"}


class Images(TensorDataset):
    """Images (N, 1, 28, 28) in [0, 1] with other labels than their digits."""

    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """What is asked of a digit.

    Attributes
    ----------
    n_outputs : of the network
    flat : whether one output is given as (B,)
    label : of images and digits (N,)
    loss : of outputs and labels
    scale : of the outputs, where they begin
    names : of the labels, where they have some
    """

    n_outputs: int
    flat: bool
    label: Callable[[Tensor, Tensor], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]
    scale: float = 1.0
    names: tuple[str, ...] = ()


def _ink(images: Tensor, digits: Tensor) -> Tensor:
    return images.sum((1, 2, 3))


def _even(images: Tensor, digits: Tensor) -> Tensor:
    return (digits % 2 == 0).float()[:, None]


def _attributes(images: Tensor, digits: Tensor) -> Tensor:
    has = [torch.isin(digits, torch.tensor(list(map(int, of)))) for of in ATTRIBUTES.values()]
    return torch.stack(has, 1).float()


QUESTIONS = {
    "ink": Question(1, True, _ink, lambda z, y: mse_loss(z / 40, y / 40), 40.0),
    "even": Question(1, False, _even, binary_cross_entropy_with_logits, names=("odd", "even")),
    "attributes": Question(4, False, _attributes, binary_cross_entropy_with_logits, names=tuple(ATTRIBUTES)),
}


class Network(SmallCNN):
    """The small network with other outputs."""

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.flat = question.flat
        self.head = nn.Linear(self.head.in_features, question.n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 1, 28, 28) to outputs (B, K) or (B,)."""
        outputs = super().forward(x)
        return outputs[:, 0] if self.flat else outputs


def asked(name: str, digits: mnist_cnn.Digits) -> Images:
    """Return images with the labels of a question."""
    images, labels = digits.tensors
    data = Images(images, QUESTIONS[name].label(images, labels))
    data.classes = QUESTIONS[name].names
    return data


def built(name: str) -> Network:
    """Return a trained network."""
    model = Network(QUESTIONS[name])
    path = weights(f"mnist-{name}.safetensors", made_by=f"python -m examples.mnist_tasks {name}")
    model.load_state_dict(load_file(path))
    return model.eval()


def fit(name: str, data: Images, epochs: int, seed: int = 0) -> Network:
    """Train a network."""
    torch.manual_seed(seed)
    question, (images, labels) = QUESTIONS[name], data.tensors
    model = Network(question)
    if question.scale != 1:
        with torch.no_grad():
            model.head.weight *= question.scale
            model.head.bias.fill_(float(labels.mean()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in tqdm(range(epochs), desc="Training", unit="epoch"):
        for rows in torch.randperm(len(images)).split(64):
            loss = question.loss(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def measured(name: str, model: Network, data: Images) -> str:
    """Say how good a network is on a data set."""
    with torch.no_grad():
        outputs = torch.cat([model(part) for part in data.tensors[0].split(256)])
    truth = data.tensors[1]
    if name == "ink":
        return f"R² {r2_score(truth, outputs):.4f}"
    return f"{float(((outputs > 0) == truth.bool()).float().mean()):.2%} of labels right"


def ink_model() -> Network:
    """Return the network that predicts how much ink a digit has."""
    return built("ink")


def ink_train() -> Images:
    """Return the images it is trained on."""
    return asked("ink", mnist_cnn.train())


def ink_test() -> Images:
    """Return held-out images."""
    return asked("ink", mnist_cnn.test())


def even_model() -> Network:
    """Return the network that predicts whether a digit is even."""
    return built("even")


def even_train() -> Images:
    """Return the images it is trained on."""
    return asked("even", mnist_cnn.train())


def even_test() -> Images:
    """Return held-out images."""
    return asked("even", mnist_cnn.test())


def attributes_model() -> Network:
    """Return the network that predicts attributes of a digit."""
    return built("attributes")


def attributes_train() -> Images:
    """Return the images it is trained on."""
    return asked("attributes", mnist_cnn.train())


def attributes_test() -> Images:
    """Return held-out images."""
    return asked("attributes", mnist_cnn.test())


def main() -> None:
    """Train, measure and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data, started = asked(options.question, mnist_cnn.train()), time.perf_counter()
    model = fit(options.question, data, options.epochs, options.seed)
    seconds = time.perf_counter() - started
    path = weights(f"mnist-{options.question}.safetensors")
    save_file(model.state_dict(), path)
    score = measured(options.question, model, asked(options.question, mnist_cnn.test()))
    print(f"Trained on {len(data):,} images in {seconds:.0f} s, {score} on held-out ones, saved {path}")


if __name__ == "__main__":
    main()
