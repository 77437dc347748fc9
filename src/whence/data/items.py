"""Samples in the forms that users have them: split into inputs and label, and stacked into batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whence.core.naming import name_errors
from whence.data.text import find_tokenizer
from whence.errors import InvalidInputError

WRITTEN = "as written"
"""Under this name a batch of tokens keeps the texts that they were made of. It cannot be the name of an
argument, so no model gets them."""

LABEL_NAMES = ("label", "labels", "target", "targets", "y", "class")

_REMEDY = (
    "Pass 'tokenizer' for texts, 'preprocess' (an image processor or a function of a batch) for anything "
    "else, or a 'collate_fn'."
)


def split(item: Any) -> tuple[Any, Any]:
    """Split a sample or a batch into inputs and label.

    A pair stays unchanged. In a mapping, a dataclass or a named tuple the label goes by one of the names
    label, labels, target, targets, y or class, and the rest is the inputs.
    """
    fields = as_fields(item)
    if fields is None:
        if isinstance(item, tuple | list) and len(item) == 2:
            return item[0], item[1]
        parts = f" with {len(item)} parts" if isinstance(item, tuple | list) else ""
        raise InvalidInputError(
            "'data' must give (input, label) pairs, or mappings or dataclasses with a label. "
            f"Got {type(item).__name__}{parts}. Wrap the dataset so that each sample is a pair."
        )
    labels = [name for name in LABEL_NAMES if name in fields]
    if len(labels) != 1 or len(fields) < 2:
        raise InvalidInputError(
            f"'data' must give inputs and one label, named one of {', '.join(LABEL_NAMES)}. "
            f"Got the names {', '.join(map(str, fields))}. Rename or remove columns."
        )
    return {name: value for name, value in fields.items() if name != labels[0]}, fields[labels[0]]


def without_label(inputs: Any) -> Any:
    """Drop the label from a mapping or dataclass that has one; anything else is inputs already."""
    fields = as_fields(inputs)
    if fields is None:
        return inputs
    return {name: value for name, value in fields.items() if name not in LABEL_NAMES}


def as_fields(item: Any) -> dict[str, Any] | None:
    """Return the named parts of a mapping, dataclass or named tuple; None for what has no names."""
    if isinstance(item, Mapping):
        return dict(item)
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    names = getattr(item, "_fields", ())
    return dict(zip(names, item, strict=True)) if set(names) & set(LABEL_NAMES) else None


@dataclass(frozen=True)
class Prepare:
    """What lies between samples and model.

    Attributes
    ----------
    collate_fn : makes a batch of a list of samples, as in a DataLoader; None stacks them
    preprocess : makes the model's inputs of a batch of inputs. It gets tensors where the samples' inputs
        stack, lists where they do not (texts, images), and a dict of these where samples have named parts.
        An image processor of transformers is called as it expects.
    tokenizer : of transformers. Without ``preprocess`` it makes the model's inputs of texts, padded, and cut
        to what the model takes; tokens are shown by it as text. None looks for it in the other two
    columns : of the table that samples are rows of, in order; None where they are from no table
    feature_names : of the values of the model's inputs, for display; None where they have none
    """

    collate_fn: Callable[[list[Any]], Any] | None = None
    preprocess: Callable[[Any], Any] | None = None
    tokenizer: Any = None
    columns: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None

    def find_tokenizer(self) -> Any:
        """Return the tokenizer that tokens are shown by; None if there is none."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> Any:
        return find_tokenizer(self.tokenizer, self.preprocess, self.collate_fn)

    def labelled(self, items: list[Any]) -> tuple[Any, Any]:
        """Make inputs and labels of samples."""
        if self.collate_fn is not None:
            inputs, labels = split(_result("collate_fn", self.collate_fn, items))
            inputs = _several(inputs)
        else:
            pairs = [split(item) for item in items]
            inputs, labels = gather([x for x, _ in pairs]), [label for _, label in pairs]
        return self.inputs(inputs), labels

    def unlabelled(self, x: Any) -> Any:
        """Make inputs of new inputs: a batch as the model or ``preprocess`` takes it, or a list of them."""
        if isinstance(x, list):
            raw = self.tokenizer is not None and _are_texts(x)  # what a collator makes batches of has tokens
            if self.collate_fn is not None and not raw:
                x = _several(_result("collate_fn", self.collate_fn, x))
            else:
                x = gather([without_label(item) for item in x])
        x = without_label(x)
        if isinstance(x, Mapping):
            x = {name: gather(part) if isinstance(part, list) else part for name, part in x.items()}
        return self.inputs(x, "x")

    def of_new(self, items: list[Any]) -> Any:
        """Make inputs of new samples of a data set, whose labels are dropped."""
        if self.collate_fn is not None:
            return self.inputs(_several(_unlabelled(_result("collate_fn", self.collate_fn, items))), "x")
        return self.inputs(gather([_unlabelled(item) for item in items]), "x")

    def inputs(self, batch: Any, name: str = "data") -> Any:
        """Make the model's inputs of a batch, or raise if they are not tensors."""
        texts = None
        if self.preprocess is not None:
            texts = _texts(batch)
            batch = _result("preprocess", partial(_called, self.preprocess), batch)
        elif self.tokenizer is not None and not _is_tokenized(batch):
            texts = _texts(batch)
            batch = _result("tokenizer", partial(_tokenized, self.tokenizer), batch)
        parts = list(batch.values()) if isinstance(batch, Mapping) else [batch]
        # Texts may stay next to tensors: the model does not get them. Numbers that do not stack may not.
        ragged = any(isinstance(part, list) and part and _numeric(part[0]) for part in parts)
        if ragged or not any(is_array(part) or isinstance(part, tuple) for part in parts):
            raise InvalidInputError(
                f"'{name}' must give tensors of one shape. Got {described(batch)}. {_REMEDY}"
            )
        if texts is None or not isinstance(batch, Mapping) or "input_ids" not in batch:
            return batch
        return {**batch, WRITTEN: texts}


