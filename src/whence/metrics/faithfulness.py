"""How well a new last layer matches the model's own, and its sparsified version."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_flag, check_that, to_array
from whence.features.training import check_tests
from whence.metrics.arrays import numbers
from whence.model.heads import Head
from whence.surrogate.agreement import Faithfulness, faithfulness
from whence.svm.inputs import check_features, check_head


def surrogate_faithfulness(coef: Any, head: tuple[Any, Any], features: Any) -> Faithfulness:
    """Compare a new last layer with the model's own: weight cosine, logit cosine, MCC and agreement.

    Cosines and MCC lie in [−1, 1], 1 is best. Weights and logits are centred over classes first, because no
    decision sees what is common to all classes.

    Parameters
    ----------
    coef : (K, d), or (K, d + 1) with the bias last
        The new layer, ``coef_`` of DualDA or Representer.
    head
        Weight (K, d) of the model's own last layer, and its bias (K,) or None.
    features : (T, d)
        Inputs of the last layer for the tests.
    """
    weight = numbers("coef", coef, (None, None)).astype(np.float64)
    tests = check_features(numbers("features", features, (None, None)))
    K, d = len(weight), tests.shape[1]
    check_that(weight.shape[1] in (d, d + 1), "coef", f"have shape (K, {d}) or (K, {d + 1})", weight.shape)
    rows = check_tests(tests, torch.from_numpy(np.empty((0, d), tests.dtype)))
    return faithfulness(weight, Head(*check_head(head, d, K)), rows)


def support_counts(coefficients: Any) -> Ints:
    """Count the nonzero coefficients of each class, (K,): DualDA's sparsity, from its ``lam_`` (N, K)."""
    if isinstance(coefficients, csr_array):
        return np.bincount(coefficients.indices[coefficients.data != 0], minlength=coefficients.shape[1])
    counts: Ints = np.count_nonzero(numbers("coefficients", coefficients, (None, None)), axis=0)
    return counts


def sparsified(coefficients: Any, counts: Any) -> Doubles:
    """Keep the largest |coefficients| of each class and set the others to zero, (N, K).

    Parameters
    ----------
    coefficients : (N, K)
        Coefficients, such as Representer's ``alpha_``.
    counts : (K,)
        Number to keep per class, such as ``support_counts(explainer.lam_)``.

    Examples
    --------
    >>> import numpy as np
    >>> sparsified(np.array([[1.0, -5.0], [-3.0, 4.0], [2.0, 0.5]]), np.array([1, 2]))
    array([[ 0., -5.],
           [-3.,  4.],
           [ 0.,  0.]])
    """
    dense = numbers("coefficients", coefficients, (None, None)).astype(np.float64)
    N, K = dense.shape
    keep = to_array("counts", counts)
    fits = keep.shape == (K,) and keep.dtype.kind in "iu" and keep.min() >= 0 and keep.max() <= N
    check_that(fits, "counts", f"be {K} integers from 0 to {N}, one per class", keep.tolist())
    # Ranks by descending size; the first of tied samples is kept.
    ranks = np.argsort(np.argsort(-np.abs(dense), axis=0, kind="stable"), axis=0)
    return np.where(ranks < keep, dense, 0.0)


def sparsified_faithfulness(
    coefficients: Any, counts: Any, train_features: Any, head: tuple[Any, Any], features: Any, *, bias: bool
) -> Faithfulness:
    """Compare W = Σ_i α_i f_iᵀ with the model's own layer if only the largest |α_ic| are kept.

    Parameters
    ----------
    coefficients, counts
        As for ``sparsified``.
    train_features : (N, d)
    head, features
        As for ``surrogate_faithfulness``.
    bias
        Whether the new layer has a constant 1 among its features.
    """
    bias = check_flag("bias", bias)
    alpha = sparsified(coefficients, counts)
    d = numbers("features", features, (None, None)).shape[1]
    rows = numbers("train_features", train_features, (len(alpha), d)).astype(np.float64)
    if bias:
        rows = np.hstack([rows, np.ones((len(rows), 1))])
    return surrogate_faithfulness(alpha.T @ rows, head, features)
