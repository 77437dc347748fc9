"""A map of features in the plane: principal components, or UMAP if it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh

from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_choice, check_seed, real_array
from whence.core.display import displayed
from whence.core.naming import optional_import
from whence.errors import InvalidInputError
from whence.features.metric import moments
from whence.features.rows import Rows, blocks

PROJECTIONS = ("pca", "umap")
"""How features are laid out in the plane."""

_WIDE = 2_048  # features up to which the covariance is written down
_ROWS = 10_000  # samples that principal components are learned from, at most
_FEW = 2_048  # of more features than ``_WIDE``


@displayed("method", "training", "tests", "shares")
class MapPlane(NamedTuple):
    """Samples in the plane.

    Attributes
    ----------
    method : "pca" or "umap"
    training : (N, 2), the training samples
    tests : (M, 2), the tests, in the same plane
    shares : the shares of the training features' variance along the two axes; None for UMAP
    """

    method: str
    training: Doubles
    tests: Doubles
    shares: tuple[float, float] | None


def project_2d(training: Any, tests: Any = None, *, method: str = "pca", seed: int = 0) -> MapPlane:
    """Lay samples out in the plane, such that samples with similar features are near each other.

    The plane is learned from the training samples alone; tests are laid into it.

    Parameters
    ----------
    training
        Features (N, d), for a fitted explainer those of ``explainer.surrogate_.metric.rows(features)``.
    tests
        Features (M, d) of tests; None for none.
    method
        ``"pca"``: the two directions of largest variance. Distances on the map are then never larger than
        those of the features. The largest entry of each direction is positive. Above 10,000 samples, or 2,048
        samples of more than 2,048 features, the directions are those of so many, evenly spread.
        ``"umap"``: neighbourhoods, by umap-learn, which is installed with ``whence[umap]``. Distances between
        groups mean little.
    seed
        Of UMAP.

    Examples
    --------
    >>> import numpy as np, whence
    >>> f = np.array([[0.0, 0.0, 1.0], [4.0, 0.0, 1.0], [0.0, 2.0, 1.0], [4.0, 2.0, 1.0]])
    >>> points = whence.features.project_2d(f, [[5.0, 1.0, 9.0]])
    >>> points.training.tolist(), points.tests.tolist()
    ([[-2.0, -1.0], [2.0, -1.0], [-2.0, 1.0], [2.0, 1.0]], [[3.0, 0.0]])
    >>> [round(share, 2) for share in points.shares]
    [0.8, 0.2]
    """
    check_choice("method", method, PROJECTIONS)
    seed = check_seed(seed)
    X = _checked("training", training)
    T = X[:0] if tests is None else _checked("tests", tests)
    if T.shape[1] != X.shape[1]:
        raise InvalidInputError(
            f"'tests' must have the features of 'training', {X.shape[1]} of them. Got {T.shape[1]}."
        )
    return _umap(X, T, seed) if method == "umap" else _pca(X, T)


def available() -> tuple[str, ...]:
    """Return the methods that can be used here."""
    return PROJECTIONS if find_spec("umap") is not None else PROJECTIONS[:1]


def _checked(name: str, features: Any) -> Rows:
    rows: Rows = real_array(name, features)
    if rows.ndim != 2 or 0 in rows.shape:
        raise InvalidInputError(
            f"{name!r} must have shape (n, d), with samples and features. Got {rows.shape}."
        )
    if rows.dtype.kind != "f":
        rows = rows.astype(np.float64)
    if not all(np.isfinite(block).all() for block in blocks(rows)):
        raise InvalidInputError(f"{name!r} must be finite. Got NaN or infinity; leave out such samples.")
    return rows


def _pca(X: Rows, T: Rows) -> MapPlane:
    wide = X.shape[1] > _WIDE
    # In units of the largest entry: squares of very large or small ones would leave float64.
    scale = max(float(np.abs(block).max()) for block in blocks(X)) or 1.0
    chosen = _spread(X, _FEW if wide else _ROWS).astype(np.float64) / scale
    mean, axes, shares = _from_rows(chosen) if wide else _from_covariance(chosen)

    def placed(rows: Rows) -> Doubles:
        parts = [(block.astype(np.float64) / scale - mean) @ axes * scale for block in blocks(rows)]
        return np.concatenate([np.empty((0, 2)), *parts])

    return MapPlane("pca", placed(X), placed(T), shares)


def _spread(X: Rows, most: int) -> Rows:
    """Return at most so many rows, evenly spread."""
    if len(X) <= most:
        return X
    rows: Ints = np.linspace(0, len(X) - 1, most).round().astype(np.int64)
    return X[rows]


def _from_covariance(X: Doubles) -> tuple[Doubles, Doubles, tuple[float, float]]:
    """Return mean (d,), directions (d, 2) and shares of variance, by the covariance (d, d)."""
    mean, scatter = moments(X)
    assert scatter is not None
    d = len(mean)
    values, vectors = eigh(scatter, subset_by_index=(max(d - 2, 0), d - 1))
    return mean, *_ordered(values, vectors, float(np.trace(scatter)))


def _from_rows(X: Doubles) -> tuple[Doubles, Doubles, tuple[float, float]]:
    """Return the same by the inner products (n, n) of few rows."""
    mean: Doubles = X.mean(axis=0)
    rows = X - mean
    products, n = rows @ rows.T, len(rows)
    values, U = eigh(products, subset_by_index=(max(n - 2, 0), n - 1))
    lengths = np.sqrt(np.maximum(values, 0.0))
    vectors = rows.T @ U / np.where(lengths > 0, lengths, 1.0)
    return mean, *_ordered(values, vectors, float(np.trace(products)))


def _ordered(values: Doubles, vectors: Doubles, total: float) -> tuple[Doubles, tuple[float, float]]:
    """Return two directions (d, 2), the largest value first, and their shares; without variance 0."""
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
    axes, shares = np.zeros((len(vectors), 2)), np.zeros(2)
    axes[:, : len(values)] = vectors * np.where(signs == 0, 1.0, signs)
    shares[: len(values)] = values / total if total > 0 else 0.0
    return axes, (float(shares[0]), float(shares[1]))


def _umap(X: Rows, T: Rows, seed: int) -> MapPlane:
    with optional_import('\'method\' "umap" needs umap-learn. Install whence[umap], or use "pca".'):
        from umap import UMAP
    learned = UMAP(n_components=2, random_state=seed)
    training = np.asarray(learned.fit_transform(np.asarray(X)), np.float64)
    tests = np.asarray(learned.transform(np.asarray(T)), np.float64) if len(T) else np.empty((0, 2))
    return MapPlane("umap", training, tests, None)