def gather(values: Sequence[Any]) -> Any:
    """Stack the inputs of several samples part by part; what cannot be stacked becomes a list."""
    first = values[0]
    fields = [as_fields(value) for value in values]
    if fields[0] is not None:
        names = fields[0].keys()
        if any(f is None or f.keys() != names for f in fields):
            raise InvalidInputError("'data' must give samples with the same names. Some have others.")
        return {name: gather([f[name] for f in fields if f is not None]) for name in names}
    tensors = [_tensor(value) for value in values]
    stackable = [t for t in tensors if t is not None]
    if len(stackable) == len(values) and len({t.shape for t in stackable}) == 1:
        return torch.stack(stackable)
    several = isinstance(first, tuple | list) and any(isinstance(part, Tensor | np.ndarray) for part in first)
    if several and all(isinstance(value, tuple | list) and len(value) == len(first) for value in values):
        return tuple(gather(parts) for parts in zip(*values, strict=True))
    return list(values)


def _unlabelled(item: Any) -> Any:
    """Return the inputs of a sample, or of a batch: of a pair the first, of named parts all but the label."""
    if as_fields(item) is None and isinstance(item, tuple | list) and len(item) in (1, 2):
        return item[0]
    return without_label(item)


def _several(inputs: Any) -> Any:
    """Make a tuple of a list of tensors, which is how torch collates samples with several inputs."""
    return tuple(inputs) if isinstance(inputs, list) and all(map(is_array, inputs)) else inputs


def is_array(values: Any) -> bool:
    """Whether values are a tensor, or an array of numbers."""
    return isinstance(values, Tensor) or (isinstance(values, np.ndarray) and values.dtype.kind in "biufc")


