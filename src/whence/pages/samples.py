"""Views of samples: images, texts as tokens, or plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from whence.core.checks import to_array
from whence.data.items import WRITTEN, Prepare
from whence.errors import DataWarning, warn
from whence.pages.texts import spelled

Array = npt.NDArray[np.float32]
Picture = Array
"""An image: (height, width) in grey or (height, width, 3) in colour, in [0, 1]."""


_NUMBERS = (
    "Tokens are shown as numbers: there is no tokenizer of transformers in 'preprocess' or 'collate_fn'. "
    "Pass it as 'tokenizer' (--tokenizer module:name) to read them as text."
)


@dataclass(frozen=True, eq=False)
class Sample:
    """A sample for display; exactly one of the three kinds is set.

    Attributes
    ----------
    image : (height, width) in grey or (height, width, 3) in colour, in [0, 1]
    tokens : of a text, each with the blanks before it; those that are not part of the text, such as [CLS],
        are empty
    values : of any other input, in its shape
    names : of the values of a row of a table, one each; None where they have none
    """

    image: Picture | None = None
    tokens: tuple[str, ...] | None = None
    values: Array | None = None
    names: tuple[str, ...] | None = None


def as_samples(inputs: Any, prepare: Prepare | None = None) -> list[Sample]:
    """Make samples for display from a batch of model inputs.

    Parameters
    ----------
    inputs : a tensor or a mapping. Tokens are recognised by their integer type
    prepare : what made them: its tokenizer spells tokens, which are shown as numbers without one, and its
        feature names are those of values

    Warns
    -----
    DataWarning
        When tokens are shown as ids.
    """
    values = _main_part(inputs)
    if values.dtype.kind in "iu" and values.ndim == 2:
        rows = [row.tolist() for row in kept_tokens(inputs, values)]
        tokenizer = None if prepare is None else prepare.find_tokenizer()
        if tokenizer is None:
            warn(_NUMBERS, DataWarning)
            return [Sample(tokens=tuple(f" {i}" for i in row)) for row in rows]
        known = inputs.get(WRITTEN) if isinstance(inputs, Mapping) else None
        texts = known if known is not None and len(known) == len(rows) else [None] * len(rows)
        written = (spelled(row, tokenizer, text) for row, text in zip(rows, texts, strict=True))
        return [Sample(tokens=tokens) for tokens in written]
    names = None if prepare is None else prepare.feature_names
    fits = names is not None and values.shape[1:] == (len(names),)
    return [replace(as_sample(row), names=names) if fits else as_sample(row) for row in values]


def kept_tokens(inputs: Any, maps: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Split the tokens or maps (m, T) of a padded batch of texts into one per text, without padding.

    There are m texts, or m maps of one text.
    """
    mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
    if mask is None or maps.ndim != 2:
        return list(maps)
    texts = np.broadcast_to(mask.cpu().numpy().astype(bool), maps.shape)
    return [row[kept] for row, kept in zip(maps, texts, strict=True)]


def as_sample(values: npt.NDArray[Any]) -> Sample:
    """Make a sample for display from one input: (1 or 3, height, width) and (height, width) are images."""
    array = values.astype(np.float32)
    planes = array[None] if array.ndim == 2 else array
    if planes.ndim != 3 or planes.shape[0] not in (1, 3) or min(planes.shape[1:]) < 2:
        return Sample(values=array)
    lowest, highest = float(planes.min()), float(planes.max())
    if lowest < 0 or highest > 1:  # normalised for the model: rescaled to [0, 1]
        planes = (planes - lowest) / ((highest - lowest) or 1.0)
    return Sample(image=planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, -1))


def _main_part(inputs: Any) -> npt.NDArray[Any]:
    """Return the tokens, or the values, among a model's inputs."""
    if type(inputs) is tuple:
        inputs = {str(i): part for i, part in enumerate(inputs)}
    named = dict(inputs) if isinstance(inputs, Mapping) else {"input": inputs}
    named = {name: x for name, x in named.items() if "mask" not in name and hasattr(x, "shape")}
    first = named["input_ids"] if "input_ids" in named else next(iter(named.values()))
    return to_array("inputs", first)
