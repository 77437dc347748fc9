"""How alike the outputs of two models are."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from whence.core.arrays import Floats


def likeness(a: Floats, b: Floats) -> float:
    """Mean cosine of the rows; with two classes correlation of the margins, 0 where one is constant."""
    if a.shape[1] > 2:
        return mean_cosine(a, b)
    return correlation(a[:, 1:] - a[:, :1], b[:, 1:] - b[:, :1])


def correlation(a: Floats, b: Floats) -> float:
    """Correlation of two arrays' columns (n, K), a mean over columns; 0 where one is constant."""
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    lengths = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    products = np.einsum("ic,ic->c", a, b)
    return float(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0).mean())


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's correlation of two arrays' columns (n, K), a mean over columns; 0 where one is constant."""
    return correlation(rankdata(a, axis=0), rankdata(b, axis=0))


def explained(a: Floats, b: Floats) -> float:
    """R², the share of the variance of b (n, K) that a explains, at least 0, a mean over columns."""
    left, all_of_it = ((b - a) ** 2).sum(axis=0), ((b - b.mean(axis=0)) ** 2).sum(axis=0)
    share = np.divide(left, all_of_it, out=(left > 0).astype(np.float64), where=all_of_it > 0)
    return float(np.maximum(1.0 - share, 0.0).mean())


def mean_cosine(a: Floats, b: Floats) -> float:
    """Mean over rows of the cosine between a and b, both centred over classes; 0 where one is constant."""
    a = a - a.mean(axis=1, keepdims=True)
    b = b - b.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = np.einsum("ic,ic->i", a, b)
    return float(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0).mean())