def _tensor(value: Any) -> Tensor | None:
    """Turn numbers in any container into a tensor; None where they are something else or ragged."""
    if isinstance(value, Tensor):
        return value
    if not _numeric(value):
        return None
    try:
        return torch.from_numpy(np.array(value, order="C"))
    except (TypeError, ValueError):
        return None


def _numeric(value: Any) -> bool:
    """Whether a value consists of numbers, judged by its first entries."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    if isinstance(value, Tensor):
        return True
    return isinstance(value, int | float | np.number | np.ndarray) and np.asarray(value).dtype.kind in "biuf"


def _result(name: str, function: Callable[[Any], Any], batch: Any) -> Any:
    """Call a user's function; an error in it names the function and the batch."""
    with name_errors(f"'{name}' must make a batch of {described(batch)}. It"):
        return function(batch)


def _called(preprocess: Callable[..., Any], batch: Any) -> Any:
    """Call an image processor of transformers as it expects; any other function on the batch."""
    if not hasattr(preprocess, "model_input_names"):
        return preprocess(batch)
    rule = "be one column of images"
    images = _only_column(batch, lambda v: not isinstance(v, list) or not isinstance(v[0], str), rule)
    return preprocess(images, return_tensors="pt")


def _is_tokenized(batch: Any) -> bool:
    """Whether a batch has tokens of one length already, or no text to make them of."""
    if isinstance(batch, Mapping):
        return is_array(batch["input_ids"]) if "input_ids" in batch else all(map(is_array, batch.values()))
    return not isinstance(batch, list) or not isinstance(batch[0], str)


def _tokenized(tokenizer: Any, batch: Any) -> Any:
    """Make tokens of texts, padded to one length; pad those that are tokens already."""
    if isinstance(batch, Mapping) and "input_ids" in batch:
        known = {name: part for name, part in batch.items() if name in tokenizer.model_input_names}
        return tokenizer.pad(
            {name: [list(row) for row in part] for name, part in known.items()}, return_tensors="pt"
        )
    texts = _only_column(batch, _are_texts, "have one column of texts for the tokenizer")
    return tokenizer(texts, padding=True, truncation=True, return_tensors="pt")


def _texts(batch: Any) -> list[str] | None:
    """Return the texts of a batch with one column of texts, else None."""
    columns = list(batch.values()) if isinstance(batch, Mapping) else [batch]
    texts = [part for part in columns if _are_texts(part)]
    return texts[0] if len(texts) == 1 else None


def _are_texts(column: Any) -> bool:
    return isinstance(column, list) and all(isinstance(text, str) for text in column)


def _only_column(batch: Any, fits: Callable[[Any], bool], rule: str) -> Any:
    """Return the batch itself, or of named columns the one that fits, or raise."""
    if not isinstance(batch, Mapping):
        return batch
    columns = [value for value in batch.values() if fits(value)]
    if len(columns) != 1:
        raise InvalidInputError(
            f"'data' must {rule}. Got {described(batch)}. Keep one such column, or pass as 'preprocess' a "
            "function of the batch, such as lambda b: tokenizer(b['title'], b['text'], return_tensors='pt')."
        )
    return columns[0]


def described(batch: Any) -> str:
    """Write a batch for a message: the type and shape of its parts, or lengths where they do not stack."""
    if isinstance(batch, Mapping):
        return ", ".join(f"{name!r}: {described(part)}" for name, part in batch.items())
    if isinstance(batch, tuple):
        return f"({', '.join(map(described, batch))})"
    if isinstance(batch, Tensor | np.ndarray):
        return f"{str(batch.dtype).removeprefix('torch.')} {tuple(batch.shape)}"
    if not isinstance(batch, list) or not batch:
        return type(batch).__name__
    kind, ragged = type(batch[0]).__name__, isinstance(batch[0], list | tuple | Tensor | np.ndarray)
    return f"{kind}s of lengths {len(batch[0])}, {len(batch[-1])} …" if ragged else f"a list of {kind}"
