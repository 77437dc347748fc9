"""The feature metric: how features are read before training samples and tests are compared by inner products.

Raw features share a mean direction and differ in length, so that the same few samples lead the list of every
test of a class. A metric removes the mean, the scale of directions, or the length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import torch
from scipy.linalg import eigh
from torch import Tensor

from whence.core import contents
from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_choice, check_flag, check_positive, shown
from whence.core.display import displayed
from whence.core.store import Arrays
from whence.errors import InvalidInputError
from whence.features.rows import Rows, at_unit_length, blocks, lengths, together
from whence.tasks import LabelKind

MetricName = Literal["auto", "raw", "unit", "centred", "whitened"]

_WHOLE = 2_048  # features up to which Σ is decomposed as a whole
_ROWS = 2_048  # samples that span the directions of more features than that
_DIRECTIONS = 512  # of them


@runtime_checkable
class LearnsMap(Protocol):
    """What ``metric=`` takes besides a name: an object that learns a map from the training features."""

    def fit(self, features: Rows) -> FeatureMap:
        """Return the map of features, learned from those of the training set (N, d)."""


@dataclass(frozen=True)
class Metric:
    """How features are compared: φ(f) = S(f − μ)/‖S(f − μ)‖, or parts of it.

    Parameters
    ----------
    centre
        Subtract the mean μ of the training features.
    shrinkage
        s of S = (Σ + s·tr(Σ)/d·I)^(−½), with the covariance Σ of the training features: all directions count
        more alike the smaller s is. None leaves S = I. Above 2,048 features Σ is that of 2,048 samples, and
        directions beyond its 512 largest share one factor.
    unit
        Divide by the length. A vector of zeros stays one.

    Examples
    --------
    >>> import numpy as np, torch
    >>> f = np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 4.0]])
    >>> Metric(centre=True, unit=True).fit(f)(torch.tensor([[2.0, 5.0]])).round(decimals=3).tolist()
    [[0.0, 1.0]]
    """

    centre: bool = False
    shrinkage: float | None = None
    unit: bool = False

    def __post_init__(self) -> None:
        check_flag("centre", self.centre)
        check_flag("unit", self.unit)
        if self.shrinkage is not None:
            check_positive("shrinkage", self.shrinkage, ", or None for no whitening")

    def fit(self, features: Rows) -> FeatureMap:
        """Learn the map from the features (N, d) of the training set."""
        if not self.centre and self.shrinkage is None:
            return FeatureMap(unit=self.unit)
        if self.shrinkage is None:
            return FeatureMap(moments(features, scatter=False).mean, unit=self.unit)
        n, d = features.shape
        if d <= _WHOLE:
            mean, scatter = moments(features)
            assert scatter is not None
            _check_moments(scatter)
            values, vectors = eigh(scatter / n)
            total = float(np.trace(scatter)) / n
        else:
            mean = moments(features, scatter=False).mean
            values, vectors, total = _leading(features, mean)
        if total <= 0:  # all features are the same: no direction has a scale
            return FeatureMap(mean if self.centre else None, unit=self.unit)
        floor = self.shrinkage * total / d
        # Of tr Σ what the directions do not hold is spread over the others.
        others = max(total - float(values.sum()), 0.0) / max(d - len(values), 1)
        gains = 1.0 / np.sqrt(np.maximum(values, 0.0) + floor)
        return FeatureMap(
            mean if self.centre else None, vectors, gains, float(1.0 / np.sqrt(others + floor)), self.unit
        )


METRICS: dict[MetricName, Metric] = {
    "raw": Metric(),
    "unit": Metric(unit=True),
    "centred": Metric(centre=True),
    "whitened": Metric(centre=True, shrinkage=10.0, unit=True),
}
"""The metrics that have a name."""

AUTO: dict[LabelKind, MetricName] = {"class": "whitened", "label": "whitened", "number": "centred"}
"""What "auto" is, by the kind of labels. A prediction that is a number depends on the length of features."""


@displayed("description")
@dataclass(frozen=True, eq=False)
class FeatureMap:
    """A metric that was learned: φ(f) = S(f − μ)/‖S(f − μ)‖, or parts of it.

    Attributes
    ----------
    mean : (d,) μ; None for 0
    directions, gains : (d, r) orthonormal columns and (r,) factors of S; None for S = I
    rest : the factor of S in all other directions
    unit : whether the result has length 1
    """

    mean: Doubles | None = None
    directions: Doubles | None = None
    gains: Doubles | None = None
    rest: float = 1.0
    unit: bool = False

    def __post_init__(self) -> None:
        for name in MAP_ARRAYS:
            if (array := getattr(self, name)) is not None:
                object.__setattr__(self, name, np.asarray(array, np.float64))

    @property
    def is_raw(self) -> bool:
        """Whether features are read unchanged."""
        return self.mean is None and self.directions is None and not self.unit

    @property
    def description(self) -> str:
        """What is done to features, in words; where few directions are whitened, how many."""
        whitened = "whitened"
        if self.directions is not None and self.directions.shape[1] < self.directions.shape[0]:
            whitened = f"whitened in {self.directions.shape[1]} of {self.directions.shape[0]:,} directions"
        steps = {
            "centred": self.mean is not None,
            whitened: self.directions is not None,
            "at unit length": self.unit,
        }
        return ", ".join(step for step, done in steps.items() if done) or "raw"

    def fit(self, features: Rows) -> FeatureMap:
        """Return the map itself, which is learned already."""
        return self

    def __call__(self, features: Tensor) -> Tensor:
        """Read features (n, d) of any samples; they come back in the precision that they had."""
        if self.is_raw:
            return features
        z = self._scaled(features)
        return at_unit_length(z).to(features.dtype) if self.unit else z.to(features.dtype)

    def rows(self, features: Rows) -> Rows:
        """Read all rows (N, d), in memory or, where there is no room, in a temporary file."""
        if self.is_raw:
            return features
        parts = (self(torch.from_numpy(np.array(block))).numpy() for block in blocks(features))
        return together(parts, len(features), features.shape[1], features.dtype)

    def pull(self, vectors: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """Write inner products v·φ(f) as e·f + r, for vectors v (m, d) and features f (1, d) or (m, d).

        The length of S(f − μ) is a constant here, as the scale of a normalisation layer is to relevance.

        Returns
        -------
        e (m, d) and r (m,), r = −e·μ.
        """
        if self.is_raw:
            return vectors, vectors.new_zeros(len(vectors))
        e = self._times(vectors.double())
        if self.unit:
            e = e / lengths(self._scaled(features.to(vectors)))
        offset = e.new_zeros(len(e)) if self.mean is None else -(e @ self._on(self.mean, e))
        return e.to(vectors), offset.to(vectors)

    def _scaled(self, features: Tensor) -> Tensor:
        """S(f − μ) (n, d): differences in float64, the product in the precision of the features."""
        if self.mean is not None:
            features = (features.double() - self._on(self.mean, features)).to(features.dtype)
        return self._times(features)

    def _times(self, vectors: Tensor) -> Tensor:
        """S v (n, d) of some vectors."""
        if self.directions is None:
            return vectors
        if self._whole is not None:
            return vectors @ self._on(self._whole, vectors).to(vectors.dtype)
        assert self.gains is not None
        B = self._on(self.directions, vectors).to(vectors.dtype)
        factors = self._on(self.gains - self.rest, vectors).to(vectors.dtype)
        return self.rest * vectors + ((vectors @ B) * factors) @ B.T

    @cached_property
    def _whole(self) -> Doubles | None:
        """S (d, d) where it is written down; None where few directions differ from the rest."""
        if self.directions is None or self.gains is None or self.directions.shape[0] > _WHOLE:
            return None
        B = self.directions
        S: Doubles = (B * (self.gains - self.rest)) @ B.T
        S[np.diag_indices_from(S)] += self.rest
        return S

    @staticmethod
    def _on(array: Doubles, like: Tensor) -> Tensor:
        return torch.as_tensor(array, dtype=torch.float64, device=like.device)

    # What a file has of it

    @property
    def arrays(self) -> Arrays:
        """Its arrays, by the names that they have in a file."""
        named = {"mean": self.mean, "directions": self.directions, "gains": self.gains}
        return {f"metric_{name}": array for name, array in named.items() if array is not None}

    @property
    def facts(self) -> dict[str, Any]:
        """The rest of it, for a manifest."""
        return {"rest": self.rest, "unit": self.unit}

    @classmethod
    def restored(cls, arrays: Arrays, facts: MapFacts, d: int) -> Self:
        """Rebuild from ``arrays`` and ``facts`` for features of width d, or raise StoreError."""
        kept = {name: arrays[f"metric_{name}"] for name in MAP_ARRAYS if f"metric_{name}" in arrays}
        if ("directions" in kept) != ("gains" in kept):
            raise contents.refused("'metric_directions' and 'metric_gains' must come together")
        layout: contents.Layout = {"mean": ("d",), "directions": ("d", "r"), "gains": ("r",)}
        contents.check_floats(kept, {name: layout[name] for name in kept}, {"d": d})
        if (kept.get("gains", np.ones(1)) <= 0).any() or facts.rest <= 0:
            raise contents.refused("the factors of the metric must be above 0")
        mean, directions, gains = (kept.get(name) for name in MAP_ARRAYS)
        return cls(mean, directions, gains, facts.rest, facts.unit)


MAP_ARRAYS = ("mean", "directions", "gains")


@dataclass(frozen=True)
class MapFacts:
    """What a manifest says of a map besides its arrays."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    rest: float = 1.0
    unit: bool = False


