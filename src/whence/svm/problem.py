"""The optimisation problem: checked input, primal, dual and the gap between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from whence.core.checks import as_int64, check_count, check_positive, real_array, shown, to_array
from whence.errors import InvalidInputError
from whence.svm import kernels

Floats = npt.NDArray[np.floating[Any]]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_UNNAMED = 1000  # classes that labels may speak of without a sample for each
_MOST = 1 << 20  # classes
_LARGEST = 1e100  # of what is squared on the way
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
    bias : the constant that follows the features, 0 without one
    squared_norms : (N,) float64, ‖f_i‖² with the constant counted in
    multiplicity : how many classes the last one stands for, which all have its λ_ic and w_c: all sums over
        classes count it so often
    """

    features: Floats
    labels: Ints
    n_classes: int
    C: float
    bias: float
    squared_norms: Doubles
    multiplicity: int = 1

    @property
    def times(self) -> Doubles:
        """How many classes each one stands for, (K,)."""
        times = np.ones(self.n_classes)
        times[-1] = self.multiplicity
        return times

    def inner(self, A: Floats, B: Floats) -> float:
        """Σ_c A_c·B_c of two arrays like W, (K, d)."""
        return float(np.vdot(A, B)) + (self.multiplicity - 1) * float(np.vdot(A[-1], B[-1]))

    def inner_rows(self, A: Floats, B: Floats) -> float:
        """Σ_ic A_ic B_ic of two arrays like α, (n, K)."""
        return float(np.vdot(A, B)) + (self.multiplicity - 1) * float(np.vdot(A[:, -1], B[:, -1]))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of W: (K, d), or (K, d + 1) with a bias."""
        return self.n_classes, self.features.shape[1] + int(self.bias > 0)

    def blocks(self) -> list[slice]:
        """Row slices whose float64 copies fit the cache."""
        n, d = self.features.shape
        rows = max(64, _BLOCK_BYTES // (8 * d))
        return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def make_problem(
    features: npt.ArrayLike, labels: npt.ArrayLike, n_classes: int | None, C: float, bias: bool | float
) -> Problem:
    """Check the input and put it into the form the solver works on.

    float32 and float64 rows are used in place; other layouts and float16 are copied once.
    """
    X = check_features(features)
    y = check_labels(labels, len(X))
    K = check_n_classes(n_classes, y)
    C, constant = check_C(C), check_bias(bias)
    norms = _squared_norms(X)
    norms += constant**2
    _check_range(C, norms)
    return Problem(X, y, K, C, constant, norms)


def check_bias(bias: bool | float) -> float:
    """Return the constant that follows the features: 1 for True, 0 for False, or a number above 0."""
    if isinstance(bias, bool | np.bool_):
        return float(bias)
    if not isinstance(bias, float | np.floating) or not 0 < bias < _LARGEST:
        raise InvalidInputError(f"'bias' must be True, False or a float above 0. Got {shown(bias)}.")
    return float(bias)


def spread(features: Floats) -> float:
    """The root mean square distance of features (N, d) from their mean, 1 if all are 0.

    It follows their scale and is blind to a common offset. Of features that are all but equal it is a
    millionth of their norm, below which rounding would decide.
    """
    square = float(np.mean(_squared_norms(features)))
    mean = features.mean(axis=0, dtype=np.float64)
    return float(np.sqrt(max(square - float(mean @ mean), 1e-12 * square))) or 1.0


def length(features: Floats) -> float:
    """The root mean square norm of features (N, d), 1 if all are 0."""
    return float(np.sqrt(np.mean(_squared_norms(features)))) or 1.0


def check_C(C: float) -> float:
    """Return C as a float, or raise unless it is a finite number above zero."""
    return check_positive("C", C)


def check_features(features: npt.ArrayLike) -> Floats:
    """Return features as a row-contiguous float32 or float64 matrix, or raise."""
    X = real_array("features", features)
    if X.ndim != 2:
        raise InvalidInputError(
            f"'features' must have two dimensions, (samples, features). Got shape {X.shape}. "
            "Flatten or pool each sample to one row."
        )
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
    y = to_array("labels", labels)
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
    return as_int64("labels", y)


def check_head(
    head: Any, n_features: int, n_classes: int | None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """Return a head's weight (K, d) and bias (K,) or None as arrays, or raise unless they fit."""
    if not isinstance(head, tuple | list) or len(head) != 2:
        raise InvalidInputError(
            f"'head' must be a pair of a weight (K, {n_features}) and a bias (K,) or None. Got {shown(head)}."
        )
    weight = real_array("head", head[0])
    bias = None if head[1] is None else real_array("head", head[1])
    K = len(weight) if weight.ndim else 0
    if n_classes is not None:
        K = check_count("n_classes", n_classes, 2, _MOST)
    if weight.shape != (K, n_features) or (bias is not None and bias.shape != (K,)):
        raise InvalidInputError(
            f"'head' must be a weight ({K}, {n_features}) and a bias ({K},) or None. "
            f"Got shapes {weight.shape} and {None if bias is None else bias.shape}."
        )
    if not all(np.isfinite(part).all() for part in (weight, bias) if part is not None):
        raise InvalidInputError("'head' must be finite. Got NaN or infinity in its weight or bias.")
    return weight, bias


def check_n_classes(n_classes: int | None, labels: Ints) -> int:
    """Return the number of classes, read off the labels when None, or raise."""
    top = int(labels.argmax())
    if n_classes is None:
        K = int(labels[top]) + 1
        if K < 2:
            raise InvalidInputError(
                f"'n_classes' must be an integer of at least 2. Got {K} from the labels; pass n_classes when "
                "some classes are absent."
            )
        if max(_UNNAMED, len(labels)) < K:  # a mistake, which would cost the memory of a million classes
            raise InvalidInputError(
                f"'labels' must be classes 0 … K−1. Got {labels[top]} at index {top}: {K:,} classes for "
                f"{len(labels):,} samples. Map the labels to 0 … K−1, or pass n_classes."
            )
        return K
    K = check_count("n_classes", n_classes, 2, _MOST)
    if labels[top] >= K:
        raise InvalidInputError(f"'labels' must be below n_classes = {K}. Got {labels[top]} at index {top}.")
    return K


def _check_range(C: float, norms: Doubles) -> None:
    """Raise where squares of the numbers in play would leave float64."""
    i = int(norms.argmax())
    if norms[i] > _LARGEST:
        raise InvalidInputError(
            f"'features' are too large: the squared norm of row {i} is {norms[i]:.1e}, above {_LARGEST:.0e}. "
            "Scale the features down."
        )
    if not 1 / _LARGEST < C < _LARGEST or C * norms[i] > _LARGEST:
        raise InvalidInputError(
            f"'C' must be between {1 / _LARGEST:.0e} and {_LARGEST:.0e}, and so must its product with the "
            f"features' largest squared norm, {norms[i]:.1e}. Got {C!r}."
        )


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
