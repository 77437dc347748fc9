"""The optimisation problem: checked input, primal, dual and the gap between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from whence.errors import InvalidInputError
from whence.svm import kernels

Floats = npt.NDArray[np.floating[Any]]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_BLOCK_BYTES = 1 << 20  # float64 copies of feature blocks stay inside the outer cache


@dataclass(frozen=True)
class Problem:
    """A Crammer–Singer problem in the coefficients λ that attributions use.

    Primal: min_W ½‖W‖² + C Σ_i max_c (1 − δ_{c,y_i} − w_{y_i}·f_i + w_c·f_i).
    Dual: max_λ Σ_i λ_{i,y_i} − ½‖Σ_i λ_i f_iᵀ‖², with Σ_c λ_ic = 0 and λ_ic ≤ C·δ_{c,y_i}.

    Attributes
    ----------
    features : (N, d) array, float32 or float64, rows contiguous
    labels : (N,) int64 in [0, n_classes)
    squared_norms : (N,) float64, ‖f_i‖² with the constant 1 of the bias counted in
    """

    features: Floats
    labels: Ints
    n_classes: int
    C: float
    bias: bool
    squared_norms: Doubles

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of W: (K, d), or (K, d + 1) with a bias."""
        return self.n_classes, self.features.shape[1] + int(self.bias)

    def blocks(self) -> list[slice]:
        """Row slices whose float64 copies fit the cache."""
        n, d = self.features.shape
        rows = max(64, _BLOCK_BYTES // (8 * d))
        return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def make_problem(
    features: npt.ArrayLike, labels: npt.ArrayLike, n_classes: int | None, C: float, bias: bool
) -> Problem:
    """Check the input and put it into the form the solver works on.

    float32 and float64 rows are used in place; other layouts and float16 are copied once.
    """
    X = check_features(features)
    y = check_labels(labels, len(X))
    K = check_n_classes(n_classes, y)
    C = check_C(C)
    norms = _squared_norms(X)
    if bias:
        norms += 1.0
    return Problem(X, y, K, C, bool(bias), norms)


def check_C(C: float) -> float:
    """Return C as a float, or raise unless it is a finite number above zero."""
    if isinstance(C, bool) or not isinstance(C, int | float | np.number) or not 0 < float(C) < np.inf:
        raise InvalidInputError(f"'C' must be a finite number above 0. Got {C!r}.")
    return float(C)


def check_features(features: npt.ArrayLike) -> Floats:
    """Return features as a row-contiguous float32 or float64 matrix, or raise."""
    X = features if isinstance(features, np.ndarray) else np.asarray(features)
    if X.ndim != 2:
        raise InvalidInputError(
            f"'features' must have two dimensions, (samples, features). Got shape {X.shape}. "
            "Flatten or pool each sample to one row."
        )
    if X.dtype.kind not in "fiub":
        raise InvalidInputError(f"'features' must hold real numbers. Got dtype {X.dtype}.")
    if X.shape[0] == 0:
        raise InvalidInputError(f"'features' must have at least one row. Got shape {X.shape}.")
    if X.shape[1] == 0:
        raise InvalidInputError(f"'features' must have at least one column. Got shape {X.shape}.")
    if X.dtype == np.float16:
        X = X.astype(np.float32)
    elif X.dtype not in (np.float32, np.float64) or not X.dtype.isnative:
        X = X.astype(np.float64)
    return np.ascontiguousarray(X)


def check_labels(labels: npt.ArrayLike, n: int) -> Ints:
    """Return labels as an int64 vector with one entry a sample, or raise."""
    y = np.asarray(labels)
    if y.shape != (n,):
        raise InvalidInputError(f"'labels' must have shape ({n},), one label a row. Got {y.shape}.")
    if y.dtype.kind not in "iu":
        raise InvalidInputError(
            f"'labels' must be integers in [0, n_classes). Got dtype {y.dtype}. "
            "Map class names to 0 … K−1 first."
        )
    if y.min() < 0:
        i = int(np.argmax(y < 0))
        raise InvalidInputError(f"'labels' must not be negative. Got {y[i]} at index {i}.")
    return y.astype(np.int64)


def check_n_classes(n_classes: int | None, labels: Ints) -> int:
    """Return the number of classes, read off the labels when None, or raise."""
    top = int(labels.argmax())
    K = int(labels[top]) + 1 if n_classes is None else n_classes
    if isinstance(K, bool) or not isinstance(K, int | np.integer) or K < 2:
        raise InvalidInputError(
            f"'n_classes' must be an integer of at least 2. Got {K!r}"
            + (" from the labels; pass n_classes when some classes are absent." if n_classes is None else ".")
        )
    if labels[top] >= K:
        raise InvalidInputError(f"'labels' must be below n_classes = {K}. Got {labels[top]} at index {top}.")
    return int(K)


def _squared_norms(X: Floats) -> Doubles:
    """‖f_i‖² in float64; raises on NaN, infinity and overflow."""
    norms = np.empty(len(X))
    kernels.squared_norms(X, norms)
    finite = np.isfinite(norms)
    if not finite.all():
        i = int(np.argmin(finite))
        bad = np.flatnonzero(~np.isfinite(X[i]))
        if len(bad):
            raise InvalidInputError(
                f"'features' must be finite. Got {X[i, bad[0]]} at row {i}, column {bad[0]}. "
                "Check the model's activations on that sample, or drop the row."
            )
        raise InvalidInputError(
            f"'features' are too large: the squared norm of row {i} overflows. Scale the features down."
        )
    return norms
