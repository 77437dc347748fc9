"""Animals with Attributes 2, and ImageNet: a folder of images per class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Ints
from whence.core.registry import register
from whence.data.sources import ImageFolder
from whence_studies.scenes.datasets import Lazy, Source, draw, require

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SIDE = 224  # pixels per side


def _read(folder: Path, seed: int, *, name: str, how: str) -> dict[str, Any]:
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
    return normalised(torch.from_numpy(pixels.copy()), _MEAN, _STD)


def normalised(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Bring bytes (3, H, W) to mean 0 and deviation 1 per colour."""
    images = pixels.float().div_(255)
    return images.sub_(torch.tensor(mean)[:, None, None]).div_(torch.tensor(std)[:, None, None])


for _name, _how in {
    "awa2": "the folders of images per class, JPEGImages of Animals with Attributes 2 at "
    "https://cvml.ista.ac.at/AwA2",
    "imagenet": "the folders of images per class of ImageNet at https://image-net.org",
}.items():
    register(Source(_name, partial(_read, name=_name, how=_how)))
