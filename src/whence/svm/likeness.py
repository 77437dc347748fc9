"""Agreement and similarity of the outputs of two models, computed in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from whence.core.arrays import Doubles, Floats, Ints

if TYPE_CHECKING:
    from whence.svm.problem import Problem

HeadLayer = tuple[Floats, Floats | None]
"""A model's last layer: weight (K, d), and bias (K,) or None."""
Judge = Callable[[Doubles], tuple[float, float | None]]
"""Function that compares W (K, d[+1]), the bias last, with a model's head: agreement and similarity."""

# The measures of ``Problem.compare`` by kind of labels: agreement and similarity.
CLASSES = "agreement", "logit cosine"
LABELS = "agreement", "logit correlation"
NUMBERS = "R²", "rank correlation"

_BYTES = 1 << 24  # bytes of outputs in memory at a time
_JUDGED_BYTES = 1 << 26  # bytes of the logits of a head with many classes


def judged(
    problem: Problem,
    rows: Ints,
    weight: Doubles,
    head: HeadLayer | None,
    before: Floats | None = None,
) -> tuple[float, float | None]:
    """Compare W (K, d[+1]), the bias last, with a model's head on some rows, by ``Problem.compare``.

    ``before`` (N, d) are the features as the head reads them, where the problem's are others.
    """
    d = problem.features.shape[1]
    own: HeadLayer = weight[:, :d], weight[:, d] if weight.shape[1] > d else None
    theirs = None if head is None else (head[0].astype(np.float64, copy=False), head[1])
    size = max(64, _BYTES // (8 * problem.n_outputs))

    def parts() -> Iterator[tuple[Doubles, Doubles | None]]:
        for start in range(0, len(rows), size):
            block = rows[start : start + size]
            f = problem.features[block].astype(np.float64)
            raw = f if before is None else before[block].astype(np.float64)
            yield _outputs(f, *own), None if theirs is None else _outputs(raw, *theirs)

    return problem.compare(parts(), rows)


def _outputs(f: Doubles, W: Floats, b: Floats | None) -> Doubles:
    outputs: Doubles = f @ W.T
    return outputs if b is None else outputs + b


def with_bias(layer: HeadLayer) -> Doubles:
    """Return the weights of a layer with the bias as a last column, 0 without one, as a new array."""
    weight, bias = layer
    return np.column_stack([weight.astype(np.float64), np.zeros(len(weight)) if bias is None else bias])


class Likeness:
    """Similarity of logits that arrive in blocks.

    It is the mean cosine of the rows; with two classes, where that is ±1, the correlation of the margins, 0
    where one is constant.
    """

    def __init__(self) -> None:
        self._n, self._cosines = 0, 0.0
        self._margins: list[Doubles] = []

    def add(self, a: Floats, b: Floats) -> None:
        """Add logits (n, K) of both models for more rows."""
        self._n += len(a)
        if a.shape[1] > 2:
            self._cosines += len(a) * mean_cosine(a, b)
        else:
            self._margins.append(np.stack([a[:, 1] - a[:, 0], b[:, 1] - b[:, 0]], axis=1))

    @property
    def value(self) -> float | None:
        """The similarity so far, None before the first row."""
        if not self._n:
            return None
        if not self._margins:
            return self._cosines / self._n
        margins = np.concatenate(self._margins)
        return correlation(margins[:, :1], margins[:, 1:])


def correlation(a: Floats, b: Floats) -> float:
    """Return the mean correlation of two arrays' columns (n, K); 0 for constant columns."""
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    lengths = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    products = np.einsum("ic,ic->c", a, b)
    return float(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0).mean())


def rank_correlation(a: Floats, b: Floats) -> float:
    """Return Spearman's mean correlation of two arrays' columns (n, K); 0 for constant columns."""
    from scipy.stats import rankdata  # slow to import

    return correlation(rankdata(a, axis=0), rankdata(b, axis=0))


