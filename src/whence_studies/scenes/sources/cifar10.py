"""CIFAR-10, in its binary version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from whence.core.registry import register
from whence.errors import InvalidInputError
from whence_studies.scenes.datasets import Lazy, Source, require
from whence_studies.scenes.sources.folders import normalised

_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_MEAN, _STD = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)
_WHERE = "the binary version of CIFAR-10 at https://www.cs.toronto.edu/~kriz/cifar.html"


def _read(folder: Path) -> dict[str, Any]:
    here = folder / "cifar-10"
    require(here, f"the six files data_batch_1.bin … test_batch.bin of {_WHERE}")
    train = np.concatenate([_records(here / f"data_batch_{k}.bin") for k in range(1, 6)])
    return {
        "train": _images(train),
        "test": _images(_records(here / "test_batch.bin")),
        "class_names": _CLASSES,
    }


def _images(records: npt.NDArray[np.uint8]) -> Lazy:
    pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32))
    return Lazy(records[:, 0].astype(np.int64), lambda i: normalised(pixels[i], _MEAN, _STD))


def _records(path: Path) -> npt.NDArray[np.uint8]:
    """Read records of a label byte and 3×32×32 bytes of colour."""
    require(path, f"{path.name} of {_WHERE}")
    records = np.fromfile(path, dtype=np.uint8)
    if len(records) == 0 or len(records) % 3073:
        raise InvalidInputError(
            f"{path} must hold records of 3,073 bytes. Got {len(records):,} bytes; download the file again."
        )
    return records.reshape(-1, 3073)


register(Source("cifar-10", _read))
