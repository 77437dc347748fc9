"""Sources of images: MNIST and Fashion-MNIST, CIFAR-10, Animals with Attributes 2, ImageNet, the sample."""

from __future__ import annotations

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
from whence.evaluate.scenes.datasets import Lazy, Source, draw, require
from whence.sample.dataset import parse_idx

_CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR_WHERE = "the binary version of CIFAR-10 at https://www.cs.toronto.edu/~kriz/cifar.html"
# Mean and deviation per colour.
_CIFAR = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SIDE = 224  # pixels per side of images from folders


def _embedded() -> dict[str, Any]:
    found = sample.load()
    return {
        "train": (found.train_images, found.train_labels),
        "test": (found.test_images, found.test_labels),
        "class_names": found.class_names,
    }


def _idx(folder: Path, *, name: str, class_names: tuple[str, ...], where: str) -> dict[str, Any]:
    here = folder / name
    require(here, f"the four files train-images-idx3-ubyte.gz … t10k-labels-idx1-ubyte.gz of {where}")
    found: dict[str, Any] = {"class_names": class_names}
    for part, split in (("train", "train"), ("test", "t10k")):
        images = _file(here, f"{split}-images-idx3-ubyte", where)
        labels = _file(here, f"{split}-labels-idx1-ubyte", where)
        found[part] = torch.from_numpy(images.astype(np.float32) / 255)[:, None], labels.astype(np.int64)
    return found


def _file(folder: Path, name: str, where: str) -> npt.NDArray[np.uint8]:
    """Read an IDX file, compressed or not."""
    packed = folder / f"{name}.gz"
    if packed.is_file():
        return parse_idx(gzip.decompress(packed.read_bytes()), str(packed))
    require(folder / name, f"{name}.gz of {where}")
    return parse_idx((folder / name).read_bytes(), str(folder / name))


def _cifar(folder: Path) -> dict[str, Any]:
    here = folder / "cifar-10"
    require(here, f"the six files data_batch_1.bin … test_batch.bin of {_CIFAR_WHERE}")
    train = np.concatenate([_records(here / f"data_batch_{k}.bin") for k in range(1, 6)])
    return {
        "train": _images(train),
        "test": _images(_records(here / "test_batch.bin")),
        "class_names": _CIFAR_CLASSES,
    }


def _images(records: npt.NDArray[np.uint8]) -> Lazy:
    pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32))
    return Lazy(records[:, 0].astype(np.int64), lambda i: _normalised(pixels[i], *_CIFAR))


def _records(path: Path) -> npt.NDArray[np.uint8]:
    """Read records of a label byte and 3×32×32 bytes of colour."""
    require(path, f"{path.name} of {_CIFAR_WHERE}")
    records = np.fromfile(path, dtype=np.uint8)
    if len(records) == 0 or len(records) % 3073:
        raise InvalidInputError(
            f"{path} must hold records of 3,073 bytes. Got {len(records):,} bytes; download the file again."
        )
    return records.reshape(-1, 3073)


def _folders(folder: Path, seed: int, *, name: str, how: str) -> dict[str, Any]:
    """Find the images; one in five of each class is held out."""
    require(folder / name, how)
    images = ImageFolder(folder / name)
    labels = np.array([images.classes.index(one) for one in images.labels])
    held_out = draw(labels, len(labels) // 5, seed, "test")
    rest = np.setdiff1d(np.arange(len(labels)), held_out)

    def some(places: Ints) -> Lazy:
        return Lazy(labels[places], lambda i: _image(images, int(places[i])))

    return {"train": some(rest), "test": some(held_out), "class_names": images.classes}


def _image(images: ImageFolder, place: int) -> Tensor:
    """Read an image (3, 224, 224): the shorter side scaled to 224 pixels, the middle kept."""
    image, _ = images[place]
    scale = _SIDE / min(image.size)
    image = image.resize((max(_SIDE, round(image.width * scale)), max(_SIDE, round(image.height * scale))))
    left, top = (image.width - _SIDE) // 2, (image.height - _SIDE) // 2
    pixels = np.asarray(image.crop((left, top, left + _SIDE, top + _SIDE))).transpose(2, 0, 1)
    return _normalised(torch.from_numpy(pixels.copy()), *_IMAGENET)


def _normalised(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Bring bytes (3, H, W) to mean 0 and deviation 1 per colour."""
    images = pixels.float().div_(255)
    return images.sub_(torch.tensor(mean)[:, None, None]).div_(torch.tensor(std)[:, None, None])


register(Source("sample", _embedded))
register(Source("cifar-10", _cifar))
for _name, _classes, _where in (
    ("mnist", tuple("0123456789"), "MNIST at http://yann.lecun.com/exdb/mnist"),
    (
        "fashion-mnist",
        sample.CLASS_NAMES,
        "Fashion-MNIST at https://github.com/zalandoresearch/fashion-mnist",
    ),
):
    register(Source(_name, partial(_idx, name=_name, class_names=_classes, where=_where)))
for _name, _how in {
    "awa2": "the folders of images per class, JPEGImages of Animals with Attributes 2 at "
    "https://cvml.ista.ac.at/AwA2",
    "imagenet": "the folders of images per class of ImageNet at https://image-net.org",
}.items():
    register(Source(_name, partial(_folders, name=_name, how=_how)))
