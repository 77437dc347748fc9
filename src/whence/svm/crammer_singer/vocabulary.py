"""How alike two models of very many classes are, most of them without a sample, without all their logits."""

from __future__ import annotations

import numpy as np

from whence.core.arrays import Doubles, Floats, Ints
from whence.svm.likeness import HeadLayer, with_bias

_BYTES = 1 << 26  # of the model's logits held at a time


class VocabularyJudge:
    """Compares W (K, d[+1]), the bias last, with a model's head on rows, where classes lack samples.

    All classes without a sample have the same row of W, so that one of them stands for all. What is asked of
    the head is found once: its classes, and Σ_c v_c v_cᵀ. With rows f, and w_c and v_c less their means over
    classes, the logits' inner product is fᵀ (Σ_c w_c v_cᵀ) f and their squared lengths are
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
        self._place = int(np.searchsorted(self._used, absent[0]))  # of the one that stands for the others
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
        """Return the share of rows with the same class first, and the mean cosine of the centred logits."""
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
    """The class (n,) of the largest logit of each row, some rows at a time."""
    size = max(64, _BYTES // (8 * len(weight)))
    parts = [(rows[start : start + size] @ weight.T).argmax(axis=1) for start in range(0, len(rows), size)]
    return np.concatenate(parts)


def _forms(rows: Doubles, matrix: Doubles, others: Doubles) -> Doubles:
    """fᵀ M g (n,) of each row f and its other g."""
    found: Doubles = np.einsum("nd,nd->n", rows @ matrix, others)
    return found


def _with_one(rows: Floats) -> Doubles:
    return np.column_stack([rows.astype(np.float64), np.ones(len(rows))])
