"""MNIST and Fashion-MNIST, as IDX files."""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from whence import sample
from whence.core.registry import register
from whence.sample.dataset import parse_idx
from whence_studies.scenes.datasets import Source, require


def _read(folder: Path, *, name: str, class_names: tuple[str, ...], where: str) -> dict[str, Any]:
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


for _name, _classes, _where in (
    ("mnist", tuple("0123456789"), "MNIST at http://yann.lecun.com/exdb/mnist"),
    (
        "fashion-mnist",
        sample.CLASS_NAMES,
        "Fashion-MNIST at https://github.com/zalandoresearch/fashion-mnist",
    ),
):
    register(Source(_name, partial(_read, name=_name, class_names=_classes, where=_where)))
