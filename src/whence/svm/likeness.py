"""How alike the outputs of two models are."""

from __future__ import annotations

import numpy as np

from whence.core.arrays import Floats


def likeness(a: Floats, b: Floats) -> float:
    """Mean cosine of the rows; with two classes correlation of the margins, 0 where one is constant."""
    if a.shape[1] > 2:
        return mean_cosine(a, b)
    margins = np.stack([a[:, 1] - a[:, 0], b[:, 1] - b[:, 0]])
    margins -= margins.mean(axis=1, keepdims=True)
    lengths = float(np.prod(np.linalg.norm(margins, axis=1)))
    return float(margins[0] @ margins[1]) / lengths if lengths > 0 else 0.0


def mean_cosine(a: Floats, b: Floats) -> float:
    """Mean over rows of the cosine between a and b, both centred over classes; 0 where one is constant."""
    a = a - a.mean(axis=1, keepdims=True)
    b = b - b.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = np.einsum("ic,ic->i", a, b)
    return float(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0).mean())