def check_metric(name: str, value: Any) -> MetricName | Metric | FeatureMap | LearnsMap:
    """Return a metric in its plain form, a name, a ``Metric`` or an object with ``fit``, or raise."""
    if isinstance(value, str):
        chosen: MetricName = check_choice(name, value, ("auto", *METRICS))
        return chosen
    if isinstance(value, Mapping):
        try:
            return Metric(**value)
        except TypeError as error:
            raise InvalidInputError(
                f"{name!r} as a mapping must have the fields of Metric, centre, shrinkage and unit. "
                f"Got {shown(value)}."
            ) from error
    if isinstance(value, type) or not isinstance(value, LearnsMap):
        raise InvalidInputError(
            f"{name!r} must be 'auto', {', '.join(map(repr, METRICS))}, a whence.features.Metric, or an "
            f"object whose fit(features) returns a whence.features.FeatureMap. Got {shown(value)}."
        )
    return value


def choose_metric(metric: MetricName | LearnsMap, kind: LabelKind) -> MetricName | LearnsMap:
    """Return the metric that "auto" is for a kind of labels; other metrics unchanged."""
    return AUTO[kind] if metric == "auto" else metric


def learn_map(metric: MetricName | LearnsMap, features: Rows) -> FeatureMap:
    """Learn the map of a metric, which is not "auto", from the features (N, d) of the training set."""
    chosen = METRICS[metric] if isinstance(metric, str) else metric
    learned = chosen.fit(features)
    if not isinstance(learned, FeatureMap):
        raise InvalidInputError(
            f"'metric' must return a whence.features.FeatureMap from fit(features). Got {shown(learned)}."
        )
    for name, array in learned.arrays.items():
        if array.shape[0] != features.shape[1] and name != "metric_gains":
            raise InvalidInputError(
                f"'metric' must return a map of the {features.shape[1]} features. Got one of "
                f"{array.shape[0]}."
            )
    return learned


