"""Feature metrics written out in numpy and scipy, in float64, and a metric of a user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import fractional_matrix_power

from whence.features import FeatureMap

SHRINKAGE = 10.0  # of "whitened"


class Own:
    """A metric of a user's own: about the median, two directions stretched, the rest halved, at length 1."""

    def fit(self, features: np.ndarray) -> FeatureMap:
        """Return the map of features (N, d)."""
        d = features.shape[1]
        return FeatureMap(np.median(features, axis=0), two_directions(d), np.array([3.0, 0.25]), 0.5, True)


METRICS: dict[str, Any] = {
    "raw": "raw",
    "unit": "unit",
    "centred": "centred",
    "whitened": "whitened",
    "own": Own(),
}


def two_directions(d: int) -> np.ndarray:
    """Orthonormal columns (d, 2)."""
    B = np.zeros((d, 2))
    B[:3, 0], B[3:5, 1] = np.array([2.0, -1.0, 2.0]) / 3, np.array([3.0, 4.0]) / 5
    return B


def parts(name: str, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """μ (d,), S (d, d), and whether results have length 1, of φ(f) = S(f − μ)/‖S(f − μ)‖ learned from X."""
    X = np.asarray(X, np.float64)
    d = X.shape[1]
    zero, one = np.zeros(d), np.eye(d)
    if name == "own":
        B = two_directions(d)
        return np.median(X, axis=0), 0.5 * one + B @ np.diag([2.5, -0.25]) @ B.T, True
    if name == "whitened":
        cov = np.cov(X.T, bias=True)
        return X.mean(0), fractional_matrix_power(cov + SHRINKAGE * np.trace(cov) / d * one, -0.5).real, True
    return X.mean(0) if name == "centred" else zero, one, name == "unit"


def read(name: str, X: np.ndarray, f: np.ndarray) -> np.ndarray:
    """φ(f) of rows (n, d), learned from X."""
    mean, S, unit = parts(name, X)
    z = (np.asarray(f, np.float64) - mean) @ S
    return z / np.linalg.norm(z, axis=1, keepdims=True) if unit else z
