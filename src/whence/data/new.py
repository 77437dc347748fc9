"""New samples to attribute, as data sets and loaders have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from torch.utils.data import DataLoader, Dataset

from whence.data.forms import of_loader
from whence.data.items import Prepare, split
from whence.data.sources import as_source
from whence.errors import InvalidInputError, WhenceError


@dataclass(frozen=True, eq=False)
class NewSamples:
    """Samples of a data set in its own order, read when they are asked for; their labels are left aside.

    Attributes
    ----------
    source : gives samples by index
    places : of the samples there
    collate_fn : makes a batch of a list of samples; None leaves it to whoever takes them
    """

    source: Any
    places: range
    collate_fn: Callable[[list[Any]], Any] | None = None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.places)

    def __getitem__(self, rows: slice) -> Self:
        """Return some of the samples."""
        return replace(self, places=self.places[rows])

    def inputs(self, prepare: Prepare) -> Any:
        """Read the samples, and make the model's inputs of them."""
        return replace(prepare, collate_fn=self.collate_fn or prepare.collate_fn).of_new(self._items())

    def labels(self) -> list[Any]:
        """Read the labels, as the data set has them, or raise where it has none."""
        return [split(item)[1] for item in self._items()]

    def _items(self) -> list[Any]:
        items = []
        for place in self.places:
            try:
                items.append(self.source[place])
            except WhenceError:
                raise
            except Exception as error:  # whatever a user's data set raises
                raise InvalidInputError(
                    f"'x' must give every sample. Sample {place} cannot be read: {type(error).__name__}: "
                    f"{error}. Repair or remove it."
                ) from error
        return items


def as_new(x: Any) -> Any:
    """Return a data set or loader as new samples; a batch of inputs, or what is none, stays as it is.

    Sample i is the data set's own, whatever a loader shuffles or drops.
    """
    if isinstance(x, NewSamples):
        return x
    collate_fn = None
    if isinstance(x, DataLoader):
        x, collate_fn = of_loader(x, "x")
    elif not isinstance(x, Dataset) and not isinstance(getattr(x, "column_names", None), list):
        return x
    source = as_source(x)
    return NewSamples(source, range(len(source)), collate_fn)
