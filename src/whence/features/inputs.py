"""Inputs as vectors by which novel ones are found: their values, their direction and their statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Floats
from whence.errors import InvalidInputError
from whence.features.metric import FeatureMap, Metric

Views = dict[str, Floats]
"""Vectors (B, m) of some inputs by the name of the view: "values", and but for short ones "direction" and
"statistics"."""

SIZE = 256
"""Numbers per sample at most; longer inputs are sketched."""
_CHANNELS = 16  # a second dimension up to which it is that of channels
_FLAT = 1e-3  # a spread of values, relative to their size, below which an input has no direction
_METRICS = {"values": Metric(centre=True, shrinkage=1.0), "statistics": Metric(centre=True, shrinkage=0.1)}


class InputViews:
    """Reads inputs as vectors whose Euclidean distances show what is unlike the training inputs.

    ========== ===================================================================================
    values     all values, centred and whitened with shrinkage 1
    direction  all values at unit length, whatever their scale; a constant input has none, and is far from
               all others
    statistics of every channel the mean, the standard deviation, and the root mean square of the
               differences along each axis
    ========== ===================================================================================

    Inputs of up to 256 numbers without channels or axes, such as rows of a table, have values alone, each
    divided by its standard deviation. More than 256 values are sketched: each is added, with a fixed random
    sign, to one of 256 sums, which keeps distances in expectation.

    Parameters
    ----------
    batches : of the training set, floating-point inputs (B, …) by their names; read once

    Attributes
    ----------
    views : of the training inputs, (N, ≤ 257) each
    shapes : of one input, by its name
    """

    def __init__(self, batches: Iterable[Mapping[str, Tensor]]) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        parts = [self._views(batch) for batch in batches]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        self._scale = np.ones(joined["values"].shape[1], np.float32)
        if len(joined) == 1:
            spread = joined["values"].std(axis=0)
            self._scale[spread > 0] = 1 / spread[spread > 0]
            joined["values"] *= self._scale
        self._maps: dict[str, FeatureMap] = {
            name: _METRICS[name].fit(rows) for name, rows in joined.items() if name in _METRICS
        }
        self.views = self._mapped(joined)

    def __call__(self, inputs: Mapping[str, Tensor]) -> Views:
        """Read inputs (B, …) of tests, by their names."""
        views = self._views(inputs)
        views["values"] *= self._scale
        return self._mapped(views)

    def _mapped(self, views: Views) -> Views:
        """Apply what was learned."""
        return {
            name: self._maps[name](torch.from_numpy(rows)).numpy() if name in self._maps else rows
            for name, rows in views.items()
        }

    def _views(self, inputs: Mapping[str, Tensor]) -> Views:
        shapes = {name: tuple(x.shape[1:]) for name, x in inputs.items()}
        self.shapes = self.shapes or shapes
        if shapes != self.shapes:
            raise InvalidInputError(
                f"'x' must have the shape of the training samples, {_in_words(self.shapes)}. Got "
                f"{_in_words(shapes)}."
            )
        arrays = [torch.nan_to_num(x.detach().float()).cpu().numpy() for x in inputs.values()]
        flat = np.concatenate([x.reshape(len(x), -1) for x in arrays], axis=1)
        if all(x.ndim < 3 for x in arrays) and flat.shape[1] <= SIZE:
            return {"values": flat}
        sketch = _sketched(flat)
        spread = np.stack([_channels(x).std(axis=2).max(axis=1) for x in arrays]).max(axis=0)
        constant = spread <= _FLAT * np.sqrt(np.mean(flat**2, axis=1))
        lengths = np.linalg.norm(sketch, axis=1, keepdims=True)
        unit = sketch / np.where(constant[:, None] | (lengths == 0), np.inf, lengths)
        return {
            "values": sketch,
            "direction": np.concatenate([unit, 2.0 * constant[:, None]], axis=1, dtype=np.float32),
            "statistics": np.concatenate([_statistics(x) for x in arrays], axis=1, dtype=np.float32),
        }


def _sketched(rows: Floats) -> Floats:
    """Return rows (B, D) unchanged or, if longer than 256, as sums (B, 256) with random signs."""
    if rows.shape[1] <= SIZE:
        return rows.copy()
    rng = np.random.default_rng(0)
    places = torch.from_numpy(rng.integers(0, SIZE, rows.shape[1]))
    signs = rng.choice(np.array([-1, 1], np.float32), rows.shape[1])
    sums = torch.zeros(len(rows), SIZE).index_add_(1, places, torch.from_numpy(rows * signs))
    sketch: Floats = sums.numpy()
    return sketch


def _channels(x: Floats) -> Floats:
    """Return values (B, C, …) with one dimension of channels as (B, C, P)."""
    channels = x.shape[1] if x.ndim > 2 and x.shape[1] <= _CHANNELS else 1
    values: Floats = x.reshape(len(x), channels, -1)
    return values


def _statistics(x: Floats) -> Floats:
    """Return mean, standard deviation and roughness along each axis, of each channel (B, m)."""
    values = _channels(x)
    grid = x if x.ndim > 2 and x.shape[1] <= _CHANNELS else x[:, None]
    steps = [np.diff(grid, axis=axis) for axis in range(2, grid.ndim) if x.ndim > 2 and grid.shape[axis] > 1]
    rough = [np.sqrt(np.mean(step.reshape(*values.shape[:2], -1) ** 2, axis=2)) for step in steps]
    statistics: Floats = np.concatenate([values.mean(axis=2), values.std(axis=2), *rough], axis=1)
    return statistics


def _in_words(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes.values()))