def explained(a: Floats, b: Floats) -> float:
    """Return the mean R² over columns: the share of the variance of b (n, K) that a explains, at least 0."""
    left, all_of_it = ((b - a) ** 2).sum(axis=0), ((b - b.mean(axis=0)) ** 2).sum(axis=0)
    share = np.divide(left, all_of_it, out=(left > 0).astype(np.float64), where=all_of_it > 0)
    return float(np.maximum(1.0 - share, 0.0).mean())


def mean_cosine(a: Floats, b: Floats) -> float:
    """Return the mean cosine between rows of a and b, both centred over classes; 0 for constant rows."""
    a = a - a.mean(axis=1, keepdims=True)
    b = b - b.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = np.einsum("ic,ic->i", a, b)
    return float(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0).mean())


class VocabularyJudge:
    """Compare W (K, d[+1]), the bias last, with a model's head on rows, if some classes have no samples.

    All classes without a sample have the same row of W, so that one of them stands for all. What depends on
    the head alone is computed once: its classes, and Σ_c v_c v_cᵀ. With rows f, and w_c and v_c less their
    means over classes, the logits' inner product is fᵀ (Σ_c w_c v_cᵀ) f and their squared lengths are
    fᵀ (Σ_c w_c w_cᵀ) f and fᵀ (Σ_c v_c v_cᵀ) f: sums over classes of weights and never of logits.

    Parameters
    ----------
    rows : (n, d) features
    labels : (n,) that take the place of the model's classes where there is no head
    present : (K,) whether a class has a sample
    head : the model's weight (K, d) and bias (K,) or None; None without a model
    before : (n, d) features as the head reads them
    """

    def __init__(
        self, rows: Floats, labels: Ints, present: np.ndarray, head: HeadLayer | None, before: Floats
    ) -> None:
        absent = np.flatnonzero(~present)
        self._used = np.sort(np.append(np.flatnonzero(present), absent[0]))
        self._place = int(np.searchsorted(self._used, absent[0]))  # one absent class represents all
        self._times = np.ones(len(self._used))
        self._times[self._place] = len(absent)
        self._rows, self._before = (_with_one(each) for each in (rows, before))
        self._classes, self._head = labels, None
        if head is not None:
            whole = with_bias(head)
            self._classes = _firsts(self._before, whole)
            whole = whole - whole.mean(axis=0)
            self._lengths = _forms(self._before, whole.T @ whole, self._before)
            self._head = whole[self._used]
            self._head[self._place] = whole[absent].sum(axis=0)

    def __call__(self, weight: Doubles) -> tuple[float, float | None]:
        """Return the share of rows with the same predicted class, and the mean cosine of centred logits."""
        d = self._rows.shape[1] - 1
        W = with_bias((weight[self._used, :d], weight[self._used, d] if weight.shape[1] > d else None))
        agreement = float(np.mean(self._used[_firsts(self._rows, W)] == self._classes))
        if self._head is None:
            return agreement, None
        W -= self._times @ W / self._times.sum()
        products = _forms(self._rows, W.T @ self._head, self._before)
        squares = _forms(self._rows, (W.T * self._times) @ W, self._rows) * self._lengths
        lengths = np.sqrt(np.maximum(squares, 0.0))
        cosines = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
        return agreement, float(cosines.mean())


def _firsts(rows: Doubles, weight: Doubles) -> Ints:
    """Return the class (n,) of the largest logit of each row, in blocks."""
    size = max(64, _JUDGED_BYTES // (8 * len(weight)))
    parts = [(rows[start : start + size] @ weight.T).argmax(axis=1) for start in range(0, len(rows), size)]
    return np.concatenate(parts)


def _forms(rows: Doubles, matrix: Doubles, others: Doubles) -> Doubles:
    """Compute fᵀ M g (n,) for each row f and its counterpart g."""
    return np.asarray(np.einsum("nd,nd->n", rows @ matrix, others))


def _with_one(rows: Floats) -> Doubles:
    return np.column_stack([rows.astype(np.float64), np.ones(len(rows))])
