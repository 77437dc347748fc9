"""How alike the outputs of two models are, block by block of the rows that they are compared on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from whence.core.arrays import Doubles, Floats, Ints
from whence.svm.problem import Problem

_BYTES = 1 << 24  # of the outputs held at a time


def judged(
    problem: Problem, rows: Ints, weight: Doubles, head: tuple[Floats, Floats | None] | None
) -> tuple[float, float | None]:
    """Compare W (K, d[+1]), the bias last, with a model's head on some rows, by ``Problem.compare``."""
    d = problem.features.shape[1]
    layers: list[tuple[Floats, Floats | None]] = [
        (weight[:, :d], weight[:, d] if weight.shape[1] > d else None)
    ]
    if head is not None:
        layers.append((head[0].astype(np.float64, copy=False), head[1]))
    size = max(64, _BYTES // (8 * problem.n_outputs))

    def parts() -> Iterator[tuple[Doubles, Doubles | None]]:
        for start in range(0, len(rows), size):
            f = problem.features[rows[start : start + size]].astype(np.float64)
            ours, *theirs = (f @ W.T if b is None else f @ W.T + b for W, b in layers)
            yield ours, theirs[0] if theirs else None

    return problem.compare(parts(), rows)


class Likeness:
    """The likeness of logits that come in parts.

    It is the mean cosine of the rows; with two classes, where that is ±1, the correlation of the margins, 0
    where one is constant.
    """

    def __init__(self) -> None:
        self._n, self._cosines = 0, 0.0
        self._margins: list[Doubles] = []

    def add(self, a: Floats, b: Floats) -> None:
        """Take logits (n, K) of both models for some more rows."""
        self._n += len(a)
        if a.shape[1] > 2:
            self._cosines += len(a) * mean_cosine(a, b)
        else:
            self._margins.append(np.stack([a[:, 1] - a[:, 0], b[:, 1] - b[:, 0]]))

    @property
    def value(self) -> float | None:
        """The likeness so far, None before the first row."""
        if not self._n:
            return None
        return (
            correlation(np.concatenate(self._margins, axis=1)) if self._margins else self._cosines / self._n
        )


def correlation(pair: Doubles) -> float:
    """The correlation of two rows of numbers (2, n), 0 where one is constant."""
    pair = pair - pair.mean(axis=1, keepdims=True)
    lengths = float(np.prod(np.linalg.norm(pair, axis=1)))
    return float(pair[0] @ pair[1]) / lengths if lengths > 0 else 0.0


def mean_cosine(a: Floats, b: Floats) -> float:
    """Mean over rows of the cosine between a and b, both centred over classes; 0 where one is constant."""
    a = a - a.mean(axis=1, keepdims=True)
    b = b - b.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = np.einsum("ic,ic->i", a, b)
    return float(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0).mean())
