"""What users pass as ``x``: one sample or a batch, in any of the forms that samples have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from whence.data.items import Prepare, as_fields, gather, is_array, split
from whence.data.tables import is_row, is_table, row_inputs, table_inputs


def first_sample(samples: Any, prepare: Prepare) -> Any:
    """Return the inputs of the first sample that can be read, as a batch of one before ``preprocess``.

    None where none of the first few can be read.
    """
    for index in range(min(len(samples), 8)):
        try:
            item = samples[index]
            if prepare.collate_fn is not None:
                return split(prepare.collate_fn([item]))[0]
            return gather([split(item)[0]])
        except Exception:  # reading the sample for the fit reports it
            continue
    return None


def as_batch(x: Any, prepare: Prepare, example: Any = None) -> Any:
    """Return ``x`` as a batch; one sample becomes a batch of one.

    A text, an image of PIL, a row of a table and a mapping of plain values are one sample. A tensor or array
    is one where it has the shape of a training sample, whose inputs are ``example``, a batch of one; so it is
    clear what a shape means that may be a sample or a batch. Of a pair (input, label) the label is dropped.
    """
    columns = prepare.columns or (example if isinstance(example, Mapping) else ())
    if is_table(x):
        return table_inputs(x, columns)
    if is_row(x):
        x = row_inputs(x, columns)
    if isinstance(x, list) and x and prepare.collate_fn is None:
        if all(isinstance(value, int | float) for value in x):
            x = np.asarray(x)
        elif any(_is_pair(item, example) for item in x):
            return [item[0] if _is_pair(item, example) else item for item in x]
    if _is_pair(x, example):
        x = x[0]
    if not _is_sample(x, example):
        return x
    if is_array(x):
        return x[None]
    if isinstance(x, Mapping) and all(map(is_array, x.values())):
        return {name: part[None] for name, part in x.items()}
    return [x]


def _is_sample(x: Any, example: Any) -> bool:
    """Whether ``x`` is one sample, as far as its type or the shape of a training sample shows."""
    if isinstance(x, str) or hasattr(x, "getbands"):
        return True
    if is_array(x):
        return is_array(example) and _same_shape(x, example)
    fields = as_fields(x)
    if not fields:
        return False
    if any(isinstance(part, str | int | float) for part in fields.values()):
        return True
    named = example if isinstance(example, Mapping) else {}
    arrays = {name: part for name, part in fields.items() if name in named and is_array(part)}
    return bool(arrays) and all(
        is_array(named[name]) and _same_shape(part, named[name]) for name, part in arrays.items()
    )


def _same_shape(x: Any, example: Any) -> bool:
    """Whether an array has the shape of the sample in a batch of one; sizes may vary, as of images."""
    return bool(x.ndim == example.ndim - 1 and (x.ndim < 2 or x.shape[0] == example.shape[1]))


def _is_pair(x: Any, example: Any) -> bool:
    """Whether ``x`` is one sample as a data set has it, an input with its label."""
    if not isinstance(x, tuple) or len(x) != 2 or isinstance(example, tuple):
        return False
    plain = isinstance(x[1], str | int | float | np.generic)
    return (plain or (isinstance(x[1], Tensor | np.ndarray) and x[1].ndim == 0)) and _is_sample(x[0], example)