def saved_metric(metric: Any) -> Any:
    """Return a metric as a manifest names it: its name, the fields of a ``Metric``, else None."""
    if isinstance(metric, Metric):
        return dataclasses.asdict(metric)
    return metric if isinstance(metric, str) else None


class Moments(NamedTuple):
    """The mean (d,) of features, and Σ_i (f_i − μ)(f_i − μ)ᵀ (d, d) where it was asked for."""

    mean: Doubles
    scatter: Doubles | None


def moments(features: Rows, scatter: bool = True) -> Moments:
    """Compute mean and scatter of features (N, d) in one pass over their rows, in float64.

    Sums are of differences to the first block's mean, so that a large common offset costs no digits.
    """
    n, d = features.shape
    shift: Doubles | None = None
    total, products = np.zeros(d), np.zeros((d, d)) if scatter else None
    for block in blocks(features):
        rows = block.astype(np.float64)
        shift = rows.mean(axis=0) if shift is None else shift
        rows -= shift
        total += rows.sum(axis=0)
        if products is not None:
            products += rows.T @ rows
    if shift is None:
        raise InvalidInputError("'features' must have a row to learn a metric from. Got none.")
    if products is not None:
        products -= np.outer(total, total) / n
    return Moments(shift + total / n, products)


def _check_moments(sums: Doubles) -> None:
    """Raise where features, or their squares, do not have finite sums."""
    if not np.isfinite(sums).all():
        raise InvalidInputError(
            "'features' must be finite, with squares that can be added. Got NaN, infinity or values beyond "
            "1e150. Remove such samples, or scale them down."
        )


def _leading(features: Rows, mean: Doubles) -> tuple[Doubles, Doubles, float]:
    """The largest eigenvalues of Σ (r,), their vectors (d, r), and tr Σ, by samples spread over the set."""
    chosen: Ints = np.unique(np.linspace(0, len(features) - 1, min(_ROWS, len(features))).astype(np.int64))
    X = np.asarray(features[chosen]).astype(np.float64) - mean
    products = X @ X.T / len(X)
    _check_moments(products)
    values, U = eigh(products)
    keep = np.argsort(-values)[:_DIRECTIONS]
    keep = keep[values[keep] > 1e-12 * max(values.max(), 0.0)]
    vectors = X.T @ U[:, keep]
    vectors, _ = np.linalg.qr(vectors)
    # The columns of X U are orthogonal but for rounding, which the decomposition takes out.
    return values[keep], vectors, float(np.einsum("nd,nd->", X, X)) / len(X)
