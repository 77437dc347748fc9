"""Checked features of one batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from whence.core.arrays import Array
from whence.core.checks import check_that
from whence.data import Batch
from whence.errors import HeadError, InvalidInputError
from whence.features.rows import Rows
from whence.model.extractor import Extractor, check_repeatable
from whence.model.inputs import take
from whence.model.layers import Layers
from whence.tasks import Task

_MEASURED = 256  # samples by whose features layers are scaled
_REMEDY = "Check the model's activations on that sample, or leave it out."
_PROBED = 64  # samples that show whether the model is random or mixes the samples of a batch


class Forward:
    """Checked features of a batch, in the bank's dtype."""

    def __init__(self, extractor: Extractor, task: Task, dtype: np.dtype[Any], autocast: str | None) -> None:
        self.extractor, self.task, self.dtype, self.autocast = extractor, task, dtype, autocast
        self.n_outputs, self.dimension = extractor.head().weight.shape

    def __call__(self, batch: Batch) -> Rows:
        """Features (B, d), or an error that names the sample."""
        with self._running(batch):
            rows = self.extractor(batch.inputs).float().cpu().numpy()
        rule = f"give one label per input, {len(rows)}"
        check_that(len(rows) == len(batch.labels), "data", rule, len(batch.labels))
        self.task.check(batch.labels, batch.indices, self.n_outputs, self.extractor.layer)
        self._check_finite(rows, batch, _REMEDY)
        if rows.dtype != self.dtype:
            with np.errstate(over="ignore"):  # infinity is found below
                rows = rows.astype(self.dtype)
            self._check_finite(rows, batch, 'It is too large for float16; use dtype="float32".')
        return rows

    def scale(self, layers: Layers, batches: Iterable[Batch]) -> None:
        """Divide every layer's features by the root of their mean squared norm on the first few samples."""
        squares, seen = np.zeros(len(layers.blocks)), 0
        for batch in batches:
            if not len(batch.indices):
                continue
            with self._running(batch):
                rows = self.extractor(take(batch.inputs, slice(_MEASURED - seen))).float().cpu().numpy()
            self._check_finite(rows, batch, _REMEDY)
            squares += [np.sum(rows[:, part] ** 2, dtype=np.float64) for part in layers.places.values()]
            seen += len(rows)
            if seen == _MEASURED:
                break
        self.extractor.layers = layers.scaled((squares / seen).tolist())

    def rows(self, batch: Batch) -> tuple[Rows, Array]:
        """Features (B, d) and labels (B, …) of a batch, zeros and blank labels for what could not be read."""
        if not batch.skipped:
            return self(batch), batch.labels
        n = len(batch.indices) + len(batch.skipped)
        features, labels = np.zeros((n, self.dimension), self.dtype), self.task.blank(n)
        if len(batch.indices):
            read = batch.indices - min(*batch.indices, *batch.skipped)
            features[read], labels[read] = self(batch), batch.labels
        return features, labels

    def difference(self, now: Rows, before: Rows) -> float:
        """Return how far two rows of features of a sample differ, by their length; 0 if by rounding only."""
        a, b = now.astype(np.float64), before.astype(np.float64)
        length, distance = (float(np.linalg.norm(row)) for row in (np.r_[a, b], a - b))
        difference = distance / max(length, 1e-6)
        # Batches of other sizes are added up in another order; in mixed precision that shows.
        rounding = 0.05 if self.autocast else 0.01 if self.dtype == np.float16 else 1e-3
        return difference if difference > rounding else 0.0

    def probe(self, batch: Batch) -> None:
        """Raise ModelError unless a few samples have the same features again, and in another batch."""
        with self._running(batch):
            check_repeatable(self.extractor, take(batch.inputs, slice(_PROBED)))

    @contextmanager
    def _running(self, batch: Batch) -> Iterator[None]:
        """Run the model on a batch in its precision; an error about the head names the sample."""
        try:
            device = next(self.extractor.model.parameters()).device.type
            with torch.autocast(device, getattr(torch, self.autocast)) if self.autocast else nullcontext():
                yield
        except HeadError as error:
            raise error.about(f"sample {batch.indices[error.row]} of 'data'") from None

    @staticmethod
    def _check_finite(rows: Rows, batch: Batch, remedy: str) -> None:
        finite = np.isfinite(rows)
        if not finite.all():
            i, j = np.argwhere(~finite)[0]
            raise InvalidInputError(
                f"The model's features must be finite. Got {rows[i, j]} for sample {batch.indices[i]} of "
                f"'data', feature {j}. {remedy}"
            )
        with np.errstate(over="ignore"):
            lengths = np.einsum("ij,ij->i", rows, rows, dtype=np.float32)
        if not np.isfinite(lengths).all():
            i = int(np.isfinite(lengths).argmin())
            raise InvalidInputError(
                f"The model's features must be small enough for inner products in float32. Those of sample "
                f"{batch.indices[i]} of 'data' are up to {np.abs(rows[i]).max():.3g}. Scale the inputs."
            )
