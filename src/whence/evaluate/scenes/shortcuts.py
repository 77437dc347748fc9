"""Marks that a model can learn to take for a class: a frame, a box in the centre, a word."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from whence.core.arrays import Mask
from whence.core.checks import check_count, check_number, shown
from whence.data.training_set import Change
from whence.errors import InvalidInputError

Value = float | Sequence[float]
_CHANNELS = (1, 3, 4)


Shortcut = Change
"""Puts a mark on one sample's inputs and gives them back; what it was given stays as it was."""


@dataclass(frozen=True)
class Frame:
    """A frame around an image.

    Parameters
    ----------
    width
        In pixels.
    value
        Of its pixels, one number or one per channel, in the scale of the images as the data set gives them:
        after normalisation where that is part of it.
    """

    width: int = 1
    value: Value = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_count("width", self.width))
        _check_value(self.value)

    def __call__(self, inputs: Any, rng: np.random.Generator) -> Any:
        """Give a copy of an image with the mark."""
        return _on_image(inputs, self._covers, self.value)

    def _covers(self, height: int, width: int) -> Mask:
        if 2 * self.width >= min(height, width):
            raise InvalidInputError(
                f"'width' must leave some of an image of {height} × {width}. Got {self.width}."
            )
        found = np.ones((height, width), dtype=bool)
        found[self.width : -self.width, self.width : -self.width] = False
        return found


@dataclass(frozen=True)
class CentreBox:
    """A square in the centre of an image.

    Parameters
    ----------
    size
        Of its side, in pixels.
    value
        As for ``Frame``.
    """

    size: int = 3
    value: Value = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check_count("size", self.size))
        _check_value(self.value)

    def __call__(self, inputs: Any, rng: np.random.Generator) -> Any:
        """Give a copy of an image with the mark."""
        return _on_image(inputs, self._covers, self.value)

    def _covers(self, height: int, width: int) -> Mask:
        if self.size >= min(height, width):
            raise InvalidInputError(
                f"'size' must leave some of an image of {height} × {width}. Got {self.size}."
            )
        found = np.zeros((height, width), dtype=bool)
        top, left = (height - self.size) // 2, (width - self.size) // 2
        found[top : top + self.size, left : left + self.size] = True
        return found


@dataclass(frozen=True)
class Word:
    """A word at a random place between the words of a text.

    Parameters
    ----------
    word
        Such as "<sport>".
    """

    word: str

    def __post_init__(self) -> None:
        if not isinstance(self.word, str):
            raise InvalidInputError(f"'word' must be a text. Got {shown(self.word)}.")

    def __call__(self, inputs: Any, rng: np.random.Generator) -> Any:
        """Give a text with the word in it."""
        return _on_part(inputs, _is_text, lambda text: self._into(text, rng), "text")

    def _into(self, text: str, rng: np.random.Generator) -> str:
        # Places are the starts of words: the rest of the text, line breaks and all, stays as it was.
        starts = [i for i, c in enumerate(text) if not c.isspace() and (i == 0 or text[i - 1].isspace())]
        place = int(rng.integers(len(starts) + 1))
        if place == len(starts):
            return f"{text} {self.word}" if text else self.word
        return f"{text[: starts[place]]}{self.word} {text[starts[place] :]}"


def _check_value(value: Any) -> None:
    for number in value if isinstance(value, tuple | list) else [value]:
        check_number("value", number)


def _on_part(inputs: Any, fits: Callable[[Any], bool], change: Callable[[Any], Any], what: str) -> Any:
    """Change the inputs, or of named ones the one that fits."""
    several = isinstance(inputs, Mapping)
    parts = inputs if several else {"": inputs}
    names = [name for name, part in parts.items() if fits(part)]
    if len(names) == 1:
        changed = change(parts[names[0]])
        return {**parts, names[0]: changed} if several else changed
    got = ", ".join(map(str, inputs)) if several else _shown(inputs)
    raise InvalidInputError(
        f"'shortcut' must find one {what} in a sample. Got {got}, of which {len(names)} fit. "
        "Perturb the data before it is tokenised, flattened or made into features."
    )


def _on_image(inputs: Any, covers: Callable[[int, int], Mask], value: Value) -> Any:
    return _on_part(inputs, _is_image, lambda image: _painted(image, covers, value), "image")


def _is_text(part: Any) -> bool:
    return isinstance(part, str)


def _is_image(part: Any) -> bool:
    if isinstance(part, Tensor | np.ndarray):
        return part.ndim in (2, 3)
    return hasattr(part, "getbands")  # Pillow's


def _painted(image: Any, covers: Callable[[int, int], Mask], value: Value) -> Any:
    """Give a copy of an image with a value where ``covers`` says."""
    if not isinstance(image, Tensor | np.ndarray):
        from PIL import Image  # whose image this is

        return Image.fromarray(_painted(np.array(image), covers, value))
    out = image.clone() if isinstance(image, Tensor) else image.copy()
    # Channels come first, unless only the last axis can be one of channels.
    last = out.ndim == 3 and out.shape[-1] in _CHANNELS and out.shape[0] not in _CHANNELS
    planes = out if not last else out.movedim(-1, 0) if isinstance(out, Tensor) else np.moveaxis(out, -1, 0)
    where = covers(*planes.shape[-2:])
    colour = _colour(value, planes)
    if planes.ndim == 2:
        planes[where] = colour[0]
    else:
        for plane, number in zip(planes, colour, strict=True):
            plane[where] = number
    return out


def _colour(value: Value, planes: Any) -> Sequence[float]:
    """One number per channel, that an image's type can hold."""
    channels = 1 if planes.ndim == 2 else len(planes)
    colour = tuple(map(float, value)) if isinstance(value, Sequence) else (float(value),) * channels
    if len(colour) != channels:
        raise InvalidInputError(
            f"'value' must be one number or {channels}, one per channel. Got {len(colour)} numbers."
        )
    dtype = planes.detach().numpy().dtype if isinstance(planes, Tensor) else planes.dtype
    if dtype.kind not in "iuf":
        raise InvalidInputError(f"'shortcut' must find an image of numbers in a sample. Got {dtype}.")
    limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    if any(not limits.min <= c <= limits.max for c in colour):
        raise InvalidInputError(f"'value' must fit images of {dtype}. Got {value}.")
    return colour


def _shown(inputs: Any) -> str:
    shape = f" of shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor | np.ndarray) else ""
    return f"{type(inputs).__name__}{shape}"
