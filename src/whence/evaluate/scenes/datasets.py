"""Data sets of the evaluation, read in the formats their authors publish."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from whence import sample
from whence.core.naming import find
from whence.data.folder import ImageFolder
from whence.errors import InvalidInputError
from whence.evaluate.scenes.views import view
from whence.sample.dataset import parse_idx

Inputs = Tensor | list[str]
Labels = npt.NDArray[np.int64]

_CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR_MEAN, _CIFAR_STD = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_WORDS = 30  # of a text that are kept: the length of a short report, all of which a language model reads
_SIDE = 224  # pixels a side of the images that are read from folders


@dataclass(frozen=True)
class Part:
    """Samples of a data set: inputs, a tensor (N, …) or texts, and the label of each."""

    inputs: Inputs
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, places: npt.NDArray[np.int64]) -> Part:
        """Give some of the samples, in the order of ``places``."""
        if isinstance(self.inputs, Tensor):
            return Part(self.inputs[torch.from_numpy(places)], self.labels[places])
        return Part([self.inputs[i] for i in places], self.labels[places])


@dataclass(frozen=True)
class Data:
    """A training set, held-out samples, and the names of the classes."""

    train: Part
    test: Part
    class_names: tuple[str, ...]


def default_folder() -> Path:
    """Give the folder with a subfolder a data set: ``WHENCE_DATA``, or ``~/.cache/whence/data``."""
    return Path(os.environ.get("WHENCE_DATA") or "~/.cache/whence/data").expanduser()


def names() -> list[str]:
    """Names of the data sets, sorted."""
    return sorted(_READERS)


def load(name: str, folder: Path, n_train: int | None, n_test: int | None, seed: int) -> Data:
    """Read a data set and draw samples of it, as many of each class as there are.

    Parameters
    ----------
    name
        One of ``names()``, or ``module:name`` of a function of the user's that gives a mapping with
        ``train`` and ``test``, each inputs and labels or a torch data set of such pairs, and perhaps
        ``class_names``.
    folder
        Has a subfolder a data set, in its authors' format.
    n_train, n_test
        How many to draw; None takes all.
    seed
        Of the draw.

    Examples
    --------
    >>> data = load("sample", Path(), 100, 20, seed=0)
    >>> tuple(data.train.inputs.shape), np.bincount(data.test.labels).tolist()
    ((100, 1, 28, 28), [2, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    """
    if ":" in name:
        return _own(name, folder, n_train, n_test, seed)
    if name not in _READERS:
        raise InvalidInputError(f"'data.name' must be one of {', '.join(names())}. Got {name!r}.")
    return _READERS[name](folder / name, n_train, n_test, seed)


def draw(labels: Labels, size: int | None, seed: int, what: str) -> npt.NDArray[np.int64]:
    """Sorted places of ``size`` samples, as many of each class as far as the classes have enough."""
    if size is None:
        return np.arange(len(labels))
    if size > len(labels):
        raise InvalidInputError(f"'{what}' must be at most {len(labels)}, the samples there are. Got {size}.")
    order = np.random.default_rng(seed).permutation(len(labels))
    shuffled = labels[order]
    turn = np.empty(len(labels), dtype=np.int64)  # how many of its class come before a sample
    for c in np.unique(shuffled):
        mine = shuffled == c
        turn[mine] = np.arange(mine.sum())
    return np.sort(order[np.argsort(turn, kind="stable")[:size]])


def _drawn(
    train: Part, test: Part, n_train: int | None, n_test: int | None, seed: int, class_names: Sequence[str]
) -> Data:
    return Data(
        train.take(draw(train.labels, n_train, seed, "train")),
        test.take(draw(test.labels, n_test, seed, "test")),
        tuple(class_names),
    )


def _own(name: str, folder: Path, n_train: int | None, n_test: int | None, seed: int) -> Data:
    """Draw from what a function of the user's gives; only what is drawn is read."""
    found = find("data.name", name, folder)
    if not isinstance(found, Mapping) or not {"train", "test"} <= found.keys():
        raise InvalidInputError(
            f"'data.name' must give a mapping with train and test, and perhaps class_names. Got "
            f"{sorted(found) if isinstance(found, Mapping) else type(found).__name__} from {name!r}."
        )
    parts = []
    for what, size in (("train", n_train), ("test", n_test)):
        samples = view(found[what], show_progress=False)
        kept = draw(samples.labels, size, seed, what)
        inputs = [samples[int(place)][0] for place in kept]
        parts.append(Part(_together(inputs, name), samples.labels[kept]))
    K = 1 + max(int(part.labels.max()) for part in parts)
    names = tuple(str(one) for one in found.get("class_names") or range(K))
    if len(names) < K:
        raise InvalidInputError(f"'class_names' of {name!r} must name {K} classes. Got {len(names)}.")
    return Data(parts[0], parts[1], names)


def _together(inputs: list[Any], name: str) -> Inputs:
    """Put samples into one tensor, or leave them as texts."""
    if all(isinstance(one, str) for one in inputs):
        return inputs
    try:
        return torch.stack([torch.as_tensor(one) for one in inputs])
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"'data.name' must give texts, or tensors of one shape; pad them where they differ. Got others "
            f"from {name!r}: {error}."
        ) from error


def _embedded(folder: Path, n_train: int | None, n_test: int | None, seed: int) -> Data:
    found = sample.load()
    train = Part(found.train_images, found.train_labels.numpy())
    test = Part(found.test_images, found.test_labels.numpy())
    return _drawn(train, test, n_train, n_test, seed, found.class_names)


def _idx(
    folder: Path,
    n_train: int | None,
    n_test: int | None,
    seed: int,
    *,
    class_names: Sequence[str],
    where: str,
) -> Data:
    _require(folder, f"the four files train-images-idx3-ubyte.gz … t10k-labels-idx1-ubyte.gz of {where}")
    parts = []
    for split in ("train", "t10k"):
        images = _idx_file(folder, f"{split}-images-idx3-ubyte", where)
        labels = _idx_file(folder, f"{split}-labels-idx1-ubyte", where)
        parts.append(
            Part(torch.from_numpy(images.astype(np.float32) / 255)[:, None], labels.astype(np.int64))
        )
    return _drawn(parts[0], parts[1], n_train, n_test, seed, class_names)


def _idx_file(folder: Path, name: str, where: str) -> npt.NDArray[np.uint8]:
    """Read an IDX file, compressed or not."""
    packed = folder / f"{name}.gz"
    if packed.is_file():
        return parse_idx(gzip.decompress(packed.read_bytes()), str(packed))
    _require(folder / name, f"{name}.gz of {where}")
    return parse_idx((folder / name).read_bytes(), str(folder / name))


def _cifar10(folder: Path, n_train: int | None, n_test: int | None, seed: int) -> Data:
    where = "the binary version of CIFAR-10 at https://www.cs.toronto.edu/~kriz/cifar.html"
    _require(folder, f"the six files data_batch_1.bin … test_batch.bin of {where}")
    parts = []
    for files in ([f"data_batch_{k}.bin" for k in range(1, 6)], ["test_batch.bin"]):
        records = np.concatenate([_cifar_file(folder / name, where) for name in files])
        pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32))
        kept = draw(records[:, 0].astype(np.int64), n_test if len(files) == 1 else n_train, seed, "train")
        images = _normalised(pixels[torch.from_numpy(kept)], _CIFAR_MEAN, _CIFAR_STD)
        parts.append(Part(images, records[kept, 0].astype(np.int64)))
    return Data(parts[0], parts[1], _CIFAR_CLASSES)


