"""Objects of transformers that hold a model, with what they know of its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch.utils.data import DataLoader

from whence.data import TrainingSet
from whence.data.items import LABEL_NAMES


class Held(NamedTuple):
    """What a model comes with.

    Attributes
    ----------
    data : the training set that was given, or else the holder's own
    preprocess, collate_fn : what makes the model's inputs of samples, where the holder knows it
    """

    data: Any
    preprocess: Callable[[Any], Any] | None = None
    collate_fn: Callable[[list[Any]], Any] | None = None


@dataclass(frozen=True)
class Known:
    """A collator that is given only what the model knows of each sample, as a ``Trainer`` does it.

    Attributes
    ----------
    collate_fn : the collator
    names : of what the model takes
    """

    collate_fn: Callable[[list[Any]], Any]
    names: frozenset[str]

    def __call__(self, items: list[Any]) -> Any:
        """Make a batch of samples."""
        known = self.names | {*LABEL_NAMES, "label_ids"}
        return self.collate_fn([{k: v for k, v in dict(item).items() if k in known} for item in items])


def inside(model: Any) -> Any:
    """Give the model that a ``Trainer`` or a ``pipeline`` of transformers holds; others stay as they are."""
    return model.model if _holder(model) else model


def held_by(model: Any, data: Any) -> Held:
    """Give what a ``Trainer`` or a ``pipeline`` knows beside its model, for data in a form that needs it."""
    holder = _holder(model)
    if holder == "Pipeline":
        tools = (getattr(model, name, None) for name in ("tokenizer", "image_processor", "feature_extractor"))
        ready = isinstance(data, TrainingSet)
        return Held(data, None if ready else next((tool for tool in tools if tool is not None), None))
    if holder == "Trainer":
        data = model.train_dataset if data is None else data
        if not isinstance(data, TrainingSet | DataLoader | tuple | str):
            names = frozenset(inspect.signature(model.model.forward).parameters)
            return Held(data, None, Known(model.data_collator, names))
    return Held(data)


def _holder(model: Any) -> str | None:
    """Name the kind of transformers' holder that an object is, without importing transformers."""
    for kind in type(model).__mro__:
        if kind.__name__ in ("Trainer", "Pipeline") and kind.__module__.startswith("transformers."):
            return kind.__name__
    return None
