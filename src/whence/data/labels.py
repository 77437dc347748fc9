"""Labels as classes 0 … K−1, which they are where nobody says otherwise, and the names of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from whence.core.arrays import Array, Ints, Mask
from whence.core.checks import to_array
from whence.data.items import LABEL_NAMES
from whence.data.sources import Joined
from whence.data.targets import Targets
from whence.errors import DataWarning, InvalidInputError, ModelError, SampleError, warn

_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Labels(Targets):
    """One class per sample, 0 … K−1, or its name; −1 where a sample could not be read."""

    has_classes: ClassVar[bool] = True

    def named(self, model_names: Sequence[str] | None, data_names: Sequence[str] | None) -> Self:
        """Take the model's names, or those it has, else the data's, and warn where they disagree."""
        model_names = self.names if model_names is None else model_names
        if model_names is None or data_names is None:
            names = data_names if model_names is None else model_names
            return replace(self, names=None if names is None else tuple(names))
        if set(model_names) == set(data_names) and list(model_names) != list(data_names):
            i = next(
                i for i, pair in enumerate(zip(model_names, data_names, strict=False)) if len({*pair}) > 1
            )
            warn(
                f"The model calls class {i} {model_names[i]!r}, the data {data_names[i]!r}. Integers are "
                "taken as they are; where the model is right about the names, give labels as text, where "
                "the data are, set model.config.id2label.",
                DataWarning,
            )
        return replace(self, names=tuple(model_names))

    def encode(self, labels: Any, indices: Sequence[int] | None = None) -> Ints:
        """Return the classes of labels: integers as they are, whose range the head decides; text by its name.

        Parameters
        ----------
        labels
            One per sample: an array, a tensor, or a list of numbers or text.
        indices
            The samples' places, for the error; None counts from 0.
        """
        if isinstance(labels, list | tuple):
            labels = [label.item() if _is_scalar(label) else label for label in labels]
        try:
            array = to_array("data", labels)
        except InvalidInputError as error:
            raise InvalidInputError(f"'data' must give one label per sample. {error}") from error
        if array.ndim != 1:
            raise InvalidInputError(
                "'data' must give one label per sample, a number or a name. "
                f"Got labels of shape {array.shape}."
            )
        if array.dtype.kind in "UTO" and all(isinstance(label, str) for label in array):
            array = self._by_name(array, indices)
        if array.dtype.kind not in "iu":
            raise InvalidInputError(
                "'data' must give integer labels in [0, n_classes), or names of classes. "
                f"Got dtype {array.dtype}, such as {array[0]}. Map the labels to 0 … K−1 first."
            )
        if array.dtype.kind == "u" and (array > _LARGEST).any():
            i = int((array > _LARGEST).argmax())
            raise SampleError(
                i if indices is None else int(indices[i]),
                f"its label must be below 2⁶³; it is {array[i]}",
                "Map the labels to 0 … K−1.",
            )
        return array.astype(np.int64)

    def blank(self, n: int) -> Ints:
        """Return −1, n times."""
        return np.full(n, -1, dtype=np.int64)

    def known(self, labels: Array) -> Mask:
        """Return where labels are at least 0."""
        return labels >= 0

    def check(self, labels: Array, indices: Ints, n_outputs: int, layer: str) -> None:
        """Raise SampleError where a label is not in [0, K)."""
        outside = (labels < 0) | (labels >= n_outputs)
        if outside.any():
            i = int(outside.argmax())
            raise SampleError(
                int(indices[i]),
                f"its label must be in [0, {n_outputs}), the classes of layer {layer!r}; it is {labels[i]}",
                "Map the labels to 0 … K−1, or leave the sample out.",
            )

    def check_head(self, layer: str, d: int, n_outputs: int) -> None:
        """Raise where there is only one output."""
        if n_outputs == 1:
            raise ModelError(
                f"The model must give one logit per class. Layer {layer!r} gives one in all. Say what it is: "
                "task=whence.tasks.OneLogit() where labels are 0 and 1, task=whence.tasks.Regression() where "
                "they are numbers."
            )
        super().check_head(layer, d, n_outputs)

    def _by_name(self, array: Array, indices: Sequence[int] | None) -> Ints:
        if self.names is None:
            raise InvalidInputError(
                f"'data' has labels of text, such as {str(array[0])!r}, and neither model nor data say which "
                "class they are. Set model.config.id2label, or map the labels to 0 … K−1."
            )
        classes = {name: i for i, name in enumerate(self.names)}
        unknown = [i for i, name in enumerate(array) if name not in classes]
        if unknown:
            i = unknown[0]
            raise SampleError(
                i if indices is None else int(indices[i]),
                f"its label {str(array[i])!r} is no class of the model: {some_names(self.names)}",
                "Rename it, set model.config.id2label, or give integer labels.",
            )
        return np.array([classes[name] for name in array], dtype=np.int64)


def data_names(dataset: Any) -> tuple[str, ...] | None:
    """Find the class names that a dataset carries: features["label"].names, or classes."""
    if isinstance(dataset, Subset):
        return data_names(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        found = {data_names(part) for part in dataset.datasets}
        return found.pop() if len(found) == 1 else None
    features: Any = getattr(dataset, "features", None)
    for name in LABEL_NAMES if isinstance(features, dict) else ():
        names = getattr(features.get(name), "names", None)
        if names:
            return tuple(map(str, names))
    classes = getattr(dataset, "classes", None)
    return tuple(map(str, classes)) if isinstance(classes, list | tuple) and classes else None


def listed_labels(dataset: Any) -> Array | None:
    """Return all labels of a dataset without reading its samples; None where that cannot be done."""
    if isinstance(dataset, Subset):
        known = listed_labels(dataset.dataset)
        return None if known is None else known[np.asarray(dataset.indices)]
    if isinstance(dataset, ConcatDataset | Joined):
        several = (
            [part.known_labels() for part in dataset.parts]
            if isinstance(dataset, Joined)
            else [listed_labels(part) for part in dataset.datasets]
        )
        parts = [part for part in several if part is not None]
        return np.concatenate(parts) if len(parts) == len(several) else None
    if isinstance(dataset, TensorDataset):
        return dataset.tensors[-1].numpy(force=True)
    columns = getattr(dataset, "column_names", None)
    if isinstance(columns, list):
        names = [name for name in LABEL_NAMES if name in columns]
        return np.asarray(dataset[names[0]][:]) if len(names) == 1 else None
    for name in ("targets", "labels"):
        labels = getattr(dataset, name, None)
        if isinstance(labels, list | Tensor | np.ndarray) and len(labels) == len(dataset):
            return to_array("data", labels)
    return None


def _is_scalar(label: Any) -> bool:
    return isinstance(label, Tensor | np.ndarray | np.generic) and int(np.prod(label.shape)) == 1


def some_names(names: Sequence[str]) -> str:
    """Name the first eight, and say how many more there are."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
