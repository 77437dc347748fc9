"""Figures of explanations with relevance maps: the images of docs/research/explanations.md.

``python -m examples.explanations`` makes all of them, ``python -m examples.explanations fashion mnist`` some.
The networks for CIFAR-10 and BBC News are those of the other examples, which train them.
"""

from __future__ import annotations

import argparse
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from tqdm import tqdm

import whence
from examples.places import data_folder
from whence import sample
from whence.explanation import Explanation
from whence.sample.dataset import parse_idx

OUT = Path("docs/images")
CACHE = "whence-cache"


def fashion() -> Explanation:
    """Explain a coat of the embedded data, which might as well be a shirt."""
    data = sample.load()
    explainer = whence.DualDA().fit(
        sample.train(), (data.train_images, data.train_labels), class_names=data.class_names
    )
    return explainer.explain(data.test_images[1:2], truth=data.test_labels[1:2])[0]


def mnist() -> Explanation:
    """Explain a digit, with a small network trained on 6,000 of them."""
    images, labels = digits("train", 6_000)
    tests, truth = digits("t10k", 200)
    explainer = whence.DualDA().fit(trained(images, labels), (images, labels))
    return explainer.explain(tests[8:9], truth=truth[8:9])[0]


def cifar10() -> Explanation:
    """Explain a dog, with the ResNet of ``examples.cifar10_resnet``."""
    from examples import cifar10_resnet

    tests, truth = cifar10_resnet.test().tensors
    explainer = whence.DualDA().fit(cifar10_resnet.build(), cifar10_resnet.train(), cache_dir=CACHE)
    return explainer.explain(tests[16:17], truth=truth[16:17])[0]


def bbc_minilm() -> Explanation:
    """Explain an article on the business of a football club, with the MiniLM of ``examples.bbc_minilm``."""
    from examples import bbc_minilm

    return of_text(bbc_minilm, 26, batch_size=256)


def bbc_smollm2() -> Explanation:
    """Explain an article, with the SmolLM2 of ``examples.smollm2``."""
    from examples import smollm2

    return of_text(smollm2, 0, batch_size=16)


def of_text(example: Any, number: int, batch_size: int) -> Explanation:
    """Explain one held-out article. The tokeniser itself is given, so that tokens are shown as words."""
    tokeniser = example.tokeniser()
    tokeniser.model_max_length = example.LENGTH
    texts, topics = example.test()
    explainer = whence.DualDA(batch_size=batch_size).fit(
        example.build(), example.train(), tokenizer=tokeniser, cache_dir=CACHE
    )
    truth = [example.TOPICS.index(topics[number])]
    return explainer.explain([texts[number]], k=3, truth=truth)[0]


def digits(part: str, n: int) -> tuple[Tensor, Tensor]:
    """Read the first ``n`` images (n, 1, 28, 28) of MNIST, in [0, 1], and their labels."""
    folder = data_folder("mnist")
    images, labels = (
        parse_idx(gzip.decompress((folder / name).read_bytes()), name)[:n]
        for name in (f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz")
    )
    return torch.from_numpy(images / 255).float()[:, None], torch.from_numpy(labels.astype("int64"))


def trained(images: Tensor, labels: Tensor, epochs: int = 4, seed: int = 0) -> nn.Module:
    """Train a small network."""
    torch.manual_seed(seed)
    model = sample.SmallCNN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in tqdm(range(epochs), desc="Training", unit="epoch"):
        for rows in torch.randperm(len(images)).split(64):
            loss = cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.eval()


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG of 256 colours, which is small and looks the same."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=150)
    with Image.open(buffer) as image:
        image.convert("RGB").quantize(256).save(path, optimize=True)


FIGURES: dict[str, Callable[[], Explanation]] = {
    "fashion": fashion,
    "mnist": mnist,
    "cifar10": cifar10,
    "bbc_minilm": bbc_minilm,
    "bbc_smollm2": bbc_smollm2,
}


def main() -> None:
    """Make the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(FIGURES)}; all without")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    unknown = set(options.names) - set(FIGURES)
    if unknown:
        parser.error(f"there is no figure {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or FIGURES:
        path = options.out / f"xda_{name}.png"
        save(FIGURES[name]().plot(), path)
        print(f"Wrote {path}, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
