"""Checks of features, C, the bias and a model's head, and the search for copies among samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from whence.core.arrays import Doubles, Floats, Ints
from whence.core.checks import as_int64, check_count, check_positive, real_array, shown, to_array
from whence.errors import InvalidInputError

MOST_OUTPUTS = 1 << 20
_UNNAMED = 1000  # maximum number of classes without a sample
_LARGEST = 1e100  # maximum of squared numbers


def check_bias(bias: bool | float) -> float:
    """Return the constant that is appended to the features: 1 for True, 0 for False, or a number above 0."""
    if isinstance(bias, bool | np.bool_):
        return float(bias)
    if not isinstance(bias, float | np.floating) or not 0 < bias < _LARGEST:
        raise InvalidInputError(f"'bias' must be True, False or a float above 0. Got {shown(bias)}.")
    return float(bias)


def spread(features: Floats) -> float:
    """Return the root mean square distance of features (N, d) from their mean, 1 if all are 0.

    It follows their scale and is blind to a common offset. Of features that are all but equal it is a
    millionth of their norm, below which rounding would decide.
    """
    square = float(np.mean(squared_norms(features)))
    mean = features.mean(axis=0, dtype=np.float64)
    return float(np.sqrt(max(square - float(mean @ mean), 1e-12 * square))) or 1.0


def length(features: Floats) -> float:
    """Return the root mean square norm of features (N, d), 1 if all are 0."""
    return float(np.sqrt(np.mean(squared_norms(features)))) or 1.0


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
    if 0 in X.shape:
        missing = "row" if len(X) == 0 else "column"
        raise InvalidInputError(f"'features' must have at least one {missing}. Got shape {X.shape}.")
    if X.dtype == np.float16:
        X = X.astype(np.float32)
    elif X.dtype not in (np.float32, np.float64) or not X.dtype.isnative:
        X = X.astype(np.float64)
    return np.ascontiguousarray(X)


def check_labels(labels: npt.ArrayLike, n: int) -> Ints:
    """Return labels as an int64 vector with one entry per sample, or raise."""
    y = to_array("labels", labels)
    if y.shape != (n,):
        raise InvalidInputError(f"'labels' must have shape ({n},), one label per row. Got {y.shape}.")
    if y.dtype.kind not in "iu":
        raise InvalidInputError(
            f"'labels' must be integers in [0, n_classes). Got dtype {y.dtype}. "
            "Map class names to 0 … K−1 first."
        )
    if y.min() < 0:
        i = int(np.argmax(y < 0))
        raise InvalidInputError(f"'labels' must not be negative. Got {y[i]} at index {i}.")
    return as_int64("labels", y)


def check_n_classes(n_classes: int | None, labels: Ints) -> int:
    """Return the number of classes, from the labels if None, or raise."""
    top = int(labels.argmax())
    if n_classes is None:
        K = int(labels[top]) + 1
        if K < 2:
            raise InvalidInputError(
                f"'n_classes' must be an integer of at least 2. Got {K} from the labels; pass n_classes, or "
                "task=Classes(n_classes) with features, when some classes are absent."
            )
        if max(_UNNAMED, len(labels)) < K:  # a mistake, which would cost the memory of a million classes
            raise InvalidInputError(
                f"'labels' must be classes 0 … K−1. Got {labels[top]} at index {top}: {K:,} classes for "
                f"{len(labels):,} samples. Map the labels to 0 … K−1, or pass n_classes, or "
                "task=Classes(n_classes) with features."
            )
        return K
    K = check_count("n_classes", n_classes, 2, MOST_OUTPUTS)
    if labels[top] >= K:
        raise InvalidInputError(f"'labels' must be below n_classes = {K}. Got {labels[top]} at index {top}.")
    return K


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
        K = check_count("n_classes", n_classes, 1, MOST_OUTPUTS)
    if weight.shape != (K, n_features) or (bias is not None and bias.shape != (K,)):
        raise InvalidInputError(
            f"'head' must be a weight ({K}, {n_features}) and a bias ({K},) or None. "
            f"Got shapes {weight.shape} and {None if bias is None else bias.shape}."
        )
    if not all(np.isfinite(part).all() for part in (weight, bias) if part is not None):
        raise InvalidInputError("'head' must be finite. Got NaN or infinity in its weight or bias.")
    return weight, bias


def check_range(C: float, norms: Doubles) -> None:
    """Raise if squares of the numbers would overflow float64."""
    i, C = int(norms.argmax()), float(C)  # of float32, the limits would overflow
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


def check_sizes(X: Floats, C: float, bias: bool | float) -> tuple[float, float, Doubles]:
    """Return C, the constant appended to features (N, d), and ‖f_i‖² with it, or raise."""
    C, constant, norms = check_C(C), check_bias(bias), squared_norms(X)
    norms += constant**2
    check_range(C, norms)
    return C, constant, norms


def squared_norms(X: Floats) -> Doubles:
    """Compute ‖f_i‖² in float64; raise on NaN, infinity and overflow."""
    from whence.svm import loops  # compiled, and slow to import

    norms = np.empty(len(X))
    loops.squared_norms(X, norms)
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


def find_copies(features: Floats, norms: Doubles, labels: Ints) -> list[Ints]:
    """Return the groups of copies, samples with equal features and label, each ascending.

    Only rows of equal squared norm are compared; there are few unless features are integers.
    """
    order = np.argsort(norms)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(norms[order])) + 1, [len(order)]])
    groups: list[Ints] = []
    for k in np.flatnonzero(np.diff(starts) > 1):
        places: dict[tuple[int, bytes], list[int]] = {}
        for i in np.sort(order[starts[k] : starts[k + 1]]).tolist():
            # Adding zero gives −0.0 and 0.0, which are equal, the same bytes.
            places.setdefault((labels[i], (features[i] + 0.0).tobytes()), []).append(i)
        groups += [np.array(rows) for rows in places.values() if len(rows) > 1]
    return groups
