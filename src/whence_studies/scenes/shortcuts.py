"""Shortcuts that a model can learn instead of a class: a frame, a box in the centre, both, a word."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Array, Mask
from whence.core.checks import check_count, check_is, check_number, check_that, shown
from whence.data.training_set import Change
from whence.errors import InvalidInputError

Value = float | Sequence[float]
_CHANNELS = (1, 3, 4)


Shortcut = Change
"""A function that returns a copy of one sample's inputs with a mark."""


class Painted(ABC):
    """A shortcut that paints the same pixels of every image; fields other than ``value`` are in pixels."""

    value: Value

    def __post_init__(self) -> None:
        for size in (field.name for field in fields(self) if field.name != "value"):  # type: ignore[arg-type]
            object.__setattr__(self, size, check_count(size, getattr(self, size)))
        for number in self.value if isinstance(self.value, tuple | list) else [self.value]:
            check_number("value", number)

    def __call__(self, inputs: Any, rng: np.random.Generator) -> Any:
        """Return a copy of an image with the mark."""
        return _on_part(inputs, _is_image, self._on_image, "image")

    @abstractmethod
    def covers(self, height: int, width: int) -> Mask:
        """Return the mask (height, width) of the painted pixels."""

    def _on_image(self, image: Any) -> Any:
        out = np.array(image.detach().numpy() if isinstance(image, Tensor) else image)
        # Channels come first, unless only the last axis can be the channels.
        last = out.ndim == 3 and out.shape[-1] in _CHANNELS and out.shape[0] not in _CHANNELS
        planes = np.moveaxis(out, -1, 0) if last else out.reshape(-1, *out.shape[-2:])
        planes[:, self.covers(*planes.shape[1:])] = _colour(self.value, planes)
        if isinstance(image, Tensor):
            return torch.from_numpy(out)
        if isinstance(image, np.ndarray):
            return out
        from PIL import Image

        return Image.fromarray(out)


@dataclass(frozen=True)
class Frame(Painted):
    """A frame around an image.

    Parameters
    ----------
    width
        Width in pixels.
    value
        Value of its pixels, one number or one per channel, in the scale of the data set's images: after
        normalisation if that is part of the data set.
    """

    width: int = 1
    value: Value = 1.0

    def covers(self, height: int, width: int) -> Mask:
        """Return the mask (height, width) of the painted pixels.

        Examples
        --------
        >>> Frame(1).covers(3, 4).astype(int)
        array([[1, 1, 1, 1],
               [1, 0, 0, 1],
               [1, 1, 1, 1]])
        """
        if 2 * self.width >= min(height, width):
            raise InvalidInputError(
                f"'width' must leave some of an image of {height} × {width}. Got {self.width}."
            )
        covered = np.ones((height, width), dtype=bool)
        covered[self.width : -self.width, self.width : -self.width] = False
        return covered


@dataclass(frozen=True)
class CentreBox(Painted):
    """A square in the centre of an image.

    Parameters
    ----------
    size
        Side in pixels.
    value
        As for ``Frame``.
    """

    size: int = 3
    value: Value = 1.0

    def covers(self, height: int, width: int) -> Mask:
        """Return the mask (height, width) of the painted pixels."""
        if self.size >= min(height, width):
            raise InvalidInputError(
                f"'size' must leave some of an image of {height} × {width}. Got {self.size}."
            )
        covered = np.zeros((height, width), dtype=bool)
        top, left = (height - self.size) // 2, (width - self.size) // 2
        covered[top : top + self.size, left : left + self.size] = True
        return covered


@dataclass(frozen=True)
class BoxAndFrame(Painted):
    """A square in the centre of an image, and a frame around it.

    Parameters
    ----------
    size
        Side of the square in pixels.
    width
        Width of the frame in pixels.
    value
        As for ``Frame``.
    """

    size: int = 6
    width: int = 2
    value: Value = 1.0

    def covers(self, height: int, width: int) -> Mask:
        """Return the mask (height, width) of the painted pixels."""
        return CentreBox(self.size).covers(height, width) | Frame(self.width).covers(height, width)


@dataclass(frozen=True)
class Word:
    """A word at a random place between the words of a text.

    Parameters
    ----------
    word
        The word, such as "<sport>".
    """

    word: str

    def __post_init__(self) -> None:
        check_is("word", self.word, str, "a text")

    def __call__(self, inputs: Any, rng: np.random.Generator) -> Any:
        """Return a text with the word in it."""
        return _on_part(
            inputs, lambda part: isinstance(part, str), lambda text: self._into(text, rng), "text"
        )

    def _into(self, text: str, rng: np.random.Generator) -> str:
        # The word goes before a word; the rest of the text, including line breaks, stays unchanged.
        starts = word_starts(text)
        place = int(rng.integers(len(starts) + 1))
        if place == len(starts):
            return f"{text} {self.word}" if text else self.word
        return f"{text[: starts[place]]}{self.word} {text[starts[place] :]}"


def word_starts(text: str) -> list[int]:
    """Return the offsets of a text's words, which are separated by white space."""
    return [word.start() for word in re.finditer(r"\S+", text)]


def _on_part(inputs: Any, fits: Callable[[Any], bool], change: Callable[[Any], Any], what: str) -> Any:
    """Change the inputs, or the one of several named inputs that fits."""
    several = isinstance(inputs, Mapping)
    parts = inputs if several else {"": inputs}
    names = [name for name, part in parts.items() if fits(part)]
    if len(names) == 1:
        changed = change(parts[names[0]])
        return {**parts, names[0]: changed} if several else changed
    got = ", ".join(map(str, inputs)) if several else shown(inputs)
    raise InvalidInputError(
        f"'shortcut' must find one {what} in a sample. Got {got}, of which {len(names)} fit. "
        "Perturb the data before it is tokenised, flattened or converted to features."
    )


def _is_image(part: Any) -> bool:
    if isinstance(part, Tensor | np.ndarray):
        return part.ndim in (2, 3)
    return hasattr(part, "getbands")  # Pillow's


def _colour(value: Value, planes: Array) -> Array:
    """Return values (channels, 1), checked against the dtype of an image's planes."""
    channels, dtype = len(planes), planes.dtype
    colour = np.array(value if isinstance(value, Sequence) else [value] * channels, dtype=np.float64)
    if len(colour) != channels:
        raise InvalidInputError(
            f"'value' must be one number or {channels}, one per channel. Got {len(colour)} numbers."
        )
    check_that(dtype.kind in "iuf", "shortcut", "find an image of numbers in a sample", dtype)
    limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    if (colour < limits.min).any() or (colour > limits.max).any():
        raise InvalidInputError(f"'value' must fit images of {dtype}. Got {value}.")
    return colour[:, None]
