"""The embedded images: how they are read, and how they were drawn from the full data set.

Fashion-MNIST is published as IDX files, and the sample keeps that format: four gzipped IDX files next to this
module, a stratified draw of 5,000 training and 1,000 test images. ``python -m tools.sample FOLDER``
draws them again from the original files.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whence.core.checks import check_count
from whence.errors import InvalidInputError

CLASS_NAMES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


@dataclass(frozen=True)
class EmbeddedData:
    """The embedded data set.

    Attributes
    ----------
    train_images, test_images : float images in [0, 1], shape (N, 1, 28, 28)
    train_labels, test_labels : class indices (int64), shape (N,)
    class_names : one name per class; ``class_names[label]`` names a label
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]


def load(n_train: int = 5_000, n_test: int = 1_000) -> EmbeddedData:
    """Load the embedded Fashion-MNIST sample: 5,000 training and 1,000 test images, 10 classes.

    ``n_train`` and ``n_test`` take only the first so many; the classes are mixed in both.

    Examples
    --------
    >>> from whence import sample
    >>> data = sample.load(n_train=2000)
    >>> tuple(data.train_images.shape), data.class_names[int(data.train_labels[0])]
    ((2000, 1, 28, 28), 'Ankle boot')
    """
    n_train, n_test = check_count("n_train", n_train, most=5_000), check_count("n_test", n_test, most=1_000)
    return EmbeddedData(
        train_images=_images("train-images-idx3-ubyte.gz")[:n_train],
        train_labels=_labels("train-labels-idx1-ubyte.gz")[:n_train],
        test_images=_images("t10k-images-idx3-ubyte.gz")[:n_test],
        test_labels=_labels("t10k-labels-idx1-ubyte.gz")[:n_test],
        class_names=CLASS_NAMES,
    )


def parse_idx(content: bytes, name: str) -> NDArray[np.uint8]:
    """Read the content of an IDX file of bytes.

    The format: two zero bytes, the element type (8: unsigned byte), the number of axes, one big-endian 32-bit
    length per axis, then the elements. ``name`` is what an error calls the file.
    """
    rank = content[3] if content[:3] == b"\x00\x00\x08" and len(content) > 3 else 0
    header = 4 + 4 * rank
    shape = tuple(np.frombuffer(content[4:header], dtype=">u4").tolist()) if len(content) >= header else ()
    if not shape or len(content) - header != int(np.prod(shape)):
        raise InvalidInputError(
            f"{name} must be a complete IDX file of unsigned bytes. Got {len(content)} bytes that start with "
            f"{content[:4]!r}; download the file again."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


@cache
def _read(name: str) -> NDArray[np.uint8]:
    compressed = files("whence.sample").joinpath(name).read_bytes()
    return parse_idx(gzip.decompress(compressed), name)


def _images(name: str) -> Tensor:
    return torch.from_numpy(_read(name).astype(np.float32) / 255)[:, None]


def _labels(name: str) -> Tensor:
    return torch.from_numpy(_read(name).astype(np.int64))
