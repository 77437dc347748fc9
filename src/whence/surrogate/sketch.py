"""A sketch of a training set, by which an explainer knows it again: four numbers per sample, and its label.

A digest of bytes would not do: the same samples in batches of another size, or on another device, have
features that differ by rounding. Sums of the features with random signs differ by as little.
"""

from __future__ import annotations

import hashlib

import numpy as np

from whence.core.arrays import Array, Floats, Ints, Mask
from whence.errors import InvalidInputError
from whence.features.rows import blocks

WIDTH = 4
_SPREAD = 0.1  # of the distance between samples: mixed precision leaves less, other samples more
_ROUNDING = 1e-3  # of the features' length


def sketch(features: Floats, labels: Array) -> Floats:
    """Return the sketch (N, 4 + …) of features (N, d) and labels (N, …), float32: of classes (N, 5)."""
    return np.column_stack([_sums(features), labels.reshape(len(labels), -1).astype(np.float32)])


def check_same(kept: Floats, known: Mask, features: Floats, rows: Ints, argument: str) -> None:
    """Raise InvalidInputError unless features (n, d) are those of some samples of a sketch (N, 4 + …).

    ``known`` (N,) says which samples it knows.

    E (s·δ)² = ‖δ‖² for random signs s, so that sums tell how far features are apart.
    """
    own = kept[known, :WIDTH].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # features that are not finite: sums that are neither
        before, now = kept[rows, :WIDTH].astype(np.float64), _sums(features).astype(np.float64)
        apart = np.sqrt(((now - before) ** 2).mean(axis=1))
    spread = float(np.sqrt(((own - own.mean(axis=0)) ** 2).mean())) if len(own) else 0.0
    length = np.sqrt((before**2).mean(axis=1))
    same = apart <= np.maximum(_SPREAD * spread, _ROUNDING * length) + 1e-12  # never so for NaN
    other = rows[~same]
    if len(other):
        raise InvalidInputError(
            f"'{argument}' must be of the training set that was fitted, in its order. {len(other):,} of "
            f"{len(rows):,} samples have other features, such as sample {other[0]}. Give the same samples, "
            "or fit again."
        )


def _sums(features: Floats) -> Floats:
    """Sums (n, 4) of features (n, d) with signs that are the same everywhere and always."""
    n = features.shape[1] * WIDTH
    bits = np.unpackbits(np.frombuffer(hashlib.shake_256(b"whence").digest(-(-n // 8)), np.uint8))[:n]
    signs = 1 - 2 * bits.reshape(-1, WIDTH).astype(np.float32)
    parts = [block.astype(np.float32) @ signs for block in blocks(features)]
    return np.concatenate(parts) if parts else np.empty((0, WIDTH), np.float32)