def _cifar_file(path: Path, where: str) -> npt.NDArray[np.uint8]:
    """Read records of a label byte and 3×32×32 bytes of colour."""
    _require(path, f"{path.name} of {where}")
    records = np.fromfile(path, dtype=np.uint8)
    if len(records) == 0 or len(records) % 3073:
        raise InvalidInputError(
            f"{path} must hold records of 3,073 bytes. Got {len(records):,} bytes; download the file again."
        )
    return records.reshape(-1, 3073)


def _bbc(folder: Path, n_train: int | None, n_test: int | None, seed: int) -> Data:
    """Read the beginnings of texts, and topics; without an official split, tests are drawn first."""
    path = folder / "bbc-news.csv"
    _require(
        path,
        "a CSV file bbc-news.csv with the columns label and text, of the articles at "
        "http://mlg.ucd.ie/datasets/bbc.html",
    )
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"label", "text"} <= rows[0].keys():
        raise InvalidInputError(f"{path} must have the columns label and text, and a row or more.")
    topics = sorted({row["label"] for row in rows})
    texts = [" ".join(row["text"].split()[:_WORDS]) for row in rows]
    everything = Part(texts, np.array([topics.index(row["label"]) for row in rows]))
    held_out = draw(everything.labels, len(rows) // 5 if n_test is None else n_test, seed, "test")
    rest = everything.take(np.setdiff1d(np.arange(len(rows)), held_out))
    return _drawn(rest, everything.take(held_out), n_train, None, seed, topics)


def _folders(folder: Path, n_train: int | None, n_test: int | None, seed: int, *, how: str) -> Data:
    """Read images from a folder a class; one in five of each class is held out."""
    _require(folder, how)
    images = ImageFolder(folder)
    labels = np.array([images.classes.index(name) for name in images.labels])
    held_out = draw(labels, len(labels) // 5, seed, "test")
    rest = np.setdiff1d(np.arange(len(labels)), held_out)
    parts = []
    for places, size, what in ((rest, n_train, "train"), (held_out, n_test, "test")):
        kept = places[draw(labels[places], size, seed, what)]
        parts.append(Part(_read_images(images, kept), labels[kept]))
    return Data(parts[0], parts[1], tuple(images.classes))


def _read_images(images: ImageFolder, places: npt.NDArray[np.int64]) -> Tensor:
    """Read images (N, 3, 224, 224): the shorter side scaled to 224 pixels, the middle kept."""
    pixels = np.empty((len(places), 3, _SIDE, _SIDE), dtype=np.uint8)
    for row, place in enumerate(places):
        image, _ = images[int(place)]
        scale = _SIDE / min(image.size)
        image = image.resize(
            (max(_SIDE, round(image.width * scale)), max(_SIDE, round(image.height * scale)))
        )
        left, top = (image.width - _SIDE) // 2, (image.height - _SIDE) // 2
        pixels[row] = np.asarray(image.crop((left, top, left + _SIDE, top + _SIDE))).transpose(2, 0, 1)
    return _normalised(torch.from_numpy(pixels), _IMAGENET_MEAN, _IMAGENET_STD)


def _normalised(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Bring bytes (N, 3, H, W) to mean 0 and deviation 1 a colour."""
    images = pixels.float().div_(255)
    return images.sub_(torch.tensor(mean)[:, None, None]).div_(torch.tensor(std)[:, None, None])


def _require(path: Path, what: str) -> None:
    if not path.exists():
        raise InvalidInputError(
            f"There is no {path}. Put {what} there, or name another folder with --data or WHENCE_DATA."
        )


_Reader = Callable[[Path, int | None, int | None, int], Data]

_READERS: dict[str, _Reader] = {
    "sample": _embedded,
    "mnist": partial(
        _idx, class_names=tuple("0123456789"), where="MNIST at http://yann.lecun.com/exdb/mnist"
    ),
    "fashion-mnist": partial(
        _idx,
        class_names=sample.CLASS_NAMES,
        where="Fashion-MNIST at https://github.com/zalandoresearch/fashion-mnist",
    ),
    "cifar-10": _cifar10,
    "bbc-news": _bbc,
    "awa2": partial(
        _folders,
        how="the folders of images a class, JPEGImages of Animals with Attributes 2 at "
        "https://cvml.ista.ac.at/AwA2",
    ),
    "imagenet": partial(_folders, how="the folders of images a class of ImageNet at https://image-net.org"),
}
