"""The data sources of the evaluation, in the formats of their authors."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from whence import sample
from whence.core.arrays import Ints
from whence.core.registry import register
from whence.data.sources import ImageFolder
from whence.errors import InvalidInputError
from whence.sample.dataset import parse_idx
from whence_studies.scenes.datasets import Lazy, Source, draw, require

_WORDS = 30  # words per text: a language model reads all of them
_SIDE = 224  # pixels per side of photographs
_COLOURS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # means and deviations of photographs
_CIFAR_COLOURS = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)
_CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR = "the binary version of CIFAR-10 at https://www.cs.toronto.edu/~kriz/cifar.html"


def _read_sample() -> dict[str, Any]:
    """Read the embedded part of Fashion-MNIST."""
    embedded = sample.load()
    return {
        "train": (embedded.train_images, embedded.train_labels),
        "test": (embedded.test_images, embedded.test_labels),
        "class_names": embedded.class_names,
    }


def _read_idx(folder: Path, *, name: str, class_names: tuple[str, ...], where: str) -> dict[str, Any]:
    """Read MNIST or Fashion-MNIST."""
    here = folder / name
    require(here, f"the four files train-images-idx3-ubyte.gz … t10k-labels-idx1-ubyte.gz of {where}")
    parts: dict[str, Any] = {"class_names": class_names}
    for part, split in (("train", "train"), ("test", "t10k")):
        images = _idx_file(here, f"{split}-images-idx3-ubyte", where)
        labels = _idx_file(here, f"{split}-labels-idx1-ubyte", where)
        parts[part] = torch.from_numpy(images.astype(np.float32) / 255)[:, None], labels.astype(np.int64)
    return parts


def _idx_file(folder: Path, name: str, where: str) -> npt.NDArray[np.uint8]:
    """Read an IDX file, compressed or not."""
    packed = folder / f"{name}.gz"
    if packed.is_file():
        return parse_idx(gzip.decompress(packed.read_bytes()), str(packed))
    require(folder / name, f"{name}.gz of {where}")
    return parse_idx((folder / name).read_bytes(), str(folder / name))


def _read_cifar10(folder: Path) -> dict[str, Any]:
    """Read CIFAR-10 in its binary version."""
    here = folder / "cifar-10"
    require(here, f"the six files data_batch_1.bin … test_batch.bin of {_CIFAR}")
    train = np.concatenate([_records(here / f"data_batch_{k}.bin") for k in range(1, 6)])
    return {
        "train": _cifar_images(train),
        "test": _cifar_images(_records(here / "test_batch.bin")),
        "class_names": _CIFAR_CLASSES,
    }


def _cifar_images(records: npt.NDArray[np.uint8]) -> Lazy:
    pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32))
    return Lazy(records[:, 0].astype(np.int64), lambda i: _normalised(pixels[i], *_CIFAR_COLOURS))


def _records(path: Path) -> npt.NDArray[np.uint8]:
    """Read records of a label byte and 3×32×32 bytes of colour."""
    require(path, f"{path.name} of {_CIFAR}")
    records = np.fromfile(path, dtype=np.uint8)
    if len(records) == 0 or len(records) % 3073:
        raise InvalidInputError(
            f"{path} must hold records of 3,073 bytes. Got {len(records):,} bytes; download the file again."
        )
    return records.reshape(-1, 3073)


def _read_folder(folder: Path, seed: int, *, name: str, how: str) -> dict[str, Any]:
    """Read a folder of images per class; a fifth of each class is held out."""
    require(folder / name, how)
    images = ImageFolder(folder / name)
    labels = np.array([images.classes.index(one) for one in images.labels])
    held_out = draw(labels, len(labels) // 5, seed, "test")
    rest = np.setdiff1d(np.arange(len(labels)), held_out)

    def part(places: Ints) -> Lazy:
        return Lazy(labels[places], lambda i: _image(images, int(places[i])))

    return {"train": part(rest), "test": part(held_out), "class_names": images.classes}


def _image(images: ImageFolder, place: int) -> Tensor:
    """Read an image (3, 224, 224): the shorter side scaled to 224 pixels, cropped to the centre."""
    image, _ = images[place]
    scale = _SIDE / min(image.size)
    image = image.resize((max(_SIDE, round(image.width * scale)), max(_SIDE, round(image.height * scale))))
    left, top = (image.width - _SIDE) // 2, (image.height - _SIDE) // 2
    pixels = np.asarray(image.crop((left, top, left + _SIDE, top + _SIDE))).transpose(2, 0, 1)
    return _normalised(torch.from_numpy(pixels.copy()), *_COLOURS)


def _normalised(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Scale bytes (3, H, W) to mean 0 and standard deviation 1 per colour."""
    images = pixels.float().div_(255)
    return images.sub_(torch.tensor(mean)[:, None, None]).div_(torch.tensor(std)[:, None, None])


def _read_bbc(folder: Path, n_test: int | None, seed: int) -> dict[str, Any]:
    """Read the beginnings of BBC News articles; there is no official split, so tests are drawn first."""
    path = folder / "bbc-news" / "bbc-news.csv"
    require(
        path,
        "a CSV file bbc-news.csv with the columns label and text, of the articles at "
        "http://mlg.ucd.ie/datasets/bbc.html",
    )
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"label", "text"} <= rows[0].keys():
        raise InvalidInputError(f"{path} must have the columns label and text, and at least one row.")
    topics = sorted({row["label"] for row in rows})
    texts = [" ".join(row["text"].split()[:_WORDS]) for row in rows]
    labels = np.array([topics.index(row["label"]) for row in rows])
    held_out = draw(labels, len(rows) // 5 if n_test is None else n_test, seed, "test")
    rest = np.setdiff1d(np.arange(len(rows)), held_out)
    train, test = (([texts[i] for i in places], labels[places]) for places in (rest, held_out))
    return {"train": train, "test": test, "class_names": topics}


register(Source("sample", _read_sample))
register(Source("cifar-10", _read_cifar10))
register(Source("bbc-news", _read_bbc))
for _name, _classes, _where in (
    ("mnist", tuple("0123456789"), "MNIST at http://yann.lecun.com/exdb/mnist"),
    (
        "fashion-mnist",
        sample.CLASS_NAMES,
        "Fashion-MNIST at https://github.com/zalandoresearch/fashion-mnist",
    ),
):
    register(Source(_name, partial(_read_idx, name=_name, class_names=_classes, where=_where)))
for _name, _how in {
    "awa2": "the folders of images per class, JPEGImages of Animals with Attributes 2 at "
    "https://cvml.ista.ac.at/AwA2",
    "imagenet": "the folders of images per class of ImageNet at https://image-net.org",
}.items():
    register(Source(_name, partial(_read_folder, name=_name, how=_how)))
