"""Removal of features from a sample: units of removal, and the values that replace them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_finite, check_that, is_integer, real_array
from whence.errors import InvalidInputError
from whence.model.inputs import each_part
from whence.relevance.sources import floating, replaced, tokens_of

Baseline = str | float | npt.NDArray[Any] | Tensor
"""The value of a removed feature; see ``pair_flipping``."""


@dataclass(frozen=True)
class Removable:
    """A sample whose features can be removed unit by unit.

    A unit is a square of pixels over all channels, a token, or one number of any other input.

    Attributes
    ----------
    inputs : the sample as the model takes it, a batch of one
    name : name of the input that is divided into units
    values : (…) that input
    substitute : (…) the values of removed units
    units : the unit of each entry, −1 for entries that are never removed; (height, width) for images
    shown : the entries that a relevance map has values for; for texts all but padding
    """

    inputs: Any
    name: str
    values: Tensor
    substitute: Tensor
    units: Tensor
    shown: Tensor

    @classmethod
    def of(cls, inputs: Any, baseline: Baseline, patch: int = 1, keep: Sequence[int] = ()) -> Removable:
        """Divide a batch of one into units; arguments as for ``pair_flipping``."""
        sources = floating(inputs)
        if sources:
            ((name, batch),) = sources.items()
            values = batch[0]
            units = _numbered(values, patch)
            shown = torch.ones_like(units, dtype=torch.bool)
            return cls(inputs, name, values, _substitute(values, baseline), units, shown)
        return cls._of_text(inputs, baseline, patch, keep)

    @classmethod
    def _of_text(cls, inputs: Any, baseline: Baseline, patch: int, keep: Sequence[int]) -> Removable:
        rule = "be a token id for texts, such as the tokenizer's mask_token_id"
        check_that(is_integer(baseline), "baseline", rule, baseline)
        _check_single(patch)
        batch = tokens_of(inputs)
        assert batch is not None
        named = inputs if isinstance(inputs, Mapping) else {"input": inputs}
        name = next(key for key, part in named.items() if part is batch)
        tokens, mask = batch[0], named.get("attention_mask")
        shown = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask[0].bool()
        removable = shown & ~torch.isin(tokens, torch.tensor(list(keep), dtype=tokens.dtype))
        units = torch.where(removable, removable.cumsum(0) - 1, -1)
        if not removable.any():
            raise InvalidInputError("'keep' must leave tokens to remove. Got a text with none.")
        return cls(inputs, name, tokens, torch.full_like(tokens, cast(int, baseline)), units, shown)

    @cached_property
    def n_units(self) -> int:
        """The number of units."""
        return int(self.units.max()) + 1

    def relevance(self, relevance_map: npt.NDArray[np.float32]) -> Doubles:
        """Sum a relevance map over each unit, shape (units,)."""
        array = np.asarray(relevance_map, dtype=np.float64)
        values = (array.sum(axis=0) if array.ndim > self.units.ndim else array).ravel()
        units = self.units[self.shown].cpu().numpy()
        return np.bincount(units[units >= 0], values[units >= 0], self.n_units).astype(np.float64)

    def without(self, removed: npt.NDArray[np.bool_]) -> Any:
        """Return n versions of the sample, each without the units in a row of ``removed`` (n, units)."""
        n = len(removed)
        never = np.zeros((n, 1), dtype=bool)  # the mark of unit −1
        marks = torch.from_numpy(np.hstack([removed, never])).to(self.units.device)
        gone = marks[:, self.units]  # (n, …)
        if gone.ndim == self.values.ndim:
            gone = gone[:, None]  # all channels of a pixel
        values = torch.where(gone, self.substitute, self.values)
        others = each_part(
            self.inputs, lambda part: part.expand(n, *part.shape[1:]) if isinstance(part, Tensor) else part
        )
        return replaced(others, {self.name: values})


def _numbered(values: Tensor, patch: int) -> Tensor:
    """Number the units of an input: squares of an image, from the top left; single numbers otherwise."""
    if values.ndim not in (2, 3):
        _check_single(patch)
        return torch.arange(values.numel(), device=values.device).view(values.shape)
    height, width = values.shape[-2:]
    patch = min(patch, max(height, width))
    columns = -(-width // patch)
    rows = torch.arange(height, device=values.device) // patch
    return rows[:, None] * columns + torch.arange(width, device=values.device) // patch


def _check_single(patch: int) -> None:
    check_that(patch == 1, "patch", "be 1 for inputs that are not images", patch)


def _substitute(values: Tensor, baseline: Baseline) -> Tensor:
    """Return the values of removed features, in the shape of ``values``."""
    if not isinstance(baseline, str):
        array = real_array("baseline", baseline).astype(np.float64)
        check_finite("baseline", array)
        try:
            return torch.as_tensor(array).to(values).expand(values.shape)
        except RuntimeError as error:
            raise InvalidInputError(
                f"'baseline' must have the sample's shape {tuple(values.shape)}. Got {array.shape}."
            ) from error
    if baseline not in ("mean", "blur") or values.ndim not in (2, 3):
        raise InvalidInputError(
            f'\'baseline\' must be "mean" or "blur" for images, a number, or an array. Got {baseline!r} '
            f"for inputs of shape {tuple(values.shape)}."
        )
    if baseline == "mean":
        return values.mean((-2, -1), keepdim=True).expand(values.shape)
    height, width = values.shape[-2:]
    widths = (*[0] * (values.ndim - 2), height / 8, width / 8)
    return torch.from_numpy(gaussian_filter(values.cpu().numpy(), widths, mode="nearest")).to(values)


def removal_order(relevance: Doubles, lots: Ints) -> Ints:
    """Order units by relevance, largest first; ties are broken at random.

    A map that is 0 on most of an image does not define the order there. Its result must not depend on the
    order in which pixels are stored.

    Parameters
    ----------
    relevance : (units,)
    lots : (units,)
        A permutation.

    Examples
    --------
    >>> import numpy as np
    >>> removal_order(np.array([0.0, 2.0, 0.0, -1.0]), np.array([2, 3, 0, 1]))
    array([1, 2, 0, 3])
    """
    return lots[np.argsort(-relevance[lots], kind="stable")]
