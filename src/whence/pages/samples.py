"""Samples as they are shown: images, texts as tokens, or plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from whence.core.checks import to_array
from whence.data.items import WRITTEN
from whence.errors import DataWarning, warn
from whence.pages.texts import spelled

Array = npt.NDArray[np.float32]
Picture = Array
"""An image to look at: (height, width) in grey or (height, width, 3) in colour, in [0, 1]."""


_NUMBERS = (
    "Tokens are shown as numbers: there is no tokeniser of transformers in 'preprocess' or 'collate_fn'. "
    "Pass it as 'tokenizer' (--tokenizer module:name) to read them as text."
)


@dataclass(frozen=True, eq=False)
class Sample:
    """A sample as it is shown; one of the three is there.

    Attributes
    ----------
    image : (height, width) in grey or (height, width, 3) in colour, in [0, 1]
    tokens : of a text, each with the blanks before it; those that are no part of the text, such as [CLS], are
        empty
    values : of any other input, in its shape
    """

    image: Picture | None = None
    tokens: tuple[str, ...] | None = None
    values: Array | None = None


def as_samples(inputs: Any, tokenizer: Any = None) -> list[Sample]:
    """Make samples to show of a batch of model inputs.

    Parameters
    ----------
    inputs : a tensor or a mapping. Tokens are recognised by their integer type
    tokenizer : of transformers; spells the tokens. Without one they are shown as numbers

    Warns
    -----
    DataWarning
        When tokens are shown as numbers.
    """
    values = _main_part(inputs)
    if values.dtype.kind in "iu" and values.ndim == 2:
        rows = [row.tolist() for row in kept_tokens(inputs, values)]
        if tokenizer is None:
            warn(_NUMBERS, DataWarning)
            return [Sample(tokens=tuple(f" {i}" for i in row)) for row in rows]
        known = inputs.get(WRITTEN) if isinstance(inputs, Mapping) else None
        texts = known if known is not None and len(known) == len(rows) else [None] * len(rows)
        written = (spelled(row, tokenizer, text) for row, text in zip(rows, texts, strict=True))
        return [Sample(tokens=tokens) for tokens in written]
    return [as_sample(row) for row in values]


def kept_tokens(inputs: Any, maps: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Take the tokens or maps (m, T) of a padded batch of texts apart into one of each text's own length.

    The texts are m, or one of which there are m maps.
    """
    mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
    if mask is None or maps.ndim != 2:
        return list(maps)
    texts = np.broadcast_to(mask.cpu().numpy().astype(bool), maps.shape)
    return [row[kept] for row, kept in zip(maps, texts, strict=True)]


def as_sample(values: npt.NDArray[Any]) -> Sample:
    """Make a sample to show of one input: (1 or 3, height, width) and (height, width) are images."""
    array = values.astype(np.float32)
    planes = array[None] if array.ndim == 2 else array
    if planes.ndim != 3 or planes.shape[0] not in (1, 3) or min(planes.shape[1:]) < 2:
        return Sample(values=array)
    lowest, highest = float(planes.min()), float(planes.max())
    if lowest < 0 or highest > 1:  # normalised for the model: stretched for the eye
        planes = (planes - lowest) / ((highest - lowest) or 1.0)
    return Sample(image=planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, -1))


def _main_part(inputs: Any) -> npt.NDArray[Any]:
    """Find the tokens, or the values, among a model's inputs."""
    if type(inputs) is tuple:
        inputs = {str(i): part for i, part in enumerate(inputs)}
    named = dict(inputs) if isinstance(inputs, Mapping) else {"input": inputs}
    named = {name: x for name, x in named.items() if "mask" not in name and hasattr(x, "shape")}
    first = named["input_ids"] if "input_ids" in named else next(iter(named.values()))
    return to_array("inputs", first)
