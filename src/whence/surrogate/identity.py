"""Check that a training set is the fitted one, by a sketch of four numbers per sample, and its label.

A digest of bytes would not work: the same samples in batches of another size, or on another device, have
features that differ by rounding. Sums of the features with random signs differ by as little.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whence.core.arrays import Array, Floats, Ints, Mask
from whence.data import TrainingSet
from whence.errors import InvalidInputError
from whence.features.rows import blocks, taken
from whence.model.bound import BoundModel
from whence.model.inputs import to_model

if TYPE_CHECKING:
    from whence.surrogate.surrogate import Surrogate

WIDTH = 4
_KNOWN_BY = 7  # random samples to compare, besides the first
_SPREAD = 0.1  # tolerance as a share of the typical distance of a sample from the middle of all
_MIXED = 0.05  # most tolerance as a share of a sample's own length, the error of mixed precision
_ROUNDING = 1e-3  # least tolerance as a share of that length


def make_sketch(features: Floats, labels: Array) -> Floats:
    """Return the sketch (N, 4 + …) of features (N, d) and labels (N, …), float32; (N, 5) for classes."""
    return np.column_stack([_sums(features), labels.reshape(len(labels), -1).astype(np.float32)])


def check_sketch(kept: Floats, known: Mask, features: Floats, rows: Ints, argument: str) -> None:
    """Raise InvalidInputError unless features (n, d) are those of ``rows`` of a sketch (N, 4 + …).

    ``known`` (N,) says which samples the sketch has. Every sample is compared by its own length, and by a
    median over all samples, so that a few with large features do not excuse the others.

    E (s·δ)² = ‖δ‖² for random signs s, so that sums estimate the distance of features.
    """
    sums = kept[known, :WIDTH].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # features may not be finite
        before, now = kept[rows, :WIDTH].astype(np.float64), _sums(features).astype(np.float64)
        apart = np.sqrt(((now - before) ** 2).mean(axis=1))
        squares = [np.einsum("ij,ij->i", part, part, dtype=np.float64) for part in blocks(features)]
        length = np.sqrt(np.concatenate([np.zeros(0), *squares]))
        from_middle = np.sqrt(((sums - np.median(sums, axis=0)) ** 2).mean(axis=1)) if len(sums) else sums
    spread = float(np.median(from_middle[from_middle > 0])) if from_middle.any() else 0.0
    tolerance = np.maximum(np.minimum(_SPREAD * spread, _MIXED * length), _ROUNDING * length)
    same = np.isfinite(length) & (apart <= tolerance + 1e-12)  # never so for NaN
    other = rows[~same]
    if len(other):
        raise InvalidInputError(
            f"'{argument}' must be of the training set that was fitted, in its order. {len(other):,} of "
            f"{len(rows):,} samples have other features, such as sample {other[0]}. Pass the same samples, "
            "or fit again."
        )


def _sums(features: Floats) -> Floats:
    """Return sums (n, 4) of features (n, d) with fixed signs."""
    n = features.shape[1] * WIDTH
    bits = np.unpackbits(np.frombuffer(hashlib.shake_256(b"whence").digest(-(-n // 8)), np.uint8))[:n]
    signs = 1 - 2 * bits.reshape(-1, WIDTH).astype(np.float32)
    parts = [block.astype(np.float32) @ signs for block in blocks(features)]
    return np.concatenate(parts) if parts else np.empty((0, WIDTH), np.float32)


def check_training(
    surrogate: Surrogate, features: Floats, rows: Ints | None = None, argument: str = "features"
) -> None:
    """Raise unless features (n, d) are those of the fitted training samples ``rows`` (n,), or of all."""
    rows = np.arange(len(surrogate.labels)) if rows is None else rows
    used = surrogate.task.known(surrogate.labels)[rows]
    known = surrogate.task.known(_fitted_labels(surrogate))
    check_sketch(surrogate.sketch, known, taken(features, used), rows[used], argument)


def check_labels(surrogate: Surrogate, labels: Array, argument: str) -> None:
    """Raise unless training labels (N, …), blank if unknown, are those that were fitted."""
    if len(labels) != len(surrogate.labels):
        raise InvalidInputError(
            f"'{argument}' must be of the training set that was fitted, {len(surrogate.labels):,} samples. "
            f"Got {len(labels):,}."
        )
    kept, known = _fitted_labels(surrogate), surrogate.task.known
    differ = (kept != labels.astype(kept.dtype)).reshape(len(labels), -1).any(axis=1)
    other = np.flatnonzero(known(kept) & known(labels) & differ)
    if len(other):
        i = other[0]
        raise InvalidInputError(
            f"'{argument}' must be the training set that was fitted, in its order. {len(other):,} of "
            f"{len(labels):,} samples have other labels: sample {i} has {labels[i]}, was "
            f"{kept[i].astype(labels.dtype)}. Pass the same samples, or fit again."
        )


def check_data(
    surrogate: Surrogate, data: TrainingSet, model: BoundModel, relabelled: Sequence[int] = ()
) -> None:
    """Raise unless a training set is the fitted one, by all labels and the features of a few samples.

    Labels that the set lists count if it is right about these samples; otherwise all samples are read.
    Samples that were ``relabelled`` since may have any label.
    """
    task = surrogate.task
    labels = task.blank(len(data))
    check_labels(surrogate, labels, "data")  # as many as there were
    possible = np.flatnonzero(task.known(surrogate.labels))
    rows = np.sort(np.r_[possible[:1], np.random.default_rng().permutation(possible[1:])[:_KNOWN_BY]])
    batch = data.read(rows.tolist())
    known = data.known_labels()
    if known is not None and np.array_equal(known[rows], batch.labels):
        labels = known.copy()
    else:
        for part in data.reading(0, "skip").batches():
            labels[part.indices] = part.labels
    labels[rows] = batch.labels
    labels[list(relabelled)] = task.blank(1)[0]
    check_labels(surrogate, labels, "data")
    features = model.read_batch(to_model(model.extractor.model, batch.inputs)).features
    check_training(surrogate, features.float().cpu().numpy(), rows, "data")


def _fitted_labels(surrogate: Surrogate) -> Array:
    """Return the labels of the fitted training set, without changes by what-if questions."""
    return surrogate.sketch[:, WIDTH:].reshape(surrogate.labels.shape)
